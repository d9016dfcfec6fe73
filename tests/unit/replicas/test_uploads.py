"""Archives while they arrive: put together from pieces, kept apart, never kept for ever."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gliner_bento.errors import NotReady, StorageFull
from gliner_bento.replicas.uploads import ABANDONED_S, Uploads


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path / "uploads")


def test_pieces_may_arrive_at_different_processes(uploads: Uploads, tmp_path: Path):
    other = Uploads(tmp_path / "uploads")
    for process, offset, data in ((uploads, 0, b"ab"), (other, 2, b"cd"), (uploads, 4, b"ef")):
        process.write("u", offset, data)
    assert other.path_of("u").read_bytes() == b"abcdef"


def test_a_repeated_piece_changes_nothing(uploads: Uploads):
    for offset, data in ((0, b"abc"), (0, b"abc"), (3, b"def"), (3, b"def")):
        uploads.write("u", offset, data)
    assert uploads.path_of("u").read_bytes() == b"abcdef"


def test_a_piece_without_the_beginning_is_refused(uploads: Uploads):
    with pytest.raises(NotReady, match="send it again"):
        uploads.write("u", 3, b"def")


def test_an_unknown_upload_is_lost(uploads: Uploads):
    with pytest.raises(NotReady, match="send it again"):
        uploads.path_of("u")


def test_a_discarded_upload_is_gone_and_discarding_is_idempotent(uploads: Uploads):
    uploads.write("u", 0, b"abc")
    for _ in range(2):
        uploads.discard("u")
    with pytest.raises(NotReady):
        uploads.path_of("u")
    with pytest.raises(NotReady):
        uploads.write("u", 3, b"def")


def test_an_abandoned_upload_is_deleted_when_the_next_begins(uploads: Uploads):
    uploads.write("abandoned", 0, b"abc")
    uploads.write("arriving", 0, b"abc")
    abandoned = uploads.path_of("abandoned")
    long_ago_s = abandoned.stat().st_mtime - ABANDONED_S - 1
    os.utime(abandoned, (long_ago_s, long_ago_s))
    uploads.write("new", 0, b"abc")
    assert not abandoned.exists()
    assert uploads.path_of("arriving").read_bytes() == b"abc"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_storage_full(uploads: Uploads, monkeypatch: pytest.MonkeyPatch, code: int):
    def touch(_: Path) -> None:
        raise OSError(code, "no room")

    monkeypatch.setattr(Path, "touch", touch)
    with pytest.raises(StorageFull):
        uploads.write("u", 0, b"abc")


def test_another_fault_of_the_disk_is_a_fault(uploads: Uploads, monkeypatch: pytest.MonkeyPatch):
    def touch(_: Path) -> None:
        raise PermissionError("not ours")

    monkeypatch.setattr(Path, "touch", touch)
    with pytest.raises(PermissionError):
        uploads.write("u", 0, b"abc")
