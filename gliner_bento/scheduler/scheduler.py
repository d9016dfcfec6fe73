"""The scheduler: items in, answers out. Connects its parts, starts and ends their threads.

    submit ─▶ preparation ─┬─▶ waiting queue ─▶ dispatcher: schedule, forward, postprocess ─▶ answer
                           └─▶ chunked requests: passes ─▶ waiting queue …

Knows the engine's contract and nothing of HTTP, tensors or metrics libraries. Locking: see `queue`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from typing_extensions import Unpack

from gliner_bento.engine.base import Engine, Result
from gliner_bento.errors import GLiNERBentoError, InternalError, NotReady
from gliner_bento.fairness.pool import FairPool
from gliner_bento.scheduler.batching import at_least
from gliner_bento.scheduler.chunked import ChunkedRequests
from gliner_bento.scheduler.dispatcher import BatchDispatcher, DispatcherConfig
from gliner_bento.scheduler.entry import RUNNING, WAITING, Answer, ResultOrError, Sink, Stream, Submission, Terms
from gliner_bento.scheduler.items import Items
from gliner_bento.scheduler.observer import GuardedObserver, Observer
from gliner_bento.scheduler.preparation import Preparation
from gliner_bento.scheduler.queue import WaitingQueue
from gliner_bento.scheduler.turns import ModelTurns
from gliner_bento.scheduler.watchdog import Watchdog, Work, code_location
from gliner_bento.tasks.base import Item

logger = logging.getLogger(__name__)

_BATCHES_AHEAD = 2  # passes of a chunked request that wait or run: enough for this many batches per lane


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(DispatcherConfig):
    """The dispatcher's options, and:

    queue_capacity: maximum number of items that are in no batch yet; see `WaitingQueue`.
    tokenizer_threads: threads that prepare items.
    hang_timeout_s: a stage of a batch, or a preparation, that runs longer counts as hanging.
    """

    queue_capacity: int
    tokenizer_threads: int
    hang_timeout_s: float = at_least(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A snapshot. `waiting_*` and `running_*` include passes of chunked requests. `*_tokens` are costs.

    lanes_free: number of lanes that are alive and idle.
    """

    unfinished_items: int
    preparing_items: int
    waiting_items: int
    waiting_tokens: int
    running_items: int
    running_tokens: int
    lanes: int
    lanes_alive: int
    lanes_free: int


