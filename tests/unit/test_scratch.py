"""Temporary folders of processes that were killed are deleted, those that are in use are not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gliner_bento.storage.scratch import scratch_folder, use_scratch_folder

HOLDER = """
import sys
from pathlib import Path
from gliner_bento.storage.scratch import scratch_folder, use_scratch_folder
if len(sys.argv) > 1:
    used = use_scratch_folder(Path(sys.argv[1]))
    print("used", flush=True)
    sys.stdin.read()
else:
    with scratch_folder() as folder:
        (folder / "file").touch()
        print(folder, flush=True)
        sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@contextmanager
def holder(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", HOLDER, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_the_folder_of_a_process_that_was_killed_is_deleted_by_the_next_one(temporary: Path):
    with holder() as (process, left), holder() as (_, used):
        with scratch_folder() as own:
            assert {own, Path(left), Path(used)} == set(temporary.iterdir())
        process.kill()
        process.wait()
        assert (Path(left) / "file").exists()
        with scratch_folder() as own:
            assert {own, Path(used)} == set(temporary.iterdir())


def test_a_folder_is_kept_while_another_process_uses_it(temporary: Path):
    with holder() as (owner, folder), holder(folder) as (user, answer):
        assert answer == "used"
        owner.kill()
        owner.wait()
        with scratch_folder():
            assert Path(folder).exists()
        user.kill()
        user.wait()
        with scratch_folder() as own:
            assert [*temporary.iterdir()] == [own]


def test_what_is_not_ours_or_has_no_owner_is_kept(temporary: Path):
    for name in ("gliner-bento-other", "other"):
        (temporary / name).mkdir()
    (temporary / "other" / ".owner").touch()
    with scratch_folder():
        pass
    assert {path.name for path in temporary.iterdir()} == {"gliner-bento-other", "other"}
    assert use_scratch_folder(temporary / "none") is None
