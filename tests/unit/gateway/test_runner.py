"""The hop: one retry for a dropped connection, and no foreign exception beyond it."""

import asyncio

import aiohttp
import pytest

from gliner_bento.errors import DeadlineExceeded, InternalError, NotReady
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

    extract = abort = describe = wait


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
