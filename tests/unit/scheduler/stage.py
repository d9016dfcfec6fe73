"""Test doubles of the scheduler's tests: a clock that stands still, a gate in front of the device, adapters that the
test loads, and a counting observer."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from collator import collator_rests
from doubles.fake_engine import FakeChunkedRequest
from waiting import PATIENCE_S, wait_until

from gliner_bento.engine.base import ChunkedRequest, Engine, Prepared
from gliner_bento.scheduler.entry import State
from gliner_bento.scheduler.observer import Observer, Outcome, Stage
from gliner_bento.scheduler.scheduler import Scheduler
from gliner_bento.tasks.extraction import Entity, Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

LONG = " ".join(f"Name{number}" for number in range(40))

MakeItem = Callable[[str], Item]
Until = Callable[[Callable[[], bool]], None]


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Gate:
    """Blocks a stage: reports which batch has arrived, and holds it until the test lets it through."""

    def __init__(self) -> None:
        self._arrivals: queue.Queue[list[str]] = queue.Queue()
        self._passes = threading.Semaphore(0)

    def __call__(self, batch: Sequence[Prepared]) -> None:
        self.hold([prepared.item for prepared in batch])

    def hold(self, items: Sequence[Item]) -> None:
        self._arrivals.put([item.text for item in items])
        if not self._passes.acquire(timeout=PATIENCE_S):
            raise TimeoutError("nobody opened the gate")

    def arrival(self) -> list[str]:
        """The texts of the next batch that comes to the gate."""
        return self._arrivals.get(timeout=PATIENCE_S)

    @property
    def nothing_came(self) -> bool:
        return self._arrivals.empty()

    def let_through(self, batches: int = 1) -> None:
        self._passes.release(batches)

    def open(self) -> None:
        self.let_through(10_000)


class Lease:
    """A lease of an adapter that counts its releases. on_release: called at each."""

    def __init__(
        self, key: Hashable, ready: Future[None] | None = None, on_release: Callable[[], object] = lambda: None
    ) -> None:
        self.key = key
        self.ready = ready or in_memory()
        self.releases = 0
        self._on_release = on_release
        self._lock = threading.Lock()

    def release(self) -> None:
        with self._lock:
            self.releases += 1
        self._on_release()


def in_memory() -> Future[None]:
    """An adapter that is loaded."""
    ready: Future[None] = Future()
    ready.set_result(None)
    return ready


class Adapters:
    """Leases for items that name an adapter; the test loads it or lets it fail.

    leases: in the order in which the engine requested them. on_release: called at each release.
    """

    def __init__(self, *loaded: str, on_release: Callable[[], object] = lambda: None) -> None:
        self.leases: list[Lease] = []
        self._ready: dict[str, Future[None]] = {}
        self._on_release = on_release
        self.load(*loaded)

    def __call__(self, item: Item) -> Lease | None:
        if item.adapter_id is None:
            return None
        lease = Lease(item.adapter_id, self._ready_of(item.adapter_id), self._on_release)
        self.leases.append(lease)
        return lease

    def load(self, *adapter_ids: str) -> None:
        for adapter_id in adapter_ids:
            self._ready_of(adapter_id).set_result(None)

    def fail(self, adapter_id: str, error: BaseException | None) -> None:
        """None: its loading is cancelled."""
        ready = self._ready_of(adapter_id)
        if error is None:
            assert ready.cancel()
        else:
            ready.set_exception(error)

    @property
    def releases(self) -> list[int]:
        """How often each lease was released."""
        return [lease.releases for lease in self.leases]

    def _ready_of(self, adapter_id: str) -> Future[None]:
        return self._ready.setdefault(adapter_id, Future())  # in one step, for several threads that prepare


class Tally(Observer):
    """An observer that counts: `tally["completed"]`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.stages: set[Stage] = set()

    def __getitem__(self, name: str) -> int:
        with self._lock:
            return self.counts[name]

    def on_stage(self, stage: Stage, seconds: float) -> None:
        self.stages.add(stage)

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        self._add(batches=1, batched_items=size, padded_tokens=padded_tokens, real_tokens=real_tokens)

    def on_express(self) -> None:
        self._add(express=1)

    def on_split(self, size: int) -> None:
        self._add(splits=1)

    def on_not_finite(self) -> None:
        self._add(not_finite=1)

    def on_finish(self, outcome: Outcome, items: int = 1) -> None:
        self._add(**{outcome: items})

    def _add(self, **counts: int) -> None:
        with self._lock:
            self.counts.update(counts)


class Start(Protocol):
    """Start a scheduler with these settings changed."""

    def __call__(self, engine: Engine, *, observer: Observer | None = None, **changes: float) -> Scheduler: ...


def ending_of(future: Future[Extraction]) -> Extraction | BaseException:
    return future.exception(timeout=PATIENCE_S) or future.result()


def wait_for_idle_lanes(scheduler: Scheduler, at_least: int = 1) -> None:
    """A short text that arrives while no lane is idle, because it has just started or ended a batch, would run in the
    express lane."""
    wait_until(lambda: (stats := scheduler.stats).lanes_free >= min(at_least, stats.lanes_alive))


def hold_lane(scheduler: Scheduler, gate: Gate, item: MakeItem, text: str = "holds the lane") -> Future[Extraction]:
    """Submit one item and return when a lane stands at the gate with it. A lane must be free, or become free."""
    wait_for_idle_lanes(scheduler)
    future = scheduler.submit(item(text), request_id=text)
    assert gate.arrival() == [text]
    return future


def settle(scheduler: Scheduler, until: Until) -> None:
    """Return when no item is in preparation, and the collator has nothing to do: batches ahead are collated."""
    until(lambda: scheduler.stats.preparing_items == 0)
    until(lambda: collator_rests(scheduler))


def submit_waiting(
    scheduler: Scheduler, until: Until, items: Sequence[Item], **options: Any
) -> list[Future[Extraction]]:
    """Submit items while every lane is held, and return when all of them wait, whatever other items do meanwhile."""
    futures = [scheduler.submit(item, **({"request_id": item.text} | options)) for item in items]
    until(lambda: not _prepares(scheduler, items))
    return futures


def _prepares(scheduler: Scheduler, items: Sequence[Item]) -> bool:
    with scheduler._lock:
        preparing = [entry.item for entry in scheduler._queue.unfinished() if entry.state < State.WAITING]
        return any(one is other for one in preparing for other in items)


class LongTexts:
    """Texts of more than three words take passes of two words each; `made` holds their chunked requests."""

    def __init__(self, words: int = 2, per_call: int = 1) -> None:
        self.made: list[FakeChunkedRequest] = []
        self._words = words
        self._per_call = per_call

    def __call__(self, item: Item) -> ChunkedRequest | None:
        if len(item.text.split()) <= 3:
            return None
        self.made.append(FakeChunkedRequest(item, self._words, self._per_call))
        return self.made[-1]


class ListSink:
    """Keeps the entities; full after `capacity` calls of `put`."""

    def __init__(self, capacity: int = 1000) -> None:
        self.entities: list[Entity] = []
        self.capacity = capacity

    def put(self, parts: Sequence[Entity]) -> None:
        self.entities += parts
        self.capacity -= 1

    @property
    def full(self) -> bool:
        return self.capacity <= 0
