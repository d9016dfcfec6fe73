"""The scheduler: items in, futures out. Owns admission, deadlines, and the promise that every item ends exactly once.

    submit ─▶ preparation pool ─▶ waiting queue ─▶ dispatcher: lanes, decoding ─▶ future
                             └──▶ readings: the passes of long texts ─▶ waiting queue …

Knows the engine's contract and nothing of HTTP, tensors or metrics libraries.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

from gliner_bento.engine.base import AdapterLease, Engine, Prepared, Result
from gliner_bento.errors import Aborted, DeadlineExceeded, GLiNERBentoError, NotReady
from gliner_bento.scheduler.dispatcher import Dispatcher, DispatcherConfig
from gliner_bento.scheduler.observer import GuardedObserver, Observer, Outcome
from gliner_bento.scheduler.queue import Entry, WaitingQueue
from gliner_bento.scheduler.readings import Readings, Watch
from gliner_bento.scheduler.stages import Ending, public_error
from gliner_bento.types import Item

logger = logging.getLogger(__name__)

_LONGEST_NAP_S = 60.0  # threading refuses timeouts beyond a platform's limit
_BATCHES_AHEAD = 2  # of each lane: passes of a long text that wait or run


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(DispatcherConfig):
    """What the dispatcher may do, and before it:

    queue_capacity: items admitted and in no batch yet.
    tokenizer_threads: threads that prepare items.
    """

    queue_capacity: int
    tokenizer_threads: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Items that have been admitted and not ended; of them and of passes, those that are preparing, waiting and running
    now; lanes that can run them, and those that do nothing."""

    unfinished_items: int
    preparing_items: int
    waiting_items: int
    running_items: int
    lanes_alive: int
    lanes_free: int
    waiting_tokens: int = 0
    running_tokens: int = 0


