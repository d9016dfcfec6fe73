"""Calls of replicas, and the event loop that tests make them in."""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from views import view

from gliner_bento.replicas.base import Call
from gliner_bento.scheduler.scheduler import SchedulerConfig
from gliner_bento.tasks.extraction import ExtractionItem as Item

T = TypeVar("T")

PATIENCE_S = 240.0  # a safety net: no test passes or fails by waiting, unless something hangs


def scheduler_config(**options: Any) -> SchedulerConfig:
    """The settings' defaults, but for small batches and `options`."""
    return view(SchedulerConfig, **{"max_batch_size": 1, "max_batch_tokens": 5} | options)


def item(text: str = "Ada met Charles", **options: Any) -> Item:
    return Item(text, {"name": "name"}, **options)


def call(request_id: str = "r", timeout_s: float = PATIENCE_S, priority: int = 0, **tenant: Any) -> Call:
    return Call(request_id, time.monotonic() + timeout_s, priority, **tenant)


async def arriving(*pieces: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    """An archive in pieces, which breaks off with `error`."""
    for piece in pieces:
        yield piece
    if error:
        raise error


def run(scene: Callable[[], Awaitable[T]]) -> T:
    """`asyncio.run`, but always in one loop: the connections of a replica belong to it."""
    try:
        return _loop.run_until_complete(asyncio.wait_for(scene(), PATIENCE_S))
    finally:
        if left := asyncio.all_tasks(_loop):
            for task in left:
                task.cancel()
            _loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


_loop = asyncio.new_event_loop()
atexit.register(_loop.close)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for a state that nothing reports."""
    latest_s = time.monotonic() + PATIENCE_S / 2
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        assert time.monotonic() < latest_s, "the condition never held"
        await asyncio.sleep(0.001)
