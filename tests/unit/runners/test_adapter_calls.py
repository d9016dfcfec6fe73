"""The runner's calls about adapters: in threads, errors as data, archives piece by piece."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from gliner_bento.adapters.base import AdapterInfo, CacheStatus
from gliner_bento.errors import AdapterInvalid, NotReady
from runners.adapter_calls import CHANGES_AT_ONCE, FORGOTTEN_S, AdapterCalls, Uploads

INFO = AdapterInfo(
    adapter_id="a",
    source="upload",
    rank=4,
    targets=("query",),
    size_bytes=3,
    tier="cpu",
    pinned=False,
    uses=0,
    last_use_s=None,
)


class OneAdapter:
    """Holds one adapter; `go_on` is clear while a change is to hang."""

    def __init__(self) -> None:
        self.archives: list[Path | None] = []
        self.contents: list[bytes] = []
        self.timeouts_s: list[float] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def infos(self):
        return [INFO]

    def info(self, adapter_id):
        return INFO

    def put(self, adapter_id, *, archive=None, source=None, revision=None, pinned=None, preload=True):
        self.archives.append(archive)
        self.contents.append(archive.read_bytes() if archive else b"")
        if self.contents[-1] == b"bad":
            raise AdapterInvalid("adapter: this is none", param="adapter")
        return INFO, True

    def remove(self, adapter_id, timeout_s):
        self.timeouts_s.append(timeout_s)
        self.go_on.wait(30)

    def status(self):
        return CacheStatus(("a",), ("a",), (None,), "cache", 9)


@pytest.fixture
def adapters():
    adapters = OneAdapter()
    yield adapters
    adapters.go_on.set()


@pytest.fixture
def calls(adapters, tmp_path):
    calls = AdapterCalls(adapters, tmp_path)
    yield calls
    calls.close()


@pytest.fixture
def uploads(tmp_path):
    return Uploads(tmp_path / "uploads")


def test_pieces_may_come_to_different_processes(uploads, tmp_path):
    other = Uploads(tmp_path / "uploads")
    for process, offset, data in ((uploads, 0, b"ab"), (other, 2, b"cd"), (uploads, 4, b"ef")):
        process.write("u", offset, data)
    assert other.path_of("u").read_bytes() == b"abcdef"


def test_what_is_told_travels_as_data(calls):
    told = asyncio.run(calls.info("a"))["result"]
    assert (told["adapter_id"], told["targets"]) == ("a", ("query",))
    assert asyncio.run(calls.infos())["result"] == [told]
    assert asyncio.run(calls.status())["result"]["device_slots"] == (None,)


def test_an_archive_is_put_together_from_its_pieces_and_gone_afterwards(calls, adapters):
    async def scene():
        for offset, data in [(0, b"abc"), (3, b"def"), (3, b"def")]:
            assert await calls.upload("u", offset, data) == {"result": None}
        first = await calls.put("a", "u", source=None)
        return first, await calls.put("a", "u", source=None)

    first, again = asyncio.run(scene())
    assert (first["result"]["created"], first["result"]["adapter"]["adapter_id"]) == (True, "a")
    assert adapters.contents == [b"abcdef"]
    assert not adapters.archives[0].exists()
    assert again["error"]["code"] == "not_ready"


def test_an_archive_that_is_refused_is_gone_too(calls, adapters):
    async def scene():
        await calls.upload("u", 0, b"bad")
        return await calls.put("a", "u")

    assert (
        asyncio.run(scene())["error"] == AdapterInvalid("adapter: this is none", param="adapter").detail().model_dump()
    )
    assert not adapters.archives[0].exists()


def test_changes_that_hang_hold_up_no_question_and_no_upload(calls, adapters):
    adapters.go_on.clear()

    async def scene():
        hanging = [asyncio.create_task(calls.remove("a", 7.0)) for _ in range(CHANGES_AT_ONCE + 1)]
        answers = [await calls.infos(), await calls.info("a"), await calls.status(), await calls.upload("u", 0, b"x")]
        assert not any(task.done() for task in hanging)
        adapters.go_on.set()
        return answers, await asyncio.gather(*hanging)

    answers, removed = asyncio.run(scene())
    assert all("result" in answer for answer in answers)
    assert removed == [{"result": None}] * (CHANGES_AT_ONCE + 1)
    assert adapters.timeouts_s == [7.0] * (CHANGES_AT_ONCE + 1)


def test_without_adapters_every_call_says_so(tmp_path):
    calls = AdapterCalls(None, tmp_path)

    async def scene():
        return await asyncio.gather(
            calls.infos(),
            calls.info("a"),
            calls.status(),
            calls.upload("u", 0, b""),
            calls.put("a", None),
            calls.remove("a", 1.0),
        )

    try:
        assert {answer["error"]["code"] for answer in asyncio.run(scene())} == {"adapter_not_found"}
    finally:
        calls.close()


def test_a_piece_whose_beginning_is_not_here_is_refused(uploads):
    with pytest.raises(NotReady, match="send it again"):
        uploads.write("u", 3, b"def")


def test_an_upload_that_nobody_finishes_is_forgotten(uploads):
    uploads.write("left", 0, b"abc")
    uploads.write("under way", 0, b"abc")
    left = uploads.path_of("left")
    long_ago = left.stat().st_mtime - FORGOTTEN_S - 1
    os.utime(left, (long_ago, long_ago))
    uploads.write("new", 0, b"abc")
    assert not left.exists()
    assert uploads.path_of("under way").read_bytes() == b"abc"
