"""Makes `bentoml serve` start a process again as soon as it has died. BentoML itself looks for dead ones every 10 s."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

_AGAIN_S = 0.1


def notice_deaths() -> None:
    """Let circus, BentoML's supervisor, look for dead processes whenever the system reports one (SIGCHLD).

    For the main thread of `bentoml serve`, before circus runs its event loop there.
    """
    from tornado.ioloop import IOLoop  # noqa: PLC0415  # of BentoML: the loop that circus will run

    loop = IOLoop.current().asyncio_loop  # type: ignore[attr-defined]
    looking: set[asyncio.Task[None]] = set()

    def look() -> None:
        task = loop.create_task(_start_again())
        looking.add(task)
        task.add_done_callback(looking.discard)

    loop.add_signal_handler(signal.SIGCHLD, look)


async def _start_again() -> None:
    from circus.exc import ConflictError  # noqa: PLC0415

    while (arbiter := _arbiter()) is not None:
        try:
            await arbiter.manage_watchers()
            return
        except ConflictError:  # it starts, stops or manages processes now
            await asyncio.sleep(_AGAIN_S)


def _arbiter() -> Any:
    """Circus's arbiter, which handles SIGTERM; None in a program that is not supervised by circus."""
    handler = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(getattr(handler, "controller", None), "arbiter", None)
