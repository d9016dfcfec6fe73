"""Waits for a call, and leaves none running behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def until_ended(call: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Wait until `call` has ended. After `timeout_s`, or if the caller is cancelled, cancels `call`, and still returns
    or raises only when it has ended, even if the caller is cancelled again: a call may be a step of a generator, which
    cannot be closed while the step runs. `asyncio.wait_for` of Python 3.11 does not wait a second time."""
    cancelled: asyncio.CancelledError | None = None
    try:
        await asyncio.wait([call], timeout=timeout_s)
    except asyncio.CancelledError as error:
        cancelled = error
    call.cancel()
    while not call.done():
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        if not call.cancelled():
            call.exception()  # else asyncio logs that nobody has retrieved it
        raise cancelled


async def within(work: Awaitable[T], timeout_s: float | None) -> T:
    """The result of `work`. Raises `asyncio.TimeoutError` if it takes longer than `timeout_s`; None: no limit."""
    call = asyncio.ensure_future(work)
    await until_ended(call, timeout_s)
    if call.cancelled():
        raise asyncio.TimeoutError
    return call.result()
