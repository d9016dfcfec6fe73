"""Spreads work over the iterations of the event loop, so that a long iteration does not delay all connections.

When a batch ends, dozens of requests get results, and as many new requests may be admitted. In one iteration, this work
blocked the loop, and with it refusals and probes, for up to 150 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque


class LoopPacer:
    """Lets at most one task continue per iteration of the event loop, in order."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    @property
    def free(self) -> bool:
        """Whether no `wait` has returned in this iteration yet."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the loop of earlier calls has ended
            self._loop, self._taken = loop, False
            self._waiting.clear()
        return not self._taken

    async def wait(self) -> None:
        """Wait for an iteration of the event loop in which no other `wait` has returned."""
        if self.free:
            self._take()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _take(self) -> None:
        self._taken = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._taken = False
        while self._waiting and not self._taken:
            turn = self._waiting.popleft()
            if not turn.done():  # else the waiting task was cancelled
                self._take()
                turn.set_result(None)
