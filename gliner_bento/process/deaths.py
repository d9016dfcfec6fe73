"""Makes `bentoml serve` restart a process as soon as it has died, and end whenever a signal asks it to. Otherwise, its
supervisor (circus) looks for dead processes every 10 s, forgets a signal that arrives meanwhile or at a restart, and
restarts all processes when its terminal is closed (SIGHUP), which also ends it here."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

_RETRY_S = 0.1


def notice_deaths() -> None:
    """Make circus, BentoML's supervisor, check for dead processes whenever the system reports one (SIGCHLD).

    Called in the main thread of `bentoml serve`, before circus runs its event loop there.
    """
    from circus.sighandler import SysHandler  # noqa: PLC0415
    from tornado.ioloop import IOLoop  # noqa: PLC0415  # circus runs tornado's event loop

    loop = IOLoop.current().asyncio_loop  # type: ignore[attr-defined]
    checks: set[asyncio.Task[None]] = set()

    def check() -> None:
        task = loop.create_task(_restart_dead())
        checks.add(task)
        task.add_done_callback(checks.discard)

    loop.add_signal_handler(signal.SIGCHLD, check)
    SysHandler.quit = _quit
    # circus would restart all processes, during which nothing is served. `nohup` ignores the signal.
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    SysHandler.handle_hup = (lambda _: None) if is_ignored else _quit


async def _restart_dead() -> None:
    from circus.exc import ConflictError  # noqa: PLC0415

    while (arbiter := _arbiter()) is not None:
        try:
            await arbiter.manage_watchers()
            return
        except ConflictError:  # circus is already starting, stopping or checking processes
            await asyncio.sleep(_RETRY_S)


def _quit(handler: Any) -> None:
    """Replaces `SysHandler.quit`, which circus calls on a signal: ends the server as soon as circus can."""
    from circus.client import make_json  # noqa: PLC0415

    controller = handler.controller

    async def quit_when_free() -> None:
        arbiter = controller.arbiter
        while arbiter._restarting or arbiter._exclusive_running_command is not None:
            if arbiter._exclusive_running_command == "arbiter_stop":
                return  # an earlier signal is ending the server
            await asyncio.sleep(_RETRY_S)
        controller.dispatch((None, make_json("quit")))

    controller.loop.add_callback_from_signal(quit_when_free)


def _arbiter() -> Any:
    """Circus's arbiter, from circus's handler of SIGTERM; None if circus does not run in this process."""
    handler = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(getattr(handler, "controller", None), "arbiter", None)
