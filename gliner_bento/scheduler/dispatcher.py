"""From the waiting queue to the items' endings: the lanes' threads, the collator and the decoding pool.

    waiting queue ─┬─▶ a free lane takes its share of what waits ──┬─▶ forward ─▶ decoding pool ─▶ finish
                   └─▶ collator, all lanes busy: full batches ─────┘      └── a batch that fails: halves, first in line

Knows nothing of admission and deadlines: it shares the scheduler's lock and queue, and tells how each item ended.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial

from gliner_bento.engine.base import Engine
from gliner_bento.errors import InternalError, NotReady
from gliner_bento.scheduler.batching import BatchLimits, least
from gliner_bento.scheduler.lanes import Lanes
from gliner_bento.scheduler.observer import Observer
from gliner_bento.scheduler.queue import Entry, NextBatch, WaitingQueue
from gliner_bento.scheduler.stages import Batch, Ending, Stages

logger = logging.getLogger(__name__)

# While items of one pass have come within so many seconds, one lane runs no passes of long texts: a window takes far
# longer than a short text, and nothing stops one that runs.
_KEPT_FOR_OTHERS_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig(BatchLimits):
    """The limits of a batch, and how much runs at once.

    inference_lanes: threads that run batches, each with `torch_threads` for computing, which it lends while idle.
    decoding_threads: threads that decode batches while the lanes run the next ones; 0: each lane decodes its own.
    batch_wait_timeout_ms: how long after its admission an item may be kept for company that is on its way.
    """

    inference_lanes: int
    torch_threads: int
    decoding_threads: int = least(0)
    batch_wait_timeout_ms: float = least(0)


class Dispatcher:
    """Runs what waits in `queue`. `lock` guards all state and is never held while foreign code runs, but for the
    engine's `batch_tokens` and `slot_state`, which are read under it.

    finish: told how each item ended. expire: ends the items whose deadline has passed.
    """

    def __init__(
        self,
        engine: Engine,
        config: DispatcherConfig,
        queue: WaitingQueue,
        lock: threading.Lock,
        *,
        finish: Callable[[int, Ending], None],
        expire: Callable[[], None],
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._config = config
        self._queue = queue
        self._lock = lock
        self._finish = finish
        self._expire = expire
        self._clock = clock
        self._stages = Stages(engine, finish, self._run_again, observer, clock)
        self._work = [threading.Condition(lock) for _ in range(config.inference_lanes)]  # one for each lane, when idle
        self._ahead = threading.Condition(lock)  # for the collator
        self._started = threading.Condition(lock)
        self._ready: deque[Batch] = deque()  # for whichever lane is free next, before anything that waits
        self._reading: set[int] = set()  # lanes that run passes of long texts
        self._closed = False
        self.lanes = Lanes(config.inference_lanes)
        self._decoders = (
            ThreadPoolExecutor(config.decoding_threads, thread_name_prefix="decode")
            if config.decoding_threads
            else None
        )

    @property
    def loops(self) -> dict[str, Callable[[], None]]:
        """What to run, each in a thread of its own with this name."""
        lanes = {f"lane-{number}": partial(self._run_lane, number) for number in range(self._config.inference_lanes)}
        return {"collator": self._collate_ahead, **lanes}

    def wait_for_lanes(self) -> None:
        """Return when every lane has started or failed to."""
        with self._started:
            self._started.wait_for(lambda: "starting" not in self.lanes.states)

    def wake(self) -> None:
        """Something has come to wait, or will not come any more. Called with the lock held.

        One free lane is enough: it wakes the next if it leaves something. With two cores busy, a herd costs latency.
        """
        if self.lanes.idle:
            self._work[min(self.lanes.idle)].notify()
        elif self._may_collate_ahead():
            self._ahead.notify()

    def close(self) -> None:
        """Let the threads end, after what they run now. Called with the lock held, and all items being ended."""
        self._closed = True
        for work in self._work:
            work.notify()
        self._ahead.notify()
        if self._decoders:
            self._decoders.shutdown(wait=False)

    # Lanes

    def _run_lane(self, number: int) -> None:
        """One lane's life, in its inference thread. A lane that dies takes its batch along, the last one everything."""
        batch: Batch | None = None
        decoding: Future[None] | None = None
        try:
            self._engine.start_lane()
            with self._lock:
                self.lanes.become(number, "alive")
                self._started.notify_all()
            while (batch := self._next_batch(number)) is not None:
                decoding = self._run(batch, decoding)
                batch = None  # an idle lane holds on to nothing
        except BaseException:
            self._bury(number, batch)
            raise

    def _run(self, batch: Batch, earlier: Future[None] | None) -> Future[None] | None:
        """Run `batch`; its decoding, which begins when that of the lane's `earlier` batch has ended."""
        forwarded = self._stages.forward(batch, self._config.torch_threads * (1 + batch.borrowed_lanes))
        if forwarded is None:
            return earlier
        if self._decoders is None:
            self._stages.decode(forwarded)
            return None
        if earlier:
            wait([earlier])
        with self._lock:
            return None if self._closed else self._decoders.submit(self._stages.decode, forwarded)

    def _next_batch(self, number: int) -> Batch | None:
        """What a free lane runs next: a batch made ahead, else its share of what waits. Blocks; None at the end."""
        while True:
            with self._lock:
                self.lanes.idle.append(number)
                self._reading.discard(number)
                while not self._closed and not self._ready:
                    patience_s = self._patience_s() if self._queue.waiting_items else None
                    if patience_s == 0:
                        break
                    self._work[number].wait(patience_s)
                self.lanes.idle.remove(number)
                if self._closed:
                    return None
                if not self._queue.expired():
                    return self._take(number)
            self._expire()

    def _patience_s(self) -> float:
        """How long the free lanes go on waiting for company for what waits, which is not nothing.

        Only for items that are being prepared, while they could join, and where no other lane is free for them. And
        with nothing but passes of long texts waiting, for as long as this lane is kept for others.
        """
        if self._queue.only_passes_wait and (kept_s := self._kept_for_others_s()):
            return kept_s
        if not self._config.batch_wait_timeout_ms or not self._queue.preparing_items or self.lanes.free > 1:
            return 0
        batch = self._form(passes=not self._kept_for_others_s())
        oldest_s = min(entry.admitted_s for entry in batch.entries)
        left_s = oldest_s + self._config.batch_wait_timeout_ms / 1000 - self._clock()
        return 0 if batch.full else max(0.0, left_s)

    def _take(self, number: int) -> Batch:
        """A batch for lane `number`, which has just stopped being free, and wake those whom the rest concerns."""
        if self._ready:
            batch = self._ready.popleft()
        else:
            share = self.lanes.share(self._queue.waiting_cost)
            batch = Batch(self._queue.take(self._form(share, passes=not self._kept_for_others_s())))
        waiting = self._queue.waiting_items + len(self._ready)
        if any(entry.whole for entry in batch.entries):
            self._reading.add(number)
        if not (number in self._reading and self._kept_for_others_s()):
            batch.borrowed_lanes = self.lanes.borrow(number, waiting + self._queue.preparing_items)
        if waiting:
            self.wake()
        return batch

    def _kept_for_others_s(self) -> float:
        """How long a lane that is free now is none for passes of long texts: all others run such, and items of one pass
        have been coming that are not less urgent."""
        came = self._queue.last_item
        if came is None or not 0 < self.lanes.alive - 1 <= len(self._reading) or self._queue.most_urgent < came[1]:
            return 0
        return max(0.0, came[0] + _KEPT_FOR_OTHERS_S - self._clock())

    def _form(self, share: int | None = None, *, passes: bool = True) -> NextBatch:
        """What would run now; something waits. passes: see `WaitingQueue.next_batch`."""
        room, lanes = self._engine.slot_state(), self._config.inference_lanes
        return self._queue.next_batch(self._limits(share), room, lanes, passes=passes)

    def _limits(self, share: int | None = None) -> BatchLimits:
        """The limits of a batch that is formed now."""
        rooms = (self._config.max_batch_tokens, self._engine.batch_tokens, share)
        return replace(self._config, max_batch_tokens=max(1, min(room for room in rooms if room is not None)))

    def _run_again(self, halves: Sequence[Batch]) -> None:
        with self._lock:
            self._ready.extendleft(reversed(halves))
            self.wake()

    def _bury(self, number: int, batch: Batch | None) -> None:
        """Lane `number` is dead: fail what it held, and everything if it was the last."""
        with self._lock:
            self.lanes.become(number, "dead")
            self._started.notify_all()
            stranded: list[Entry] = []
            if set(self.lanes.states) == {"dead"}:
                self._queue.close("no inference lane is alive")
                stranded = self._queue.unfinished()
        for entry in batch.entries if batch else ():
            self._finish(entry.sequence, InternalError())
        for entry in stranded:
            self._finish(entry.sequence, NotReady("no inference lane is alive"))

    # Collator

    def _collate_ahead(self) -> None:
        """Make tensors of full batches while all lanes are busy, one batch per lane ahead at most.

        Only of full ones: a batch that could still grow is better formed when a lane is free to run it. Nor of passes
        of long texts, which let others pass until then.
        """
        while (batch := self._next_to_collate()) is not None:
            try:
                self._stages.collate(batch)
            except Exception as error:
                logger.warning("a batch could not be collated ahead, its lane tries again: %s", repr(error))
            finally:
                with self._lock:
                    self._ready.append(batch)
                    self.wake()

    def _next_to_collate(self) -> Batch | None:
        with self._lock:
            while not self._closed:
                if self._may_collate_ahead():
                    batch = self._form()
                    if batch.full and not any(entry.whole for entry in batch.entries):
                        return Batch(self._queue.take(batch))
                self._ahead.wait()
            return None

    def _may_collate_ahead(self) -> bool:
        """All lanes are busy, and there may be a full batch to make: a cheap look, at every arrival."""
        limits = self._config
        much_waits = (
            self._queue.waiting_items >= min(limits.max_batch_size, limits.batch_lookahead)
            or 2 * self._queue.waiting_cost > self._limits().max_batch_tokens
        )
        return much_waits and not self.lanes.free and len(self._ready) < self.lanes.alive
