"""Notices work that hangs: a stage of a batch, a preparation, making or merging passes.

Code of a model library cannot be interrupted, so the caller's `on_hang` has to end the process.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gliner_bento.scheduler.entry import Entry

logger = logging.getLogger(__name__)

_MAX_INTERVAL_S = 1.0


@dataclass(slots=True, eq=False)
class Work:
    """What a thread does for `entries`, as a context. since_s: its start, on the watchdog's own clock. running: the
    watchdog's work, by id, because the work of one thread may be nested."""

    doing: str
    entries: Sequence[Entry]
    thread: int
    since_s: float
    running: dict[int, Work]

    def __enter__(self) -> None:
        self.running[id(self)] = self

    def __exit__(self, *_: object) -> None:
        del self.running[id(self)]


class Watchdog:
    """Reports work that runs longer than `timeout_s`.

    The watchdog's clock stands still while the process does not run (stopped, suspended, or starved of CPU time): it
    advances by at most two intervals per check.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._interval_s = min(_MAX_INTERVAL_S, timeout_s / 4)
        self._now_s = 0.0
        self._running: dict[int, Work] = {}
        self._stopped = threading.Event()

    def watch(self, doing: str, entries: Sequence[Entry]) -> Work:
        """Watch the calling thread until the context ends. doing: what it does, for messages."""
        return Work(doing, entries, threading.get_ident(), self._now_s, self._running)

    def run(self, on_hang: Callable[[Work], None]) -> None:
        """Check until `stop`; call `on_hang` for the first work that hangs, and return."""
        before_s = time.monotonic()
        while not self._stopped.wait(self._interval_s):
            now_s = time.monotonic()
            hung = self.check(now_s - before_s)
            before_s = now_s
            if hung:
                on_hang(hung)
                return

    def check(self, elapsed_s: float) -> Work | None:
        """Work that hangs, if any. elapsed_s: since the last check."""
        self._now_s += min(elapsed_s, 2 * self._interval_s)
        hung = [work for work in list(self._running.values()) if self._now_s - work.since_s > self._timeout_s]
        return min(hung, key=lambda work: work.since_s, default=None)

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()


def code_location(work: Work) -> str:
    """The file and line that the work's thread executes now."""
    frame = sys._current_frames().get(work.thread)
    if frame is None:
        return "a thread that has ended"
    last = traceback.extract_stack(frame)[-1]
    return f"{last.filename}:{last.lineno}"
