"""Runs work on texts in a thread, so that the event loop goes on, or immediately if it is short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

Done = TypeVar("Done")

_MAX_SIZE_HERE = 4_000
"""Characters or bytes of which the work takes less time than another thread may keep Python's lock: 5 ms."""


async def offloaded(size: int, work: Callable[[], Done]) -> Done:
    """The result of work that takes time with the size of its texts. To change threads takes 0.1 ms of CPU."""
    return work() if size <= _MAX_SIZE_HERE else await asyncio.to_thread(work)
