"""A pool of threads that tenants share fairly: each of its threads takes the next work of the next tenant in turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class FairPool:
    """Runs work in `threads` threads: of each tenant first in, first out; among tenants round robin."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._work: dict[str, deque[Callable[[], None]]] = {}  # by tenant, in the order of their turns

    def submit(self, tenant: str, work: Callable[[], None]) -> None:
        """Run `work` when it is its turn; it must not raise. Raises RuntimeError after `shutdown`."""
        with self._lock:
            self._work.setdefault(tenant, deque()).append(work)
        self._pool.submit(self._run_next)

    def others_wait(self, tenant: str) -> bool:
        """Whether work of another tenant waits."""
        with self._lock:
            return len(self._work) > (tenant in self._work)

    def shutdown(self, *, wait: bool = False) -> None:
        """Drop all work that has not begun. wait: for the rest."""
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def _run_next(self) -> None:
        with self._lock:
            tenant, work = next(iter(self._work.items()))
            next_work = work.popleft()
            del self._work[tenant]
            if work:
                self._work[tenant] = work  # behind the other tenants
        next_work()
