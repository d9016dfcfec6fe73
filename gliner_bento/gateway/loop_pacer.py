"""Spreads work over the iterations of the event loop, so that a long iteration does not delay all connections.

When a batch ends, dozens of requests get results, and as many new requests may be admitted. In one iteration, this work
blocked the loop, and with it refusals and probes, for up to 150 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class LoopPacer:
    """Runs at most one callback per iteration of the event loop, in order."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[Callable[[], object]] = deque()
        self._taken = False

    def run(self, callback: Callable[[], object]) -> None:
        """Run `callback` now if this iteration has run none, else in a later iteration."""
        if not self.free:
            self._waiting.append(callback)
            return
        self._taken = True
        asyncio.get_running_loop().call_soon(self._next)
        callback()

    @property
    def free(self) -> bool:
        """Whether this iteration has run no callback yet."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the loop of earlier calls has ended
            self._loop, self._taken = loop, False
            self._waiting.clear()
        return not self._taken

    async def wait(self) -> None:
        """Wait for a free iteration of the event loop; at most one `wait` returns in each iteration."""
        called = asyncio.get_running_loop().create_future()
        self.run(lambda: None if called.done() else called.set_result(None))  # done: the waiting task was cancelled
        await called

    def _next(self) -> None:
        self._taken = False
        if self._waiting:
            self.run(self._waiting.popleft())
