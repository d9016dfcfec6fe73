"""Preparation: admitted items are tokenized and measured in a pool of threads, and wait for their adapters to load."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from math import ceil
from typing import Any

from gliner_bento.engine.base import AdapterLease, Engine, Prepared
from gliner_bento.scheduler.chunked import ChunkedRequests
from gliner_bento.scheduler.dispatcher import Dispatcher
from gliner_bento.scheduler.entry import Entry, ItemOwner, State
from gliner_bento.scheduler.fair_pool import FairPool
from gliner_bento.scheduler.observer import Observer
from gliner_bento.scheduler.queue import WaitingQueue
from gliner_bento.scheduler.stages import public_error
from gliner_bento.scheduler.watchdog import Watchdog

logger = logging.getLogger(__name__)


class Preparation:
    """Takes entries from PREPARING to WAITING or CHUNKED, or finishes them.

    threads: of `pool`. max_burst: how many items of a request are put into the queue together, at most.
    """

    def __init__(
        self,
        engine: Engine,
        queue: WaitingQueue,
        items: ItemOwner,
        dispatcher: Dispatcher,
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
        self._queue = queue
        self._items = items
        self._dispatcher = dispatcher
        self._chunked = chunked
        self._pool = pool
        self._threads = threads
        self._max_burst = max_burst
        self._observer = observer
        self._watchdog = watchdog
        self._clock = clock

    def submit(self, entries: Sequence[Entry]) -> None:
        """Prepare the entries of a request. Called with the lock held, so that the pool has them in order of
        admission."""
        for burst in self._bursts(entries):
            self._pool.submit(burst[0].tenant.name, partial(self._prepare, burst))

    def _bursts(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """The parts of a request that are put into the queue together: a batch each, or less to use all threads."""
        size = max(1, min(self._max_burst, ceil(len(entries) / self._threads)))
        return (entries[start : start + size] for start in range(0, len(entries), size))

    def _prepare(self, entries: Sequence[Entry]) -> None:
        """Measure entries, then put them into the queue together, so that one batch can take them; those whose adapters
        are not in memory yet follow when these are. Leaves the rest for later if another tenant waits for a thread."""
        tenant = entries[0].tenant.name
        measured = []
        for place, entry in enumerate(entries):
            if place and self._pool.others_wait(tenant):
                self._pool.submit(tenant, partial(self._prepare, entries[place:]))
                break
            measured.append((entry, self._measure(entry)))
        loading = []
        with self._queue.lock:
            for entry, prepared in measured:
                if prepared is None:
                    continue
                lease = prepared.adapter
                if lease is None or _in_memory(lease):
                    self._put(entry, prepared)
                else:
                    self._queue.load_adapter(entry, prepared)
                    loading.append((lease, partial(self._on_adapter, entry, prepared)))
            self._dispatcher.wake()
        for lease, when_loaded in loading:
            lease.ready.add_done_callback(when_loaded)

    def _measure(self, entry: Entry) -> Prepared | None:
        """Prepare one entry; None if it has finished: aborted, with an error, or without a pass (a blank text)."""
        if entry.finished:
            return None
        started_s = self._clock()
        try:
            with self._watchdog.watch("preparation", [entry]):
                prepared = self._engine.prepare(entry.item)
        except BaseException as error:  # the pool would swallow it, and the item would never finish
            self._items.finish(entry, public_error(error, entry.request_id, "preparation"))
            return None
        self._observer.on_stage("prepare", self._clock() - started_s)
        if prepared.adapter:
            self._hold_lease(entry, prepared.adapter)
        if prepared.result is None:
            return prepared
        self._items.finish(entry, prepared.result)
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
            self._items.finish(entry, public_error(error, entry.request_id, "loading its adapter"))
            return
        with self._queue.lock:
            self._put(entry, prepared)
            self._dispatcher.wake()


def release(lease: AdapterLease) -> None:
    """Release the lease of an item that has finished. An exception is logged, because the item must be answered."""
    try:
        lease.release()
    except Exception:
        logger.exception("an adapter could not be released")


def _failure(ready: Future[Any]) -> BaseException | None:
    """The error of an adapter that was not loaded; None if it was."""
    return CancelledError() if ready.cancelled() else ready.exception()


def _in_memory(lease: AdapterLease) -> bool:
    return lease.ready.done() and _failure(lease.ready) is None
