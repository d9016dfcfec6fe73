"""The hop: one retry for a dropped connection, and no foreign exception beyond it."""

import asyncio

import aiohttp
import pytest

from gliner_bento.errors import InternalError, NotReady
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
