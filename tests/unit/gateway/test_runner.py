"""The hop: one retry for a dropped connection, and no foreign exception beyond it."""

import asyncio

import aiohttp
import pytest

from gliner_bento.errors import DeadlineExceeded, InternalError, NotReady, StorageFull
from gliner_bento.gateway import runner as hop
from gliner_bento.gateway.runner import Hop


class FlakyRunner:
    """Fails `failures` times with `error`, then answers."""

    def __init__(self, error: Exception, failures: int) -> None:
        self.error = error
        self.failures = failures
        self.calls = 0

    async def abort(self, request_id):
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return True


def test_a_dropped_connection_is_asked_again():
    runner = FlakyRunner(aiohttp.ServerDisconnectedError(), failures=1)
    assert asyncio.run(Hop(runner).abort("r")) is True
    assert runner.calls == 2


def test_a_runner_that_stays_away_is_not_ready():
    runner = FlakyRunner(ConnectionResetError(), failures=5)
    with pytest.raises(NotReady):
        asyncio.run(Hop(runner).abort("r"))
    assert runner.calls == 2


def test_any_other_fault_is_an_internal_error_and_is_not_repeated(caplog):
    runner = FlakyRunner(ValueError("a secret"), failures=1)
    with pytest.raises(InternalError) as caught:
        asyncio.run(Hop(runner).abort("r"))
    assert runner.calls == 1
    assert "a secret" not in caught.value.message
    assert "a secret" in caplog.text


class StuckRunner:
    """Answers nothing, ever."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def wait(self, **_):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    extract = abort = describe = delete_adapter = wait


def test_a_stuck_runner_costs_a_request_its_deadline_and_no_more(monkeypatch):
    monkeypatch.setattr(hop, "_GRACE_S", 0.01)
    runner = StuckRunner()
    with pytest.raises(DeadlineExceeded):
        asyncio.run(Hop(runner).extract([], request_id="r", timeout_ms=10, priority=0))
    assert runner.cancelled == 1, "the runner's side has to learn that nobody waits any more"


def test_a_stuck_runner_is_not_ready(monkeypatch):
    monkeypatch.setattr(hop, "_CONTROL_S", 0.01)
    with pytest.raises(NotReady):
        asyncio.run(Hop(StuckRunner()).describe())


def test_a_repeated_call_does_not_get_its_time_anew():
    class DroppingRunner:
        def __init__(self):
            self.timeouts_ms = []

        async def extract(self, items, request_id, timeout_ms, priority):
            self.timeouts_ms.append(timeout_ms)
            if len(self.timeouts_ms) == 1:
                await asyncio.sleep(0.02)
                raise ConnectionResetError
            return []

    runner = DroppingRunner()
    asyncio.run(Hop(runner).extract([], request_id="r", timeout_ms=1000, priority=0))
    first, second = runner.timeouts_ms
    assert second < first - 10


def test_a_piece_of_an_archive_whose_answer_was_lost_is_sent_again_in_its_place():
    class LosingRunner:
        def __init__(self):
            self.content, self.calls = bytearray(), 0

        async def upload(self, upload_id, offset, data):
            self.calls += 1
            self.content[offset : offset + len(data)] = data
            if self.calls == 2:
                raise ConnectionResetError
            return {"result": None}

    async def pieces():
        for piece in (b"abc", b"def", b"gh"):
            yield piece

    runner = LosingRunner()
    assert asyncio.run(Hop(runner).upload(pieces()))
    assert (bytes(runner.content), runner.calls) == (b"abcdefgh", 4)


def test_an_archive_that_the_runner_refuses_is_sent_no_further():
    class FullRunner:
        calls = 0

        async def upload(self, upload_id, offset, data):
            self.calls += 1
            return {"error": StorageFull("no room").detail().model_dump()}

    async def pieces():
        yield b"abc"
        yield b"def"

    runner = FullRunner()
    with pytest.raises(StorageFull, match="no room"):
        asyncio.run(Hop(runner).upload(pieces()))
    assert runner.calls == 1


def test_a_stuck_deletion_ends_by_the_deadline(monkeypatch):
    monkeypatch.setattr(hop, "_GRACE_S", 0.01)
    with pytest.raises(DeadlineExceeded):
        asyncio.run(Hop(StuckRunner()).delete_adapter("a", timeout_ms=10))
