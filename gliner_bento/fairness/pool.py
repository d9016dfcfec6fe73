"""A thread pool that tenants share fairly: each thread takes the next work in the order of service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

from gliner_bento.fairness.queue import FairQueue, Order, TenantShare

P = ParamSpec("P")
logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Work:
    """Work for one thread. All work costs 1, because long work ends after a slice and is submitted again, or is charged
    for afterwards."""

    share: TenantShare
    order: Order
    run: Callable[..., None]
    args: tuple[Any, ...]
    cost: int = 1


class FairPool:
    """Runs work in `threads` threads: first in, first out within a tenant, and fairly by weight among tenants."""

    def __init__(self, threads: int, name: str) -> None:
        self._lock = threading.Lock()  # of all fields
        self._changed = threading.Condition(self._lock)  # work is there, or the pool is closed
        self._queue: FairQueue[_Work] = FairQueue()
        self._submitted = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}_{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:  # all at the start: one that cannot start would leave work behind
            thread.start()

    def submit(self, share: TenantShare, run: Callable[P, None], *args: P.args, **_: P.kwargs) -> None:
        """Call `run(*args)`, which must not raise, in the order of service. Raises RuntimeError after `shutdown`."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool has shut down")
            self._submitted += 1
            first_in_first_out: Order = (0, 0.0, self._submitted)
            self._queue.add(_Work(share, first_in_first_out, run, args))
            self._changed.notify()

    def take(self, tenant: str, run: Callable[..., None]) -> tuple[Any, ...]:
        """For work that does the next work itself, if that is of the same tenant and calls `run`. Returns its
        arguments, or none."""
        with self._lock:
            first = self._queue.first
            if first is None or first.share.tenant != tenant or first.run != run:
                return ()
            return self._queue.serve().args

    def charge(self, tenant: str, cost: float) -> None:
        """Charge a tenant more for work that has run. No effect if no work waits."""
        with self._lock:
            self._queue.charge(tenant, cost)

    def others_wait(self, tenant: str) -> bool:
        """Whether work of another tenant waits."""
        with self._lock:
            return self._queue.others_wait(tenant)

    def shutdown(self, *, wait: bool = False) -> None:
        """Drop all work that has not begun. wait: whether to wait for the work that has begun."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads if wait else ():
            thread.join()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work.run(*work.args)
            except BaseException:  # the thread goes on: other work waits
                if not self._closed:  # else the work could not submit its rest
                    logger.exception("work of a pool failed")
            del work  # what it holds is freed before the thread waits

    def _next(self) -> _Work | None:
        """The work to run now, as soon as there is some; None when the pool is closed."""
        with self._lock:
            while not self._queue:
                if self._closed:
                    return None
                self._changed.wait()
            return self._queue.serve()
