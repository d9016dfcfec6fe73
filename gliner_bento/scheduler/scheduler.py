"""The scheduler: items in, futures out. Owns the threads, the lock and the promise that every item ends exactly once.

    submit ─▶ preparation pool ─▶ waiting queue ─┬─▶ a free lane takes what waits ───────────┬─▶ forward ─▶ future
                                                 └─▶ collator, all lanes busy: full batches ─┘

Knows the engine's contract and nothing of HTTP, tensors or metrics libraries.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

from gliner_bento.engine.base import Engine, Extraction, Item
from gliner_bento.errors import Aborted, DeadlineExceeded, GLiNERBentoError, InternalError, NotReady
from gliner_bento.scheduler.batching import BatchLimits
from gliner_bento.scheduler.lane import Batch, Ending, Lane, public_error
from gliner_bento.scheduler.observer import GuardedObserver, Observer, Outcome, Tally
from gliner_bento.scheduler.queue import Entry, WaitingQueue

logger = logging.getLogger(__name__)

_LONGEST_NAP_S = 60.0  # threading refuses timeouts beyond a platform's limit


@dataclass(frozen=True, slots=True)
class SchedulerConfig(BatchLimits):
    """How much runs at once: the limits of a batch, and counts of at least 1.

    queue_capacity: items admitted and in no batch yet.
    inference_lanes: threads that run batches, each with `torch_threads` for computing.
    tokenizer_threads: threads that prepare items.
    """

    queue_capacity: int = 1024
    inference_lanes: int = 1
    torch_threads: int = 1
    tokenizer_threads: int = 1


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot: items that are preparing, waiting and running now; outcomes, batches and tokens since the start."""

    preparing_items: int
    waiting_items: int
    waiting_tokens: int
    running_items: int
    lanes_alive: int
    completed: int
    failed: int
    aborted: int
    expired: int
    refused: int
    batches: int
    batched_items: int
    padded_tokens: int
    real_tokens: int
    splits: int


