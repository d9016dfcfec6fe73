"""A pool of threads that tenants share fairly: each of its threads takes the next work in the order of service."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gliner_bento.fairness.queue import FairQueue, Order, TenantShare


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Each costs the same: work that takes long ends after a slice, and is submitted again."""

    share: TenantShare
    order: Order
    run: Callable[[], None]
    cost: int = 1


class FairPool:
    """Runs work in `threads` threads: of each tenant first in, first out; among tenants by their weights."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._work: FairQueue[_Work] = FairQueue()
        self._submitted = 0

    def submit(self, share: TenantShare, work: Callable[[], None]) -> None:
        """Run `work` when it is its turn; it must not raise. Raises RuntimeError after `shutdown`."""
        with self._lock:
            self._submitted += 1
            self._work.add(_Work(share, (0, 0.0, self._submitted), work))
        self._pool.submit(self._run_next)

    def others_wait(self, tenant: str) -> bool:
        """Whether work of another tenant waits."""
        with self._lock:
            return self._work.waits_beside(tenant)

    def shutdown(self, *, wait: bool = False) -> None:
        """Drop all work that has not begun. wait: for the rest."""
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def _run_next(self) -> None:
        with self._lock:
            work = self._work.serve()
        work.run()