class Scheduler:
    """Runs items on `engine` in batches. Thread-safe; `start` it once, `close` it once.

    Threads: a preparation pool, a watch for deadlines, and the dispatcher's. `_lock` guards all state and is never held
    while foreign code runs.
    """

    def __init__(
        self,
        engine: Engine,
        config: SchedulerConfig,
        *,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._config = config
        self._clock = clock
        self._observer = GuardedObserver(observer)
        self._lock = threading.Lock()
        self._deadline_moved = threading.Condition(self._lock)
        self._all_answered = threading.Condition(self._lock)
        self._queue = WaitingQueue(config.queue_capacity, clock, packs=engine.packs)
        self._unanswered_items = 0
        self._broken = False
        self._closed = False
        self._dispatcher = Dispatcher(
            engine,
            config,
            self._queue,
            self._lock,
            finish=self._finish,
            expire=self.expire,
            observer=self._observer,
            clock=clock,
        )
        self._preparation = ThreadPoolExecutor(config.tokenizer_threads, thread_name_prefix="prepare")
        self._readings = Readings(
            self._queue,
            self._lock,
            passes=_BATCHES_AHEAD * config.inference_lanes,
            cost=_BATCHES_AHEAD * config.inference_lanes * config.max_batch_tokens,
            run=self._run_in_preparation,
            wake=self._dispatcher.wake,
            finish=self._finish,
        )
        self._watches: dict[int, Watch] = {}
        self._threads: list[threading.Thread] = []

    # What callers see

    def start(self) -> None:
        """Start admitting; returns when every lane has started or failed to (see `ready`)."""
        with self._lock:
            if self._threads or self._closed:
                raise RuntimeError("a scheduler starts once")
            self._queue.open()
            for name, loop in {"deadlines": self._watch_deadlines, **self._dispatcher.loops}.items():
                thread = threading.Thread(target=self._guard, args=(name, loop), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._dispatcher.wait_for_lanes()

    @property
    def ready(self) -> bool:
        """Admitting, with every lane and thread alive."""
        with self._lock:
            lanes = self._dispatcher.lanes
            return self._queue.admitting and not self._broken and lanes.alive == len(lanes.states)

    def submit(
        self, item: Item, *, request_id: str, deadline: float | None = None, priority: int = 0
    ) -> Future[Result]:
        """`submit_many` of one item."""
        return self.submit_many([item], request_id=request_id, deadline=deadline, priority=priority)[0]

    def submit_stream(
        self, item: Item, watch: Watch, *, request_id: str, deadline: float | None = None, priority: int = 0
    ) -> Future[Result]:
        """`submit`; `watch` is told entities while the item is being read, if it takes several passes."""
        return self._submit([item], request_id, deadline, priority, watch)[0]

    def resume(self, request_id: str) -> None:
        """A watch of the request has room again."""
        self._readings.go_on(request_id)

    def submit_many(
        self, items: Sequence[Item], *, request_id: str, deadline: float | None = None, priority: int = 0
    ) -> list[Future[Result]]:
        """Admit all items of a request or, if there is no room for all, none; one future for each, in order.

        Never blocks and never raises for the items' sake: a refusal is a future that has failed. A refusal and an abort
        concern all items, anything else each of them alone.

        request_id: `abort` acts on every item that was submitted with it.
        deadline: in seconds of the clock; the futures fail with `DeadlineExceeded` then, wherever the items are.
        priority: lower is handled earlier (as in vLLM), strictly; equals are first in, first out.

        The futures fail with errors of the tree alone. Cancelling one (a client that has gone) aborts its item.
        """
        return self._submit(items, request_id, deadline, priority, None)

    def _submit(
        self, items: Sequence[Item], request_id: str, deadline: float | None, priority: int, watch: Watch | None
    ) -> list[Future[Result]]:
        try:
            with self._lock:
                entries = self._queue.admit(items, request_id, deadline, priority)
                self._unanswered_items += len(entries)
                if watch:
                    self._watches |= {entry.sequence: watch for entry in entries}
                for burst in self._bursts(entries):
                    self._preparation.submit(self._prepare, burst)  # under the lock: in order of admission
                if deadline is not None and deadline == self._queue.next_deadline_s:
                    self._deadline_moved.notify()
        except GLiNERBentoError as refusal:
            return [self._refuse(refusal) for _ in items]
        for entry in entries:
            entry.future.add_done_callback(partial(self._end_cancelled, entry.sequence))
        return [entry.future for entry in entries]

    def abort(self, request_id: str) -> bool:
        """End every unfinished item of the request with `Aborted`; False if there is none."""
        with self._lock:
            entries = self._queue.of_request(request_id)
        self._end_all(entries, lambda: Aborted("the request was aborted"))
        return bool(entries)

    def expire(self) -> None:
        """End every item whose deadline has passed. Happens by itself; for those who move an injected clock."""
        with self._lock:
            expired = self._queue.expired()
        self._end_all(expired, lambda: DeadlineExceeded("the deadline passed before the request finished"))

    def drain(self, timeout: float | None = None) -> bool:
        """Admit nothing more and wait until every future is answered; False if `timeout` seconds were not enough."""
        with self._all_answered:
            self._queue.close("the server is draining")
            return self._all_answered.wait_for(lambda: not self._unanswered_items, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """End what has not ended with `NotReady` and stop all threads; waits `timeout` seconds for each at most."""
        with self._lock:
            self._closed = True
            self._queue.close("the server has shut down")
            unfinished = self._queue.unfinished()
            self._dispatcher.close()
            self._deadline_moved.notify_all()
        self._end_all(unfinished, lambda: NotReady("the server is shutting down"))
        self._preparation.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)

    @property
    def stats(self) -> Stats:
        """A snapshot of what happens now."""
        with self._lock:
            queue, lanes = self._queue, self._dispatcher.lanes
            return Stats(
                queue.unfinished_items,
                queue.preparing_items,
                queue.waiting_items,
                queue.running_items,
                lanes.alive,
                lanes.free,
            )

    # How an item ends

    def _finish(self, sequence: int, ending: Ending) -> None:
        """End one item and answer its future, unless that has happened: the queue gives each entry away once."""
        with self._lock:
            entry = self._queue.end(sequence)
            if entry is None:
                return
            self._readings.ended(entry)
            self._watches.pop(sequence, None)
            wanted = entry.future.set_running_or_notify_cancel()  # False: its caller has cancelled it
            if entry.prepared is None:  # a lane may be waiting for its company
                self._dispatcher.wake()
        if entry.whole is not None:
            self._readings.add(entry, ending)
            return
        if entry.lease:
            _release(entry.lease)
        self._observer.on_finish(_outcome(ending) if wanted else "aborted")
        if wanted and isinstance(ending, GLiNERBentoError):
            entry.future.set_exception(ending)
        elif wanted:
            entry.future.set_result(ending)
        with self._lock:
            self._unanswered_items -= 1
            if not self._unanswered_items:
                self._all_answered.notify_all()

    def _refuse(self, refusal: GLiNERBentoError) -> Future[Result]:
        self._observer.on_finish("refused")
        refused: Future[Result] = Future()
        refused.set_exception(refusal)
        return refused

    def _end_all(self, entries: Iterable[Entry], error: Callable[[], GLiNERBentoError]) -> None:
        for entry in entries:
            self._finish(entry.sequence, error())

    def _end_cancelled(self, sequence: int, future: Future[Result]) -> None:
        if future.cancelled():
            self._finish(sequence, Aborted("the caller has gone"))

    # What the threads do

    def _guard(self, name: str, loop: Callable[[], None]) -> None:
        """A thread that dies is never silent: it is logged, and the scheduler is not ready any more."""
        try:
            loop()
        except BaseException:
            logger.critical("the scheduler's thread %s has died", name, exc_info=True)
            with self._lock:
                self._broken = True

    def _bursts(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """The parts of a request that come to wait at once: a batch each, unless that leaves preparing threads idle."""
        size = max(1, min(self._config.max_batch_size, ceil(len(entries) / self._config.tokenizer_threads)))
        return (entries[start : start + size] for start in range(0, len(entries), size))

    def _prepare(self, entries: Sequence[Entry]) -> None:
        """Measure items and let them wait, all at once, so that they are seen together; those whose adapters are not in
        memory yet come later."""
        measured = [(entry, self._measure(entry)) for entry in entries]
        absent = []
        with self._lock:
            for entry, prepared in measured:
                if prepared is None:
                    continue
                lease = prepared.adapter
                if lease is None or _in_memory(lease):
                    self._let_wait(entry, prepared)
                else:
                    absent.append((lease, partial(self._adapter_came, entry, prepared)))
            self._dispatcher.wake()
        for lease, when_there in absent:
            lease.ready.add_done_callback(when_there)

    def _let_wait(self, entry: Entry, prepared: Prepared) -> None:
        """Into the queue, or its passes one after the other. Called with the lock held."""
        self._queue.put(entry, prepared)
        if prepared.chunked and not entry.ended:
            self._readings.begin(entry, prepared.chunked, self._watches.get(entry.sequence))

    def _run_in_preparation(self, work: Callable[[], None]) -> None:
        """Called with the lock held; `close` ends all items before it stops the pool."""
        if not self._closed:
            self._preparation.submit(work)

    def _claim(self, entry: Entry, lease: AdapterLease) -> None:
        """Give the entry the claim to its adapter, which is released when the entry ends: now, if it has."""
        with self._lock:
            if not entry.ended:
                entry.lease = lease
                return
        _release(lease)

    def _adapter_came(self, entry: Entry, prepared: Prepared, came: Future[Any]) -> None:
        """The adapter of an item is in memory, or will not be."""
        if (error := _failure(came)) is not None:
            self._finish(entry.sequence, public_error(error, entry.request_id, "loading its adapter"))
            return
        with self._lock:
            self._let_wait(entry, prepared)
            self._dispatcher.wake()

    def _measure(self, entry: Entry) -> Prepared | None:
        """Prepare one item; None if it has ended. Its error is its own; a blank one is answered here."""
        if entry.ended:
            return None
        started_s = self._clock()
        try:
            prepared = self._engine.prepare(entry.item)
        except BaseException as error:  # the pool would swallow it, and the item would never end
            self._finish(entry.sequence, public_error(error, entry.request_id, "preparation"))
            return None
        self._observer.on_stage("prepare", self._clock() - started_s)
        if prepared.adapter:
            self._claim(entry, prepared.adapter)
        if prepared.result is None:
            return prepared
        self._finish(entry.sequence, prepared.result)
        return None

    def _watch_deadlines(self) -> None:
        while True:
            with self._deadline_moved:
                if self._closed:
                    return
                deadline_s = self._queue.next_deadline_s
                nap_s = _LONGEST_NAP_S if deadline_s is None else min(deadline_s - self._clock(), _LONGEST_NAP_S)
                if nap_s > 0:
                    self._deadline_moved.wait(nap_s)
            self.expire()


def _failure(came: Future[Any]) -> BaseException | None:
    """Why an adapter that has come is not in memory."""
    return CancelledError() if came.cancelled() else came.exception()


def _in_memory(lease: AdapterLease) -> bool:
    return lease.ready.done() and _failure(lease.ready) is None


def _release(lease: AdapterLease) -> None:
    """What a release raises is logged, because the item has to be answered all the same."""
    try:
        lease.release()
    except Exception:
        logger.exception("an adapter could not be released")


def _outcome(ending: Ending) -> Outcome:
    if not isinstance(ending, GLiNERBentoError):
        return "completed"
    if isinstance(ending, Aborted):
        return "aborted"
    return "expired" if isinstance(ending, DeadlineExceeded) else "failed"
