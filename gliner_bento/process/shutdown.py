"""Ends a serving process within `shutdown_timeout_s` of SIGTERM or Ctrl+C.

    signal ──▶ running requests finish ──▶ unfinished requests fail ──▶ the process ends
               until none is left, or      _ANSWER_S before the end,
               the time is over            so that clients get an answer

The HTTP server's own handler (uvicorn's) stops accepting connections, closes idle ones, and waits for the others
without a limit. Knows nothing of models and HTTP.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from gliner_bento.process.exits import write_line

_ANSWER_S = 2.0
_ANSWERED = 0.75  # share of these seconds for the answers; in the rest, the process ends itself
_POLL_S = 0.1


class Shutdown:
    """The end of this process. Call `install` after the HTTP server has installed its own handlers.

    timeout_s: from the signal to the end. begin: called at the signal. needed: whether other processes still send
    requests; while they do, the HTTP server continues. fail: fails the requests that still run. ending: called before
    the process is ended by force.
    """

    def __init__(
        self,
        timeout_s: float,
        *,
        begin: Callable[[], object] = lambda: None,
        needed: Callable[[], bool] = lambda: False,
        fail: Callable[[], object] = lambda: None,
        ending: Callable[[], object] = lambda: None,
    ) -> None:
        self._timeout_s = timeout_s
        self._answer_s = min(_ANSWER_S, timeout_s / 4)
        self._begin, self._needed, self._fail, self._ending = begin, needed, fail, ending
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._begun = False

    def install(self) -> None:
        """Take over the signals that the HTTP server handles. Does nothing if it handles none."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler:
                self._handlers[number] = handler
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._begun:
            if number == signal.SIGINT:  # Ctrl+C twice: without waiting
                self._handlers[number](number, frame)
            return
        self._begun = True
        self._begin()
        _call_later(self._timeout_s - self._answer_s, self._end_with_force)
        if self._needed():
            _call_later(0.0, partial(self._wait_until_unneeded, number))
        else:
            self._handlers[number](number, frame)

    def _wait_until_unneeded(self, number: int) -> None:
        while self._needed():
            time.sleep(_POLL_S)
        self._handlers[number](number, None)

    def _end_with_force(self) -> None:
        _call_later(0.0, self._fail)  # in another thread: the process ends even if this hangs
        time.sleep(_ANSWERED * self._answer_s)
        write_line(f"requests still run {self._timeout_s:g} s after the signal (shutdown_timeout_s); the process ends")
        self._ending()
        os._exit(0)


def _call_later(after_s: float, action: Callable[[], object]) -> None:
    timer = threading.Timer(after_s, action)
    timer.daemon = True
    timer.start()
