"""Calls from the scheduler's threads into the event loop: what ends together, as a batch does, wakes the loop once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class LoopCalls:
    """Calls functions in an event loop, in order. `add` and `run_soon` are called by any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def add(self, call: Callable[..., None], *args: Any) -> Callable[[], None]:
        """Call `call(*args)` after the next `run_soon`, which is returned. To wake the loop may hand the interpreter's
        lock to it, so a thread does that last."""
        self._calls.append((call, args))
        return self.run_soon

    def run_soon(self) -> None:
        """Wake the loop, which makes the calls. No effect if it is closed."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        while self._calls:
            call, args = self._calls.popleft()
            call(*args)