class Scheduler:
    """Runs items on `engine` in batches. Thread-safe; `start` it once, `close` it once.

    Threads: a preparation pool; one thread per lane; a collator, which makes tensors of the next batches while all
    lanes are busy; a watch for deadlines. `_lock` guards all state and is never held while foreign code runs.
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
        self._tally = Tally()
        self._observer = GuardedObserver(self._tally, *([observer] if observer else []))
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # something to run, a lane's state, or the end
        self._deadline_moved = threading.Condition(self._lock)
        self._all_answered = threading.Condition(self._lock)
        self._queue = WaitingQueue(config.queue_capacity, clock)
        self._ready: deque[Batch] = deque()  # collated, for whichever lane is free next
        self._lanes: list[Literal["starting", "alive", "dead"]] = ["starting"] * config.inference_lanes
        self._lanes_idle = 0
        self._unanswered_items = 0
        self._broken = False
        self._closed = False
        self._preparation = ThreadPoolExecutor(config.tokenizer_threads, thread_name_prefix="prepare")
        self._threads: list[threading.Thread] = []

    # What callers see

    def start(self) -> None:
        """Start admitting; returns when every lane has started or failed to (see `ready`)."""
        with self._work:
            if self._threads or self._closed:
                raise RuntimeError("a scheduler starts once")
            self._queue.open()
            self._spawn("collator", self._collate_ahead)
            self._spawn("deadlines", self._watch_deadlines)
            for number in range(self._config.inference_lanes):
                self._spawn(f"lane-{number}", partial(self._run_lane, number))
            self._work.wait_for(lambda: "starting" not in self._lanes)

    @property
    def ready(self) -> bool:
        """Admitting, with every lane and thread alive."""
        with self._lock:
            return self._queue.admitting and not self._broken and set(self._lanes) == {"alive"}

    def submit(
        self, item: Item, *, request_id: str, deadline: float | None = None, priority: int = 0
    ) -> Future[Extraction]:
        """Admit an item; never blocks and never raises for the item's sake: a refusal is a future that has failed.

        request_id: shared by the items of one request; `abort` acts on all of them.
        deadline: in seconds of the clock; the future fails with `DeadlineExceeded` then, wherever the item is.
        priority: lower is handled earlier (as in vLLM), strictly; equals are first in, first out.

        The future fails with errors of the tree alone. Cancelling it (a client that has gone) aborts the item.
        """
        try:
            with self._lock:
                entry = self._queue.admit(item, request_id, deadline, priority)
                self._unanswered_items += 1
                self._preparation.submit(self._prepare, entry)  # under the lock: in order of admission
                if deadline is not None and deadline == self._queue.next_deadline_s:
                    self._deadline_moved.notify()
        except GLiNERBentoError as refusal:
            self._observer.on_finish("refused")
            refused: Future[Extraction] = Future()
            refused.set_exception(refusal)
            return refused
        entry.future.add_done_callback(partial(self._end_cancelled, entry.sequence))
        return entry.future

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
            self._work.notify_all()
            self._deadline_moved.notify_all()
        self._end_all(unfinished, lambda: NotReady("the server is shutting down"))
        self._preparation.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)

    @property
    def stats(self) -> Stats:
        """A snapshot of what happens now and what has happened."""
        counts = self._tally.counts()
        with self._lock:
            return Stats(
                preparing_items=self._queue.queued_items - self._queue.waiting_items,
                waiting_items=self._queue.waiting_items,
                waiting_tokens=self._queue.waiting_tokens,
                running_items=self._queue.running_items,
                lanes_alive=self._lanes.count("alive"),
                completed=counts["completed"],
                failed=counts["failed"],
                aborted=counts["aborted"],
                expired=counts["expired"],
                refused=counts["refused"],
                batches=counts["batches"],
                batched_items=counts["batched_items"],
                padded_tokens=counts["padded_tokens"],
                real_tokens=counts["real_tokens"],
                splits=counts["splits"],
            )

    # How an item ends

    def _finish(self, sequence: int, ending: Ending) -> None:
        """End one item and answer its future, unless that has happened: the queue gives each entry away once."""
        with self._lock:
            entry = self._queue.end(sequence)
            if entry is None:
                return
            wanted = entry.future.set_running_or_notify_cancel()  # False: its caller has cancelled it
        self._observer.on_finish(_outcome(ending) if wanted else "aborted")
        if wanted and isinstance(ending, Extraction):
            entry.future.set_result(ending)
        elif wanted and isinstance(ending, GLiNERBentoError):
            entry.future.set_exception(ending)
        with self._lock:
            self._unanswered_items -= 1
            if not self._unanswered_items:
                self._all_answered.notify_all()

    def _end_all(self, entries: Iterable[Entry], error: Callable[[], GLiNERBentoError]) -> None:
        for entry in entries:
            self._finish(entry.sequence, error())

    def _end_cancelled(self, sequence: int, future: Future[Extraction]) -> None:
        if future.cancelled():
            self._finish(sequence, Aborted("the caller has gone"))

    # What the threads do

    def _spawn(self, name: str, loop: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._guard, args=(name, loop), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guard(self, name: str, loop: Callable[[], None]) -> None:
        """A thread that dies is never silent: it is logged, and the scheduler is not ready any more."""
        try:
            loop()
        except BaseException:
            logger.critical("the scheduler's thread %s has died", name, exc_info=True)
            with self._work:
                self._broken = True

    def _prepare(self, entry: Entry) -> None:
        """Measure one item and let it wait. Its error is its own; a blank one is answered here."""
        if entry.ended:
            return
        try:
            prepared = self._engine.prepare(entry.item)
        except BaseException as error:  # the pool would swallow it, and the item would never end
            self._finish(entry.sequence, public_error(error, entry.request_id, "preparation"))
            return
        if prepared.tokens == 0:
            self._finish(entry.sequence, Extraction(truncated=prepared.truncated))
            return
        with self._work:
            self._queue.put(entry, prepared)
            self._work.notify_all()

    def _run_lane(self, number: int) -> None:
        """One lane's life, in its inference thread. A lane that dies takes its batch along, the last one everything."""
        batch: Batch | None = None
        lane = Lane(self._engine, self._finish, self._observer, self._clock, self._config.torch_threads)
        try:
            # Each lane keeps its own threads, idle or not; a lane that lends its threads would do so from here.
            self._engine.start_lane()
            with self._work:
                self._lanes[number] = "alive"
                self._work.notify_all()
            while (batch := self._next_batch()) is not None:
                lane.run(batch)
                batch = None  # an idle lane holds on to nothing
        except BaseException:
            self._bury(number, batch)
            raise

    def _bury(self, number: int, batch: Batch | None) -> None:
        """Lane `number` is dead: fail what it held, and everything if it was the last."""
        with self._work:
            self._lanes[number] = "dead"
            stranded: list[Entry] = []
            if set(self._lanes) == {"dead"}:
                self._queue.close("no inference lane is alive")
                stranded = self._queue.unfinished()
            self._work.notify_all()
        self._end_all(batch.entries if batch else [], InternalError)
        self._end_all(stranded, lambda: NotReady("no inference lane is alive"))

    def _next_batch(self) -> Batch | None:
        """What a free lane runs next: a batch made ahead, else whatever waits, full or not. Blocks; None at the end."""
        while True:
            with self._work:
                self._lanes_idle += 1
                self._work.wait_for(lambda: self._closed or self._ready or self._queue.waiting_items)
                self._lanes_idle -= 1
                if self._closed:
                    return None
                if not self._queue.expired():
                    self._work.notify_all()  # the collator may go on
                    return self._ready.popleft() if self._ready else Batch(self._queue.take(self._config))
            self.expire()

    def _collate_ahead(self) -> None:
        """Make tensors of full batches while all lanes are busy, one batch per lane ahead at most.

        Only of full ones: a batch that could still grow is better formed when a lane is free to run it.
        """
        while (batch := self._next_to_collate()) is not None:
            try:
                batch.collated = self._engine.collate(batch.prepared)
            except Exception as error:
                logger.warning("a batch could not be collated ahead, its lane tries again: %s", repr(error))
            finally:
                with self._work:
                    self._ready.append(batch)
                    self._work.notify_all()

    def _next_to_collate(self) -> Batch | None:
        with self._work:
            while not self._closed:
                if not self._lanes_idle and len(self._ready) < self._lanes.count("alive"):
                    entries = self._queue.take(self._config, only_full=True)
                    if entries:
                        return Batch(entries)
                self._work.wait()
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


def _outcome(ending: Ending) -> Outcome:
    if isinstance(ending, Extraction):
        return "completed"
    if isinstance(ending, Aborted):
        return "aborted"
    return "expired" if isinstance(ending, DeadlineExceeded) else "failed"
