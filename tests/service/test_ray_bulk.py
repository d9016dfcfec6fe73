"""The bulk job on Ray Data: killed, continued, and compared with one that was not. Needs the extra `ray`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from gliner_bento.settings import PROJECT_ROOT

pytest.importorskip("ray.data", reason="needs Ray: pip install -e '.[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 300.0
ROWS = 203
BLOCK_ROWS = 8
BLOCKS = 2 * -(-ROWS // BLOCK_ROWS)
TEXTS = [
    "Bill Gates founded Microsoft in Albuquerque in 1975.",
    "",
    "Marie Curie was born in Warsaw and worked in Paris. " * 30,
    None,
    "Ada Lovelace met Charles Babbage in London in 1833.",
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each format; the row groups of the one are no multiple of the blocks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("texts")
    rows = [{"id": number, "text": TEXTS[number % len(TEXTS)]} for number in range(ROWS)]
    (folder / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"id": pa.array([row["id"] for row in rows], pa.int32()), "text": [row["text"] for row in rows]}
    pq.write_table(pa.table(columns), folder / "table.parquet", row_group_size=31)
    return folder


def start(inputs: Path, output: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROJECT_ROOT / "deploy" / "ray" / "bulk.py"), str(inputs), "--output", str(output)]
    command += ["--labels", "person,company,city", "--block-rows", str(BLOCK_ROWS), "--cpus", "1", *more]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"PYTHONPATH": str(PROJECT_ROOT), "GLINER_DTYPE": "float32", "GLINER_WARMUP_ITERATIONS": "0"}
    environment |= {"RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit code, and the last lines of its output and of its errors."""
    out, errors = job.communicate(timeout=PATIENCE_S)
    return job.returncode, *((text.strip().splitlines() or [""])[-1] for text in (out, errors))


def outputs(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("[!.]*") if file.suffix in (".jsonl", ".parquet"))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """All rows, in the order of the input."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for file in outputs(folder):
        if file.suffix == ".parquet":
            rows += pq.read_table(file).to_pylist()
        else:
            rows += map(json.loads, file.read_text().splitlines())
    return rows


@pytest.fixture(scope="module")
def uninterrupted(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("uninterrupted")
    code, last, errors = finish(start(texts, output))
    assert code == 0, errors
    assert last == f"{2 * ROWS} rows in {BLOCKS} blocks; 0 blocks were there; errors: none"
    return output


def test_every_row_has_its_entities_and_keeps_its_columns(uninterrupted: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert len(outputs(uninterrupted)) == BLOCKS
    rows = rows_of(uninterrupted)
    assert [row["id"] for row in rows] == [*range(ROWS)] * 2
    for row in rows:
        assert row["text"] == TEXTS[row["id"] % len(TEXTS)]
        assert bool(row["entities"]) == bool(row["text"])
        assert all(row["text"][one["start"] : one["end"]] == one["text"] for one in row["entities"])
    schemas = {pq.read_schema(file) for file in outputs(uninterrupted) if file.suffix == ".parquet"}
    assert len(schemas) == 1
    assert schemas.pop().field("id").type == pa.int32()


def test_a_job_that_was_killed_continues_and_ends_with_the_same_output(
    texts: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    job = start(texts, output)
    wait_until(lambda: len(outputs(output)) >= 3 or job.poll() is not None, every_s=0.01)
    assert job.poll() is None, job.communicate()
    os.killpg(job.pid, signal.SIGKILL)
    job.communicate()
    kept = {file: file.stat().st_mtime_ns for file in outputs(output)}
    assert 3 <= len(kept) < BLOCKS
    (output / ".lines-0.jsonl.0.unfinished").write_text('{"id": 0')
    code, last, errors = finish(start(texts, output))
    assert code == 0, errors
    sys.stdout.write(f"killed with {len(kept)} of {BLOCKS} blocks; then: {last}\n")
    (skipped,) = map(int, re.findall(r"(\d+) blocks were there", last))
    assert len(kept) <= skipped < BLOCKS, "an actor may outlive the kill by a block"
    assert all(file.stat().st_mtime_ns == written for file, written in kept.items())
    assert sorted(file.name for file in output.iterdir()) == sorted(file.name for file in uninterrupted.iterdir())
    for row, expected in zip(rows_of(output), rows_of(uninterrupted), strict=True):
        scores, wanted = ([one.pop("score") for one in each["entities"]] for each in (row, expected))
        assert scores == pytest.approx(wanted, abs=1e-5)
        assert row == expected


def test_files_of_other_formats_are_said_and_are_code_2(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.txt", ".c.jsonl"):
        (tmp_path / name).write_text('{"text": "Oslo"}\n')
    job = start(tmp_path, tmp_path.with_name("output"))
    code, last, errors = finish(job)
    assert (code, last) == (2, "1 rows in 1 blocks; 0 blocks were there; errors: none"), errors
    assert errors == "gliner-bento: left out: 1 hidden, 1 .txt; readable: .jsonl, .ndjson, .parquet"


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ('{"body": "x"}', [], "no column 'text'; there are body"),
        ('{"text": "x", "error": 1}', [], "a column of the output is in the input: error"),
        ("{", [], "bad.jsonl: line 1: "),
        ('{"text": "x"}', ["--labels", "person,city"], "the folder has a job with other inputs, labels"),
    ],
)
def test_what_cannot_start_ends_with_one_line(
    uninterrupted: Path, tmp_path: Path, line: str, options: list[str], message: str
) -> None:
    inputs = tmp_path / "bad.jsonl"
    inputs.write_text(line + "\n")
    output = uninterrupted if options else tmp_path / "output"
    code, _, error = finish(start(inputs, output, *options))
    assert code == 1
    assert error.startswith("gliner-bento: ")
    assert message in error


def test_a_model_that_does_not_load_is_one_line(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gliner_config.json").write_text("{}")
    monkeypatch.setenv("GLINER_MODEL", str(tmp_path))
    code, _, error = finish(start(texts, tmp_path / "output"))
    assert code == 1
    assert error.startswith(f"gliner-bento: the job ended after 0 of {BLOCKS} blocks: ")
    assert "gliner_config.json" in error or "model" in error
