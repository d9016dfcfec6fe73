"""The gateway's side of the hop to the runner: the contract, the deadline, and the retry that keep-alive races need."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import aiohttp

from gliner_bento.errors import DeadlineExceeded, GLiNERBentoError, InternalError, NotReady
from gliner_bento.types import RunnerItem, RunnerOutcome

logger = logging.getLogger("gliner_bento.gateway")
T = TypeVar("T")

_UNREACHABLE = "the model's process cannot be reached; try again"
_CONTROL_S = 5.0
_GRACE_S = 0.5
"""What the runner gets beyond a deadline, so that it is the one to tell which item was late."""

_DROPPED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError)


class Runner(Protocol):
    """What the gateway needs of the runner service. Errors of single items come back as data."""

    async def extract(
        self, items: list[RunnerItem], request_id: str, timeout_ms: float, priority: int
    ) -> list[RunnerOutcome]:
        """One outcome per item, in order."""

    async def abort(self, request_id: str) -> bool:
        """True if a waiting or running request had this id."""

    async def describe(self) -> dict[str, Any]:
        """The model's `ModelInfo`, as data."""


class Hop:
    """Calls the runner, for as long as there is time.

    A call whose connection was dropped is repeated once: a server may close an idle kept-alive connection at the moment
    a request is written to it. Extraction has no side effects, so asking again is safe, whether or not the first one
    arrived.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def extract(
        self, items: list[RunnerItem], *, request_id: str, timeout_ms: float, priority: int
    ) -> list[RunnerOutcome]:
        """As `Runner.extract`; raises `DeadlineExceeded` if the runner itself does not."""
        deadline_s = time.monotonic() + timeout_ms / 1000

        def ask() -> Awaitable[list[RunnerOutcome]]:
            left_ms = max(0.0, deadline_s - time.monotonic()) * 1000
            return self._runner.extract(items=items, request_id=request_id, timeout_ms=left_ms, priority=priority)

        late = DeadlineExceeded("the deadline passed before the model's process answered")
        return await self._call(ask, timeout_ms / 1000 + _GRACE_S, late)

    async def abort(self, request_id: str) -> bool:
        """As `Runner.abort`."""
        return await self._call(lambda: self._runner.abort(request_id=request_id), _CONTROL_S, NotReady(_UNREACHABLE))

    async def describe(self) -> dict[str, Any]:
        """As `Runner.describe`."""
        return await self._call(self._runner.describe, _CONTROL_S, NotReady(_UNREACHABLE))

    async def _call(self, ask: Callable[[], Awaitable[T]], timeout_s: float, late: GLiNERBentoError) -> T:
        try:
            return await asyncio.wait_for(_insist(ask), timeout_s)
        except GLiNERBentoError:
            raise
        except asyncio.TimeoutError:
            raise late from None
        except _DROPPED as dropped:
            raise NotReady(_UNREACHABLE) from dropped
        except Exception as fault:
            logger.exception("a call to the runner failed")
            raise InternalError() from fault


async def _insist(ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await ask()
    except _DROPPED as dropped:
        logger.warning("the runner's connection was dropped (%r); asking once more", dropped)
        return await ask()
