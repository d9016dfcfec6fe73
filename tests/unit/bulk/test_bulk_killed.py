"""A bulk job that is killed three times ends with the bytes of one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from gliner_bento.settings import PROJECT_ROOT

pytestmark = pytest.mark.long

RECORDS = 400
PROGRAM = Path(__file__).with_name("bulk_program.py")


@pytest.fixture
def inputs(tmp_path):
    """Two files; every 50th record is refused, because its text is too long."""
    halves = range(RECORDS // 2), range(RECORDS // 2, RECORDS)
    for name, numbers in zip(("a.jsonl", "b.jsonl"), halves, strict=True):
        rows = [{"id": number, "text": f"{number} Oslo" * (1 if number % 50 else 30)} for number in numbers]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]


class Job:
    """A process that runs a job."""

    def __init__(self, program: subprocess.Popen[str], output: Path, inputs: list[str]) -> None:
        self._lines = program.stdout
        program.stdin.write(json.dumps([str(output), *inputs]) + "\n")
        program.stdin.flush()
        self._pid = int(self._lines.readline())

    def kill(self) -> None:
        """Kill it; it must not have ended by itself."""
        os.kill(self._pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int:
        return int(self._lines.readline())


@pytest.fixture(scope="module")
def program() -> Iterator[subprocess.Popen[str]]:
    """Loads the packages once for all jobs."""
    command = [sys.executable, str(PROGRAM), "-"]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        yield one
        one.stdin.close()


def done(output: Path) -> int:
    """Records up to the last checkpoint."""
    try:
        return json.loads(Path(f"{output}.checkpoint").read_text())["done"]
    except FileNotFoundError:
        return 0


def killed_after(records: int, program: subprocess.Popen[str], output: Path, inputs: list[str]) -> None:
    hold = output.with_name("hold")
    hold.touch()
    job = Job(program, output, inputs)
    wait_until(lambda: done(output) >= records)
    job.kill()
    hold.unlink()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_a_job_that_is_killed_three_times_equals_one_that_is_not(suffix, program, inputs, tmp_path):
    whole, killed = tmp_path / f"whole{suffix}", tmp_path / f"killed{suffix}"
    assert Job(program, whole, inputs).wait() == 0
    for records in sorted(random.Random(suffix).sample(range(1, RECORDS * 3 // 4), 3)):
        killed_after(records, program, killed, inputs)
        assert not killed.exists()
    before = done(killed)
    assert 0 < before < RECORDS
    assert Job(program, killed, inputs).wait() == 0
    assert killed.read_bytes() == whole.read_bytes()
    errors = [Path(f"{output}.errors.jsonl").read_bytes() for output in (whole, killed)]
    assert errors[0] == errors[1]
    assert len(errors[0].splitlines()) == RECORDS / 50
    assert sorted(path.name for path in tmp_path.glob("killed*")) == [killed.name, f"{killed.name}.errors.jsonl"]
