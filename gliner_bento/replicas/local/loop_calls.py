"""Calls from the scheduler's threads into the event loop: what ends together, as a batch does, wakes the loop once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class LoopCalls:
    """Calls functions in an event loop, in order. `add` is called by any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def add(self, call: Callable[..., None], *args: Any) -> None:
        """Call `call(*args)` soon. No effect if the loop is closed."""
        with self._lock:
            self._calls.append((call, args))
            if len(self._calls) > 1:
                return  # the loop will run them together
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for call, args in calls:
            call(*args)
