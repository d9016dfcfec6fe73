"""Partial results of a chunked request on their way from the scheduler's threads to a reader in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from typing import Any

_MAX_UNREAD = 32
"""Processing pauses while the results of at least this number of `put` calls are unread (backpressure)."""


class PartialResults:
    """A scheduler's `Sink`. Made and iterated over once, in the event loop; `put` and `end` are called by threads."""

    def __init__(self, resume: Callable[[], None]) -> None:
        """resume: called when the sink is no longer full."""
        self._resume = resume
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[Sequence[Any] | None] = asyncio.Queue()
        self._put_calls = 0  # written only by the scheduler
        self._read_calls = 0  # written only by the event loop

    @property
    def full(self) -> bool:
        """Whether processing should pause."""
        return self._put_calls - self._read_calls >= _MAX_UNREAD

    def put(self, parts: Sequence[Any]) -> None:
        """Send the next parts to the reader."""
        self._put_calls += 1
        self._loop.call_soon_threadsafe(self._parts.put_nowait, list(parts))

    def end(self, _: Future[Any]) -> None:
        """End the reader's iteration."""
        self._loop.call_soon_threadsafe(self._parts.put_nowait, None)

    async def __aiter__(self) -> AsyncIterator[Sequence[Any]]:
        while (parts := await self._parts.get()) is not None:
            yield parts
            self._read_calls += 1
            if not self.full:
                self._resume()
