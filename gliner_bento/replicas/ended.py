"""Waits for a call, and leaves none running behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from typing_extensions import Self

from gliner_bento.http.disconnect import cancel, uncancelled

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


async def step_within(step: Awaitable[T], timeout_s: float | None) -> T:
    """The result of a generator's step. Raises `asyncio.TimeoutError` if it takes longer than `timeout_s`; None: no
    limit."""
    call = asyncio.ensure_future(step)
    await until_ended(call, timeout_s)
    if call.cancelled():
        raise asyncio.TimeoutError
    return call.result()


class Endable:
    """A context in which the current task awaits a call that others may end: `end` cancels the call, and the context
    raises the error that `error` makes. The call must have ended once it is cancelled; it takes no task of its own."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error
        self._task = asyncio.current_task()
        self._ended = False

    def end(self) -> None:
        """End the call. May be called twice."""
        if not self._ended and self._task:
            self._ended = True
            cancel(self._task)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Uncancelled also if the call has raised something else, or has returned: what the task awaits next goes on.
        if self._ended and uncancelled(self._task) and kind is asyncio.CancelledError:
            raise self._error() from None


async def within(call: Awaitable[T], timeout_s: float | None) -> T:
    """The result of a call, see `Endable`. Raises `asyncio.TimeoutError` if it takes longer than `timeout_s`; None: no
    limit."""
    if timeout_s is None:
        return await call
    with Endable(asyncio.TimeoutError) as endable:
        timer = asyncio.get_running_loop().call_later(timeout_s, endable.end)
        try:
            return await call
        finally:
            timer.cancel()
