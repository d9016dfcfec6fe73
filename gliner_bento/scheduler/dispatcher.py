"""The lanes' threads and the collator: from the waiting queue to finished items. Each lane runs one loop:

    schedule ──▶ forward ──▶ postprocess ──▶ results
       ▲            │             │
       └── halves ──┴── failed ───┘

schedule: take half of a failed batch, or a batch that is collated already, else form one from the waiting entries.
forward: collate the batch if necessary, and run the model. postprocess: decode in the decoding pool, and finish the
items. A batch that fails is split in halves.

While all lanes are busy, the express lane runs short requests, a batch at a time, in a thread of higher priority; and
the collator forms full batches and makes their tensors, for the next lane that is free.

Knows nothing of admission and futures. Uses the queue's lock.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from gliner_bento.engine.base import Engine, SlotState
from gliner_bento.errors import InternalError, NotReady
from gliner_bento.fairness.constants import QUOTAS_PER_BATCH
from gliner_bento.scheduler.batching import BatchLimits, at_least
from gliner_bento.scheduler.entry import WAITING, Entry
from gliner_bento.scheduler.items import Items
from gliner_bento.scheduler.lanes import Lanes, LaneState
from gliner_bento.scheduler.observer import Observer
from gliner_bento.scheduler.queue import NextBatch
from gliner_bento.scheduler.stages import Batch, Stages
from gliner_bento.scheduler.turns import ModelTurns
from gliner_bento.scheduler.watchdog import Watchdog

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig(BatchLimits):
    """The limits of a batch, and how many batches run concurrently.

    inference_lanes: number of lanes, the threads that run batches.
    torch_threads: number of torch threads of each lane; one lane may also use those of idle lanes (see `Lanes`).
    decoding_threads: threads that decode batches while lanes run the next ones; 0: each lane decodes its batches.
    batch_wait_timeout_ms: a partial batch is held for items in preparation, at most this long after its oldest item's
        admission.
    """

    inference_lanes: int
    torch_threads: int
    decoding_threads: int = at_least(0)
    batch_wait_timeout_ms: float = at_least(0)


class BatchDispatcher:
    """Runs the waiting entries in batches, and finishes them.

    turns: this model's turns on a device that several models share; None: only this model runs on the device.
    """

    def __init__(
        self,
        engine: Engine,
        config: DispatcherConfig,
        items: Items,
        *,
        observer: Observer,
        watchdog: Watchdog,
        clock: Callable[[], float],
        turns: ModelTurns | None = None,
    ) -> None:
        self._turns = turns
        self._engine = engine
        self._config = config
        self._limits = lru_cache(maxsize=1024)(partial(_limits, config))
        self._items = items
        self._queue = items.queue
        self._lock = items.queue.lock
        self._clock = clock
        self._observer = observer
        self._stages = Stages(engine, items, observer, watchdog, clock)
        self._lane_work = [threading.Condition(self._lock) for _ in range(config.inference_lanes)]
        self._collator_work = threading.Condition(self._lock)
        self._express_work = threading.Condition(self._lock)
        self._lane_started = threading.Condition(self._lock)
        self._next_batches: deque[Batch] = deque()  # collated, or halves of failed ones; run before waiting entries
        self._running: dict[int, Batch] = {}  # by lane
        self._express_batch: Batch | None = None  # what the express lane runs
        self._express_state: LaneState = "starting"
        self._closed = False
        self.lanes = Lanes(config.inference_lanes)
        items.queue.wake = self.wake
        items.queue.awaited = lambda: bool(self.lanes.idle)
        self._decoders = (
            ThreadPoolExecutor(config.decoding_threads, thread_name_prefix="decode")
            if config.decoding_threads
            else None
        )

    @property
    def loops(self) -> dict[str, Callable[[], None]]:
        """The loops of the dispatcher's threads, by the thread's name."""
        lanes = {f"lane-{number}": partial(self._run_lane, number) for number in range(self._config.inference_lanes)}
        return {"collator": self._run_collator, "express": self._run_express_lane, **lanes}

    def wait_for_lanes(self) -> None:
        """Return when every lane, and the express lane, has started or failed to."""
        with self._lane_started:
            self._lane_started.wait_for(lambda: "starting" not in (*self.lanes.states, self._express_state))

    def wake(self) -> None:
        """Wake an idle lane, or the express lane, because there is new work or a held batch may run now. Called with
        the lock held.

        The lane wakes the next one if work is left. Waking every lane would cost latency while all cores are busy.
        """
        express = self._has_express_work()
        if express:
            self._express_work.notify()
        if self.lanes.idle:
            self._lane_work[min(self.lanes.idle)].notify()
        elif not express and self._may_collate_ahead():
            self._collator_work.notify()

    def close(self) -> None:
        """End the threads after the batches that they run now. Called with the lock held."""
        self._closed = True
        if self._turns:
            self._turns.leave()
        for condition in (*self._lane_work, self._collator_work, self._express_work):
            condition.notify()
        if self._decoders:
            self._decoders.shutdown(wait=False)

    # One lane: schedule, forward, postprocess

    def _run_lane(self, number: int) -> None:
        """The loop of one lane, in its inference thread."""
        batch: Batch | None = None
        decoding: Future[None] | None = None
        try:
            self._start_lane(number)
            while (batch := self._schedule(number)) is not None:
                # A lane also computes with the threads of idle ones.
                if self._forward(batch, self._config.torch_threads * (1 + batch.shared_lanes)):
                    decoding = self._postprocess(batch, decoding)
                batch = None  # an idle lane keeps no tensors alive
        except BaseException:
            self._fail_lane(number, batch)
            raise

    def _start_lane(self, number: int) -> None:
        self._engine.start_lane()
        with self._lock:
            self.lanes.set_state(number, "alive")
            self._lane_started.notify_all()

    def _schedule(self, number: int) -> Batch | None:
        """The batch that a free lane runs next. Blocks until there is one; returns None once closed."""
        while True:
            with self._lock:
                if self._turns and not self._has_work():
                    self._turns.release(number)
                self._wait_for_work(number)
                if self._closed:
                    return None
                expired = bool(self._queue.expired())
                if not expired and not self._turns:
                    return self._take_batch(number)
            if expired:
                self._items.expire()
            elif self._turns:
                self._turns.acquire(number)
                with self._lock:
                    if self._has_work():
                        return self._take_batch(number)

    def _forward(self, batch: Batch, threads: int) -> bool:
        """Run the model. Returns whether there is something to decode."""
        halves = self._stages.forward(batch, threads)
        self._run_again(halves or ())
        return halves is None

    def _decode(self, batch: Batch) -> None:
        self._run_again(self._stages.decode(batch))

    def _run_again(self, halves: Sequence[Batch]) -> None:
        """Run the halves of a failed batch before anything that waits."""
        if halves:
            with self._lock:
                self._next_batches.extendleft(reversed(halves))
                self.wake()

    def _postprocess(self, batch: Batch, previous: Future[None] | None) -> Future[None] | None:
        """Decode `batch` and finish its items: in the decoding pool, after the lane's `previous` batch; without a pool,
        in the lane. Returns the future of the pool, if any."""
        if self._decoders is None:
            self._decode(batch)
            return None
        if previous:
            wait([previous])
        with self._lock:
            return None if self._closed else self._decoders.submit(self._decode, batch)

    def _fail_lane(self, number: int, batch: Batch | None) -> None:
        """Lane `number` is dead: fail its batch, and every item if it was the last lane."""
        with self._lock:
            self.lanes.set_state(number, "dead")
            if self._turns:
                self._turns.release(number)
            self._running.pop(number, None)
            self._lane_started.notify_all()
            stranded: list[Entry] = []
            if set(self.lanes.states) == {"dead"}:
                self._queue.close("no inference lane is alive")
                stranded = self._queue.unfinished()
        self._items.fail_all(batch.entries if batch else (), InternalError)
        self._items.fail_all(stranded, lambda: NotReady("no inference lane is alive"))

    # The express lane

    def _run_express_lane(self) -> None:
        """The loop of the express lane, in its thread, which also decodes."""
        batch: Batch | None = None
        try:
            self._engine.start_express_lane()
            self._set_express_state("alive")
            while (batch := self._schedule_express()) is not None:
                if self._forward(batch, threads=1):
                    self._decode(batch)
                batch = None
        except BaseException:
            self._set_express_state("dead")
            self._items.fail_all(batch.entries if batch else (), InternalError)
            raise

    def _set_express_state(self, state: LaneState) -> None:
        with self._lock:
            self._express_state = state
            if self._turns and state == "dead":
                self._turns.end_express()
            self._lane_started.notify_all()

    def _schedule_express(self) -> Batch | None:
        """The batch that the express lane runs next. Blocks until there is one; returns None once closed."""
        while True:
            with self._lock:
                self._express_batch = None
                if self._turns:
                    self._turns.end_express()
                self._express_work.wait_for(lambda: self._closed or self._has_express_work())
                if self._closed:
                    return None
                expired = bool(self._queue.expired())
                if not expired and not self._turns:
                    return self._take_express_batch()
            if expired:
                self._items.expire()
            elif self._turns:
                self._turns.begin_express()
                with self._lock:
                    if self._has_express_work():
                        return self._take_express_batch()

    def _has_express_work(self) -> bool:
        """Whether the express lane may take a batch now. Called with the lock held. Cheap, because every arrival calls
        it."""
        return self._express_batch is None and self._awaits_express()

    def _awaits_express(self) -> bool:
        """Whether the express lane may take a batch now, or when its own ends: every lane is busy, or waits for its
        turn, and a short request waits that would otherwise wait for a lane."""
        if self._express_state == "dead" or not self._queue.tally(WAITING).short:
            return False
        lane_is_free = bool(self.lanes.idle) and not (self._turns and self._turns.full)
        if lane_is_free:
            return False
        limits, budget_tokens, slots, excluded = self._express_terms()
        return self._queue.has_express_batch(limits, max_lead=budget_tokens, slots=slots, excluded=excluded)

    def _form_express_batch(self) -> NextBatch | None:
        """The express lane's next batch."""
        limits, budget_tokens, slots, excluded = self._express_terms()
        lanes = self._config.inference_lanes + 1
        return self._queue.next_express_batch(
            limits, max_lead=budget_tokens, slots=slots, lanes=lanes, excluded=excluded
        )

    def _express_terms(self) -> tuple[BatchLimits, int, SlotState, Collection[str]]:
        """Limits of an express batch, the budget of a lane's batch, the slots, and tenants to leave out: a tenant while
        a lane runs a batch of short requests with several of its own. They fill lanes' batches, which are larger and so
        take less time per text."""
        excluded = {tenant for batch in self._running.values() for tenant in batch.short_tenants}
        budget_tokens = self._budget_tokens()
        return (
            self._limits(budget_tokens // QUOTAS_PER_BATCH),
            budget_tokens,
            self._engine.slot_state(),
            excluded,
        )

    def _take_express_batch(self) -> Batch:
        """The express lane's next batch, which must exist. Wakes another thread if work is left."""
        formed = self._form_express_batch()
        assert formed is not None
        self._express_batch = Batch(self._queue.take(formed))
        self._observer.on_express()
        if self._queue.waiting_entries:
            self.wake()
        return self._express_batch

    # Scheduling, with the lock held

    def _wait_for_work(self, number: int) -> None:
        """Return when there is a batch for lane `number`, or the dispatcher is closed; until then the lane is idle."""
        self.lanes.idle.append(number)
        self._running.pop(number, None)
        while not self._closed and not self._next_batches:
            timeout_s = self._hold_s() if self._queue.waiting_entries else None
            if timeout_s == 0:
                break
            self._lane_work[number].wait(timeout_s)
        self.lanes.idle.remove(number)

    def _has_work(self) -> bool:
        """Whether a lane may take a batch now."""
        return bool(self._next_batches) or (self._queue.waiting_entries > 0 and self._hold_s() == 0)

    def _hold_s(self) -> float:
        """For how many seconds an idle lane does not take a batch yet, although entries wait.

        It holds a partial batch while items in preparation could join and no other lane is free, at most
        `batch_wait_timeout_ms` after the admission of the batch's oldest item.
        """
        if not self._config.batch_wait_timeout_ms or not self._queue.preparing_items or self.lanes.free > 1:
            return 0
        batch = self._form()
        oldest_s = min(entry.admitted_s for entry in batch.entries)
        left_s = oldest_s + self._config.batch_wait_timeout_ms / 1000 - self._clock()
        return 0 if batch.full else max(0.0, left_s)

    def _take_batch(self, number: int) -> Batch:
        """The next batch, for lane `number`. Wakes another thread if work is left."""
        if self._next_batches:
            batch = self._next_batches.popleft()
        else:
            max_tokens = self.lanes.tokens_per_lane(self._queue.waiting_cost)
            batch = Batch(self._queue.take(self._form(max_tokens)))
        left = self._queue.waiting_entries + len(self._next_batches)
        self._running[number] = batch
        alone = self._turns is None or self._turns.alone  # if not, another model computes with the idle lanes' threads
        if alone:
            batch.shared_lanes = self.lanes.shared_by(number, left + self._queue.preparing_items)
        if left:
            self.wake()
        return batch

    def _form(self, max_tokens: int | None = None) -> NextBatch:
        """The next batch, with a cost of at most `max_tokens`. An entry must be waiting."""
        budget_tokens = self._budget_tokens()
        if max_tokens is not None:
            budget_tokens = max(1, min(budget_tokens, max_tokens))
        limits = self._limits(budget_tokens)
        quota = self._queue.batch_quota(budget_tokens // QUOTAS_PER_BATCH)
        slots, lanes = self._engine.slot_state(), self._config.inference_lanes
        return self._queue.next_batch(limits, slots=slots, lanes=lanes, quota=quota)

    def _budget_tokens(self) -> int:
        """Maximum cost of a batch now: the setting, or less if the device's memory requires it."""
        limit = self._engine.batch_tokens
        return self._config.max_batch_tokens if limit is None else max(1, min(limit, self._config.max_batch_tokens))

    # Collator

    def _run_collator(self) -> None:
        """While all lanes are busy, make the tensors of the next batches, at most one batch per lane.

        Takes only full batches, because others can still grow until a lane is free. Takes no batch with passes, because
        requests that arrive meanwhile may be served before passes; nor one that leaves out those who send now. While a
        short request waits for the express lane, takes none: the request would be in it, and wait for a lane.
        """
        while (batch := self._schedule_ahead()) is not None:
            try:
                self._stages.collate(batch)
            except Exception as error:
                logger.warning("a batch could not be collated ahead; its lane will collate it: %s", repr(error))
            finally:
                with self._lock:
                    self._next_batches.append(batch)
                    self.wake()

    def _schedule_ahead(self) -> Batch | None:
        """A full batch to collate. Blocks until there is one; returns None once closed."""
        with self._lock:
            while not self._closed:
                if (batch := self._take_ahead()) is not None:
                    return batch
                self._collator_work.wait()
            return None

    def _take_ahead(self) -> Batch | None:
        """The batch to collate now; None if there is none. Called with the lock held."""
        if not self._may_collate_ahead() or self._awaits_express():
            return None
        batch = self._form()
        has_pass = any(entry.is_pass for entry in batch.entries)
        if not batch.full or has_pass or self._queue.excludes_others(batch.entries):
            return None
        return Batch(self._queue.take(batch))

    def _may_collate_ahead(self) -> bool:
        """Whether all lanes are busy and a full batch may be waiting. Cheap, because every arrival calls it."""
        if self.lanes.free or len(self._next_batches) >= self.lanes.alive:
            return False
        limits = self._config
        return (
            self._queue.waiting_entries >= min(limits.max_batch_size, limits.batch_lookahead)
            or 2 * self._queue.waiting_cost > self._budget_tokens()  # `is_full` counts at most twice the cost
        )


def _limits(config: DispatcherConfig, max_tokens: int) -> BatchLimits:
    """The limits of a batch with a cost of at most `max_tokens`, but at least 1. To be cached, because `replace` checks
    every field, and arrivals need the limits of the express lane."""
    return replace(config, max_batch_tokens=max(1, max_tokens))
