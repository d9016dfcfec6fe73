"""The gateway's side of the hop to the runner: the contract, and the retry that keep-alive races need."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import aiohttp

from gliner_bento.errors import GLiNERBentoError, InternalError, NotReady
from gliner_bento.types import RunnerItem, RunnerOutcome

logger = logging.getLogger("gliner_bento.gateway")
T = TypeVar("T")

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
    """Calls the runner; a call whose connection was dropped is repeated once.

    A server may close an idle kept-alive connection at the moment a request is written to it. Extraction has no side
    effects, so asking again is safe, whether or not the first one arrived.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def extract(
        self, items: list[RunnerItem], *, request_id: str, timeout_ms: float, priority: int
    ) -> list[RunnerOutcome]:
        """As `Runner.extract`."""
        return await self._call(
            lambda: self._runner.extract(items=items, request_id=request_id, timeout_ms=timeout_ms, priority=priority)
        )

    async def abort(self, request_id: str) -> bool:
        """As `Runner.abort`."""
        return await self._call(lambda: self._runner.abort(request_id=request_id))

    async def describe(self) -> dict[str, Any]:
        """As `Runner.describe`."""
        return await self._call(self._runner.describe)

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            try:
                return await call()
            except _DROPPED as dropped:
                logger.warning("the runner's connection was dropped (%r); asking once more", dropped)
                return await call()
        except GLiNERBentoError:
            raise
        except _DROPPED as dropped:
            raise NotReady("the model's process cannot be reached; try again") from dropped
        except Exception as fault:
            logger.exception("a call to the runner failed")
            raise InternalError() from fault
