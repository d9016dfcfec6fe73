"""A thread pool that tenants share fairly: each thread takes the next work in the order of service."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gliner_bento.fairness.queue import FairQueue, Order, TenantShare


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Work for one thread. All work costs 1, because long work ends after a slice and is submitted again, or is charged
    for afterwards."""

    share: TenantShare
    order: Order
    run: Callable[[], None]
    cost: int = 1


class FairPool:
    """Runs work in `threads` threads: first in, first out within a tenant, and fairly by weight among tenants."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._queue: FairQueue[_Work] = FairQueue()
        self._submitted = 0

    def submit(self, share: TenantShare, run: Callable[[], None]) -> None:
        """Call `run`, which must not raise, in the order of service. Raises RuntimeError after `shutdown`."""
        with self._lock:
            self._submitted += 1
            first_in_first_out: Order = (0, 0.0, self._submitted)
            self._queue.add(_Work(share, first_in_first_out, run))
        self._pool.submit(self._run_next)

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
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def _run_next(self) -> None:
        with self._lock:
            work = self._queue.serve()
        work.run()
