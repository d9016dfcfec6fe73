"""Archives while they arrive: written whole, kept apart, and never left behind."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

import pytest
from replica_calls import PATIENCE_S, arriving, run, until

from gliner_bento.errors import StorageFull, StorageUnavailable
from gliner_bento.replicas.local.uploads import PIECE_BYTES, Upload, Uploads, in_pieces
from gliner_bento.settings.configuration import PROJECT_ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "uploads"


def test_an_archive_is_written_as_it_arrives(folder: Path):
    uploads = [run(lambda: Uploads(folder).receive(arriving(b"a" * PIECE_BYTES, b"b", b"", b"c"))) for _ in range(2)]
    paths = [upload.path for upload in uploads if upload]
    assert [path.read_bytes() for path in paths] == [b"a" * PIECE_BYTES + b"bc"] * 2
    assert sorted(folder.iterdir()) == sorted(paths)
    for upload in uploads:
        assert upload
        upload.delete()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("pieces", [(), (b"", b"")])
def test_an_empty_archive_is_none(folder: Path, pieces: tuple[bytes, ...]):
    assert run(lambda: Uploads(folder).receive(arriving(*pieces))) is None
    assert not folder.exists()


def test_it_is_written_in_pieces_of_one_size_whatever_arrives():
    async def sizes() -> list[int]:
        whole = arriving(b"a" * 10, b"b" * 3 * PIECE_BYTES, b"c")
        return [len(piece) async for piece in in_pieces(whole)]

    assert run(sizes) == [PIECE_BYTES] * 3 + [11]


def test_an_archive_that_breaks_off_leaves_no_file(folder: Path):
    with pytest.raises(ZeroDivisionError):
        run(lambda: Uploads(folder).receive(arriving(b"a" * PIECE_BYTES, error=ZeroDivisionError())))
    assert list(folder.iterdir()) == []


def test_an_archive_that_is_cancelled_while_its_file_is_made_leaves_none(folder: Path, monkeypatch):
    made, proceed = threading.Event(), threading.Event()
    begin = Uploads._create

    def slow(uploads: Uploads) -> Upload:
        upload = begin(uploads)
        made.set()
        assert proceed.wait(PATIENCE_S)
        return upload

    monkeypatch.setattr(Uploads, "_create", slow)

    async def scene() -> None:
        receiving = asyncio.ensure_future(Uploads(folder).receive(arriving(b"one")))
        await until(made.is_set)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        assert list(folder.iterdir())
        proceed.set()
        await until(lambda: not list(folder.iterdir()))

    run(scene)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from gliner_bento.replicas.local.uploads import PIECE_BYTES, Uploads

async def archive():
    yield b"a" * PIECE_BYTES
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(Uploads(Path(sys.argv[1])).receive(archive()))
"""


@pytest.mark.parametrize("then", ["the server starts again", "another upload begins"])
def test_the_file_of_a_killed_process_is_deleted_at_once(folder: Path, then: str):
    other = Uploads(folder)
    waiting = run(lambda: other.receive(arriving(b"abc")))
    assert waiting
    for name in ("model.safetensors", "upload-notes.txt"):
        (folder / name).write_text("of the operator")
    assert subprocess.run([sys.executable, "-c", KILLED, folder], cwd=PROJECT_ROOT, check=False).returncode == -9
    assert len(list(folder.iterdir())) == 4
    if then == "the server starts again":
        Uploads(folder)
    else:
        run(lambda: other.receive(arriving(b"x")))
    assert waiting.path.read_bytes() == b"abc"
    assert PIECE_BYTES not in [path.stat().st_size for path in folder.iterdir()]
    assert {(folder / name).read_text() for name in ("model.safetensors", "upload-notes.txt")} == {"of the operator"}


class Disk:
    """A file whose second piece fails."""

    def __init__(self, file: IO[bytes], code: int) -> None:
        self.name, self.close, self.fileno = file.name, file.close, file.fileno
        self._outcomes = iter([None, OSError(code, "no room")])

    def write(self, data: bytes) -> int:
        if failure := next(self._outcomes):
            raise failure
        return len(data)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, StorageUnavailable),
        (errno.EIO, StorageUnavailable),
    ],
)
def test_a_fault_of_the_disk_is_reported_and_the_room_is_given_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
):
    temporary = tempfile.NamedTemporaryFile
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda **options: Disk(temporary(**options), code))
    with pytest.raises(kind):
        run(lambda: Uploads(folder).receive(arriving(b"a" * 2 * PIECE_BYTES)))
    assert list(folder.iterdir()) == []


def test_a_disk_that_must_not_be_written_to_is_reported():
    """Even root cannot create folders in /sys."""
    with pytest.raises(StorageUnavailable, match="cannot write to disk_cache_dir"):
        run(lambda: Uploads(Path("/sys/uploads-of-a-test")).receive(arriving(b"abc")))


def test_another_fault_of_the_disk_is_a_fault(tmp_path: Path):
    (tmp_path / "uploads").touch()
    with pytest.raises(FileExistsError):
        run(lambda: Uploads(tmp_path / "uploads").receive(arriving(b"abc")))
