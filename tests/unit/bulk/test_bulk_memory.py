"""Memory of a bulk job over many records, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gliner_bento.settings import PROJECT_ROOT

PROGRAM = Path(__file__).with_name("bulk_program.py")
RECORDS = 100_000


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_memory_is_flat_over_a_hundred_thousand_records(suffix, tmp_path):
    """The slope of a line through the resident memory, after a fifth of the records: below 100 MB per million."""
    with (tmp_path / "a.jsonl").open("w") as file:
        file.writelines(json.dumps({"id": number, "text": f"{number} Oslo"}) + "\n" for number in range(RECORDS))
    output = tmp_path / f"out{suffix}"
    job = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(output), str(tmp_path / "a.jsonl"), "500"], cwd=PROJECT_ROOT
    )
    process, samples = psutil.Process(job.pid), []
    checkpoint = Path(f"{output}.checkpoint")
    while job.poll() is None:
        try:
            state = json.loads(checkpoint.read_text())
            if state["done"] >= RECORDS / 5 and not state["complete"]:
                samples.append((state["done"], process.memory_info().rss))
        except (FileNotFoundError, psutil.Error):
            pass
        time.sleep(0.1)
    assert job.returncode == 0
    assert len(samples) >= 10
    mean = [sum(column) / len(samples) for column in zip(*samples, strict=True)]
    slope = sum((done - mean[0]) * (rss - mean[1]) for done, rss in samples) / sum(
        (done - mean[0]) ** 2 for done, _ in samples
    )
    print(f"{suffix}: {mean[1] / 1e6:.0f} MB, {slope * 1e6 / 1e6:.1f} MB per million records")  # noqa: T201
    assert slope < 100