class Scheduler:
    """Runs items on `engine` in batches. Thread-safe; `start` it once, `close` it once.

    Threads: a preparation pool, one for deadlines, one for the watchdog, and the dispatcher's.
    """

    def __init__(
        self,
        engine: Engine,
        config: SchedulerConfig,
        *,
        observers: Sequence[Observer] = (),
        clock: Callable[[], float] = time.monotonic,
        turns: ModelTurns | None = None,
    ) -> None:
        self._clock = clock
        self._observer = GuardedObserver(observers)
        self._queue = WaitingQueue(config.queue_capacity, clock, packs=engine.packs)
        self._lock = self._queue.lock
        self._items = Items(self._queue, self._observer, clock)
        self._broken = False
        self._closed = False
        self._hang_timeout_s = config.hang_timeout_s
        self._threads: list[threading.Thread] = []
        self._pool = FairPool(config.tokenizer_threads, "prepare")
        self._watchdog = Watchdog(config.hang_timeout_s)
        self._dispatcher = BatchDispatcher(
            engine,
            config,
            self._items,
            observer=self._observer,
            watchdog=self._watchdog,
            clock=clock,
            turns=turns,
        )
        self._chunked = ChunkedRequests(
            self._items,
            self._pool,
            self._watchdog,
            min_passes=_BATCHES_AHEAD * config.inference_lanes,
            min_cost=_BATCHES_AHEAD * config.inference_lanes * config.max_batch_tokens,
        )
        self._preparation = Preparation(
            engine,
            self._items,
            self._chunked,
            self._pool,
            threads=config.tokenizer_threads,
            max_burst=config.max_batch_size,
            observer=self._observer,
            watchdog=self._watchdog,
            clock=clock,
        )

    # Start and end

    def start(self) -> None:
        """Start admitting; returns when every lane has started or failed to (see `ready`)."""
        with self._lock:
            if self._threads or self._closed:
                raise RuntimeError("a scheduler starts once")
            self._queue.open()
            for name, loop in {"deadlines": self._items.watch_deadlines, **self._dispatcher.loops}.items():
                thread = threading.Thread(target=self._guard, args=(name, loop), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._dispatcher.wait_for_lanes()

    def watch_for_hangs(self, on_hang: Callable[[str], None]) -> None:
        """Start the watchdog: when work hangs, it fails all items, refuses new ones, and calls `on_hang` once with the
        reason. Called after the warm-up, because compilation there may take minutes."""
        loop = partial(self._watchdog.run, partial(self._end_hung, on_hang))
        threading.Thread(target=self._guard, args=("watchdog", loop), name="watchdog", daemon=True).start()

    @property
    def ready(self) -> bool:
        """Whether it admits items, and every lane and thread is alive."""
        with self._lock:
            lanes = self._dispatcher.lanes
            return self._queue.admitting and not self._broken and lanes.alive == len(lanes.states)

    @property
    def stats(self) -> Stats:
        """Counts of items and lanes now."""
        with self._lock:
            queue, lanes = self._queue, self._dispatcher.lanes
            waiting, running = queue.tally(WAITING), queue.tally(RUNNING)
            return Stats(
                unfinished_items=queue.unfinished_items,
                preparing_items=queue.preparing_items,
                waiting_items=waiting.entries,
                waiting_tokens=waiting.cost,
                running_items=running.entries,
                running_tokens=running.cost,
                lanes=len(lanes.states),
                lanes_alive=lanes.alive,
                lanes_free=lanes.free,
            )

    @property
    def tokens_run(self) -> int:
        """Tokens of all items and passes that have run."""
        return self._queue.tokens_run

    def drain(self, timeout: float | None = None) -> bool:
        """Stop admitting, and wait until every item is answered; returns False after `timeout` seconds."""
        with self._lock:
            self._queue.close("the server is draining")
        return self._items.wait_until_answered(timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Fail unfinished items with `NotReady`, and stop all threads; waits at most `timeout` seconds for each."""
        with self._lock:
            self._closed = True
            self._queue.close("the server has shut down")
            unfinished = self._queue.unfinished()
            self._dispatcher.close()
            self._items.close()
        self._watchdog.stop()
        self._items.fail_all(unfinished, lambda: NotReady("the server is shutting down"))
        self._pool.shutdown()  # after all items have finished, see `ChunkedRequests`
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)

    # Requests

    def submit(self, item: Item, **terms: Unpack[Terms]) -> Future[Result]:
        """`submit_many` of one item."""
        return self.submit_many([item], **terms)[0]

    def submit_many(
        self, items: Sequence[Item], *, stream: Stream | None = None, **terms: Unpack[Terms]
    ) -> list[Future[Result]]:
        """Admit all items of a request, or none if the queue has no room for all. Returns a future for each, in order.

        Never blocks, and raises nothing: all errors are in the futures, those of admission too. A refusal or an abort
        fails all items; any other error fails the item that it concerns.

        Futures fail only with `GLiNERBentoError`. Cancelling a future (its client has disconnected) aborts the item.
        """
        futures: list[Future[Result]] = [Future() for _ in items]
        try:
            submissions = self._submit(items, [partial(_answer, future) for future in futures], terms, stream)
        except GLiNERBentoError as refusal:
            for future in futures:
                future.set_exception(refusal)
        else:
            for future, submission in zip(futures, submissions, strict=True):
                # Callers may keep the future, which keeps no entry in memory.
                future.add_done_callback(partial(self._on_done, submission.sequences))
        return futures

    def submit_together(self, items: Sequence[Item], answer: Answer, **terms: Unpack[Terms]) -> range:
        """As `submit_many`, for at least one item, but without futures, which cost time: `answer` gets all outcomes
        when the last item has ended. Returns what `cancel` takes. Raises the errors of admission."""
        (submission,) = self._submit(items, [answer], terms)
        return submission.sequences

    def cancel(self, submitted: range) -> None:
        """Abort the items of a `submit_together` that have not ended: their client has disconnected."""
        self._items.cancel(submitted)

    def submit_stream(
        self, item: Item, sink: Sink, *, idle_timeout_s: float = math.inf, **terms: Unpack[Terms]
    ) -> Future[Result]:
        """As `submit`. If the item takes several passes, `sink` receives parts of its result after each pass (possibly
        none). idle_timeout_s: the item also fails if no pass finishes for this time."""
        deadline = terms.get("deadline")
        stream = Stream(sink, math.inf if deadline is None else deadline, idle_timeout_s)
        terms["deadline"] = min(stream.ends_s, self._clock() + idle_timeout_s)
        return self.submit_many([item], stream=stream, **terms)[0]

    def resume(self, request_id: str) -> None:
        """Continue a request that paused because its sink was full."""
        self._chunked.resume(request_id)

    def abort(self, request_id: str) -> bool:
        """Fail every unfinished item of the request with `Aborted`; False if there is none, or if all finish now."""
        return self._items.abort(request_id)

    def _submit(
        self, items: Sequence[Item], answers: Sequence[Answer], terms: Terms, stream: Stream | None = None
    ) -> list[Submission]:
        """Admit items. answers: one for each item, or one for all. Raises the errors of admission."""
        try:
            with self._lock:
                entries = self._queue.admit(items, stream=stream, **terms)
                groups = [entries] if len(answers) == 1 else [[entry] for entry in entries]
                submissions = [Submission.of(*group) for group in zip(groups, answers, strict=True)]
                self._items.register(entries, terms.get("deadline"))
                self._preparation.submit(entries)
        except GLiNERBentoError:
            self._observer.on_finish("refused", len(items))
            raise
        return submissions

    def _on_done(self, sequences: range, future: Future[Result]) -> None:
        """A future is answered or cancelled."""
        if future.cancelled():
            self._items.cancel(sequences)

    # Threads

    def _guard(self, name: str, loop: Callable[[], None]) -> None:
        """Run the loop of a thread; if it dies, log it, and report the scheduler as not ready."""
        try:
            loop()
        except BaseException:
            logger.critical("the scheduler's thread %s has died", name, exc_info=True)
            with self._lock:
                self._broken = True

    def _end_hung(self, on_hang: Callable[[str], None], work: Work) -> None:
        """Fail the items of `work` with a 500, which clients do not retry, and then all others with a 503."""
        reason = (
            f"{work.doing} of {len(work.entries)} items has not ended within {self._hang_timeout_s:g} s "
            f"(hang_timeout_s), at {code_location(work)}"
        )
        with self._lock:
            self._broken = True
            self._queue.close("the model does not respond")
            others = self._queue.unfinished()
        self._items.fail_all(work.entries, lambda: InternalError("the model did not finish this item (hang_timeout_s)"))
        self._items.fail_all(others, lambda: NotReady("the model does not respond; try again"))
        on_hang(reason)


def _answer(future: Future[Result], outcomes: Sequence[ResultOrError]) -> None:
    """Set a future to the only outcome, unless its caller has cancelled it."""
    (outcome,) = outcomes
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, GLiNERBentoError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
