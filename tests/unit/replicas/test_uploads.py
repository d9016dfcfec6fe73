"""Archives while they arrive: written whole, kept apart, and never left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from serving import run

from gliner_bento.errors import StorageFull
from gliner_bento.replicas.uploads import ABANDONED_S, PIECE_BYTES, Uploads, in_pieces


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "uploads"


async def arriving(*pieces: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if error:
        raise error


def test_an_archive_is_written_as_it_arrives(folder: Path):
    paths = [run(lambda: Uploads(folder).receive(arriving(b"a" * PIECE_BYTES, b"b", b"", b"c"))) for _ in range(2)]
    assert [path.read_bytes() for path in paths if path] == [b"a" * PIECE_BYTES + b"bc"] * 2
    assert sorted(folder.iterdir()) == sorted(path for path in paths if path)


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


def test_a_file_that_a_killed_process_left_is_deleted_when_the_next_begins(folder: Path):
    receive = Uploads(folder).receive
    abandoned = run(lambda: receive(arriving(b"abc")))
    waiting = run(lambda: receive(arriving(b"abc")))
    assert abandoned
    assert waiting
    long_ago_s = abandoned.stat().st_mtime - ABANDONED_S - 1
    os.utime(abandoned, (long_ago_s, long_ago_s))
    run(lambda: receive(arriving(b"abc")))
    assert not abandoned.exists()
    assert waiting.read_bytes() == b"abc"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_storage_full_and_the_room_is_given_back(folder: Path, monkeypatch, code: int):
    written = iter([None, OSError(code, "no room")])
    write = Path.open

    def open_path(path: Path, mode: str):
        if failure := next(written):
            raise failure
        return write(path, mode)

    monkeypatch.setattr(Path, "open", open_path)
    with pytest.raises(StorageFull):
        run(lambda: Uploads(folder).receive(arriving(b"a" * 2 * PIECE_BYTES)))
    assert list(folder.iterdir()) == []


def test_another_fault_of_the_disk_is_a_fault(tmp_path: Path):
    (tmp_path / "uploads").touch()
    with pytest.raises(FileExistsError):
        run(lambda: Uploads(tmp_path / "uploads").receive(arriving(b"abc")))
