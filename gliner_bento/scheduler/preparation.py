"""Preparation: admitted items are tokenized and measured in a thread pool, and wait for their adapters to load.

The items of a request are prepared in bursts of at most a batch. A long text takes many steps. After `SLICE_S`, or when
another tenant waits, the thread submits the rest of its burst again, and serves other work first. Between two steps, an
item that has expired or was aborted is dropped.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from math import ceil
from typing import Any

from gliner_bento.engine.base import AdapterLease, Engine, Prepared
from gliner_bento.fairness.constants import PAUSE_S, SLICE_S
from gliner_bento.fairness.pool import FairPool
from gliner_bento.scheduler.chunked import ChunkedRequests
from gliner_bento.scheduler.entry import Entry, State
from gliner_bento.scheduler.items import Items, release
from gliner_bento.scheduler.observer import Observer
from gliner_bento.scheduler.watchdog import Watchdog

logger = logging.getLogger(__name__)


class Preparation:
    """Takes entries from PREPARING to WAITING or CHUNKED, or finishes them.

    threads: number of threads of `pool`. max_burst: maximum number of items that are put into the queue together.
    """

    def __init__(
        self,
        engine: Engine,
        items: Items,
        chunked: ChunkedRequests,
        pool: FairPool,
        *,
        threads: int,
        max_burst: int,
        observer: Observer,
        watchdog: Watchdog,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._items = items
        self._queue = items.queue
        self._chunked = chunked
        self._pool = pool
        self._threads = threads
        self._max_burst = max_burst
        self._observer = observer
        self._watchdog = watchdog
        self._clock = clock

    def submit(self, entries: Sequence[Entry]) -> None:
        """Prepare the entries of a request. Called with the lock held, so that requests reach the pool in the order of
        their admission.

        The parts of it that enter the queue together are equal, one for each thread, but at most a batch."""
        size = max(1, min(self._max_burst, ceil(len(entries) / self._threads)))
        for start in range(0, len(entries), size):
            burst = deque(entries[start : start + size])
            self._pool.submit(burst[0].share, self._prepare, burst)

    def _prepare(self, burst: deque[Entry]) -> None:
        """Measure entries until the slice ends, then put them into the queue together, so that one batch can take them.
        An entry whose adapter is not in memory yet is put later. Submits the rest of the burst again.

        While every lane is busy and it is the tenant's turn, also measures its next bursts, because to put each alone
        costs time. Once a lane is free, what has been measured is put."""
        share, further = burst[0].share, False
        until_cpu_s = time.thread_time() + SLICE_S
        measured: list[tuple[Entry, Prepared]] = []
        while burst:
            if further and measured and self._queue.awaited():
                self._put_measured(measured)
                measured = []
            entry = burst[0]
            prepared = self._measure(entry, until_cpu_s)
            if prepared is not None:
                measured.append((entry, prepared))
            if entry.steps is None:
                burst.popleft()
            if burst:
                if self._slice_ends(share.tenant, until_cpu_s):
                    break
            elif len(measured) < self._max_burst and not self._queue.awaited():
                (burst,), further = self._pool.take(share.tenant, self._prepare) or (burst,), True
        self._put_measured(measured)
        if burst:
            time.sleep(PAUSE_S)
            self._pool.submit(share, self._prepare, burst)

    def _slice_ends(self, tenant: str, until_cpu_s: float) -> bool:
        return time.thread_time() >= until_cpu_s or self._pool.others_wait(tenant)

    def _put_measured(self, measured: Iterable[tuple[Entry, Prepared]]) -> None:
        loading = []
        with self._queue.lock:
            for entry, prepared in measured:
                lease = prepared.adapter
                if lease is None or _in_memory(lease):
                    self._put(entry, prepared)
                else:
                    self._queue.wait_for_adapter(entry, prepared)
                    loading.append((lease, partial(self._on_adapter, entry, prepared)))
            self._queue.wake()
        for lease, when_loaded in loading:
            lease.ready.add_done_callback(when_loaded)

    def _measure(self, entry: Entry, until_cpu_s: float) -> Prepared | None:
        """Prepare an entry. Returns None if it has finished (it was aborted or failed, or its text is blank), or if the
        slice has ended; the remaining `entry.steps` are run later."""
        started_s = self._clock()
        try:
            with self._watchdog.watch("preparation", [entry]):
                prepared = self._advance(entry, until_cpu_s)
        except BaseException as error:  # the pool would swallow it, and the item would never finish
            entry.steps = None
            self._items.fail(entry, error, "preparation")
            return None
        entry.prepare_s += self._clock() - started_s
        if prepared is None:
            return None
        self._observer.on_stage("prepare", entry.prepare_s)
        if prepared.adapter:
            self._hold_lease(entry, prepared.adapter)
        if prepared.result is None:
            return prepared
        self._items.finish(entry, prepared.result)
        return None

    def _advance(self, entry: Entry, until_cpu_s: float) -> Prepared | None:
        """Run the steps of an entry until it is prepared, has finished, or the slice ends."""
        steps = entry.steps or self._engine.prepare_in_steps(entry.item)
        entry.steps = None
        try:
            while not entry.finished:
                next(steps)
                if self._slice_ends(entry.tenant.name, until_cpu_s):
                    entry.steps = steps
                    return None
        except StopIteration as end:
            prepared: Prepared = end.value
            return prepared
        steps.close()
        return None

    def _put(self, entry: Entry, prepared: Prepared) -> None:
        """Put the entry into the queue, or begin its passes. Called with the lock held."""
        self._queue.put(entry, prepared)
        if prepared.chunked and entry.state is State.CHUNKED:
            self._chunked.begin(entry, prepared.chunked)

    def _hold_lease(self, entry: Entry, lease: AdapterLease) -> None:
        """Keep the adapter's lease until the entry finishes; if it has finished already, release the lease."""
        with self._queue.lock:
            if not entry.finished:
                entry.lease = lease
                return
        release(lease)

    def _on_adapter(self, entry: Entry, prepared: Prepared, ready: Future[Any]) -> None:
        """Called when the adapter of an entry is in memory, or has failed to load."""
        if (error := _failure(ready)) is not None:
            self._items.fail(entry, error, "loading its adapter")
            return
        with self._queue.lock:
            self._put(entry, prepared)
            self._queue.wake()


def _failure(ready: Future[Any]) -> BaseException | None:
    """The error of an adapter that was not loaded; None if it was."""
    return CancelledError() if ready.cancelled() else ready.exception()


def _in_memory(lease: AdapterLease) -> bool:
    return lease.ready.done() and _failure(lease.ready) is None
