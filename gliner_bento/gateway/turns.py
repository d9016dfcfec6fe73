"""Spreads work over the iterations of the event loop, so that one does not delay all connections.

Batches end with results for dozens of requests at a time, and as many may then be admitted. Done in one iteration, that
stopped the loop for up to 150 ms, refusals and probes included.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """One piece of work per iteration, in order."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[Callable[[], object]] = deque()
        self._taken = False

    def take(self, work: Callable[[], object]) -> None:
        """Do `work` now, or in a later iteration if this one has its work."""
        if not self.free:
            self._waiting.append(work)
            return
        self._taken = True
        asyncio.get_running_loop().call_soon(self._next)
        work()

    @property
    def free(self) -> bool:
        """Whether this iteration has no work yet."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the other one has ended
            self._loop, self._taken = loop, False
            self._waiting.clear()
        return not self._taken

    async def wait(self) -> None:
        """Return in a turn of the caller's own."""
        turn = asyncio.get_running_loop().create_future()
        self.take(lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _next(self) -> None:
        self._taken = False
        if self._waiting:
            self.take(self._waiting.popleft())
