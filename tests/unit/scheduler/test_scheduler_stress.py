"""Thousands of concurrent items of every kind: each finishes exactly once, with the right result or the right error."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pytest
from doubles.fake_engine import FakeEngine, extract
from stage import PATIENCE_S, Lease, Tally
from views import view

from gliner_bento.engine.base import Prepared, SlotState
from gliner_bento.errors import (
    Aborted,
    AdapterInvalid,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    InvalidField,
    QueueFull,
)
from gliner_bento.scheduler.observer import Outcome, Stage
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

REQUESTS = 2000
CLIENTS = 4
MAX_BATCH_TOKENS = 300
SLOTS = 4
LANES = 2
ADAPTERS = ["a", "b", "c", "d", "e", "f"]
BROKEN_ADAPTER = "broken"
USES_OF_A_VERSION = 40
FAILURES = {
    "unpreparable": InvalidField,
    "uncollatable": InternalError,
    "unrunnable": InternalError,
    "undecodable": InternalError,
}


@dataclass
class Submitted:
    """One item, the error that it must fail with if any, and what else may happen to it first."""

    item: Item
    future: Future[Extraction]
    request_id: str
    must_fail: type[GLiNERBentoError] | None
    may_end: set[type[GLiNERBentoError]]
    endings: int = 0

    def __post_init__(self) -> None:
        self.future.add_done_callback(self._ended)

    def _ended(self, _: Future[Extraction]) -> None:
        self.endings += 1


class LoadingAdapters:
    """Adapters that load when they are first requested, fail if they are broken, and change now and then."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self._lock = threading.Lock()
        self._loaders = ThreadPoolExecutor(2)
        self._asked: Counter[str] = Counter()
        self._ready: dict[Hashable, Future[None]] = {}

    def lease(self, item: Item) -> Lease | None:
        adapter_id = item.adapter_id
        if adapter_id is None:
            return None
        with self._lock:
            key = (adapter_id, self._asked[adapter_id] // USES_OF_A_VERSION)
            self._asked[adapter_id] += 1
            if key not in self._ready:
                self._ready[key] = self._loaders.submit(self._load, adapter_id)
            self.leases.append(Lease(key, self._ready[key]))
            return self.leases[-1]

    def close(self) -> None:
        self._loaders.shutdown()

    def _load(self, adapter_id: str) -> None:
        time.sleep(0.002)
        if adapter_id == BROKEN_ADAPTER:
            raise AdapterInvalid("broken")


class Device(FakeEngine):
    """Knows which adapters it runs, and which it ran last. most_adapters: in one batch so far."""

    def __init__(self, **options: Any) -> None:
        super().__init__(slot_state=SlotState(SLOTS), on_collate=self._count, **options)
        self.most_adapters = 0
        self._lock = threading.Lock()
        self._in_use: Counter[Hashable] = Counter()
        self._recent: list[Hashable] = []

    def forward(self, collated: Sequence[Prepared], threads: int) -> list[Item]:
        adapters = adapters_of(collated)
        self._use(dict.fromkeys(adapters, 1))
        try:
            return super().forward(collated, threads)
        finally:
            self._use(dict.fromkeys(adapters, -1))

    def _use(self, adapters: dict[Hashable, int]) -> None:
        with self._lock:
            self._in_use.update(adapters)
            self._recent = list(dict.fromkeys([*adapters, *self._recent]))[:SLOTS]
            in_use = frozenset(+self._in_use)
            self.slots = SlotState(SLOTS, in_use.union(self._recent), in_use)

    def _count(self, batch: Sequence[Prepared]) -> None:
        self.most_adapters = max(self.most_adapters, len(adapters_of(batch)))


def adapters_of(batch: Sequence[Prepared]) -> set[Hashable]:
    return {prepared.adapter.key for prepared in batch if prepared.adapter}


class Batches(Tally):
    """Records the batches that ran, to check the limits."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, int]] = []

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        super().on_batch(size, padded_tokens, real_tokens, wait_s)
        self.batches.append((size, padded_tokens))


def random_item(chance: random.Random) -> tuple[Item, type[GLiNERBentoError] | None]:
    words = [chance.choice(["Ada", "met", "Marie", "in", "Paris"]) for _ in range(int(chance.paretovariate(1.0) * 5))]
    kind = chance.choices(["", *FAILURES], [92, 2, 2, 2, 2])[0]
    text = " ".join([kind, *words[: MAX_BATCH_TOKENS + 50]])
    adapter_id = chance.choice([*ADAPTERS, None]) if chance.random() < 0.98 else BROKEN_ADAPTER
    must_fail = AdapterInvalid if adapter_id == BROKEN_ADAPTER and kind != "unpreparable" else FAILURES.get(kind)
    return Item(text, {"person": "person"}, adapter_id=adapter_id), must_fail


def fails_as(kind: str, error: Exception) -> Callable[[Item], Exception | None]:
    return lambda item: error if item.text.startswith(kind) else None


def client(scheduler: Scheduler, seed: int, submitted: list[Submitted]) -> None:
    """Submit requests, and abort or cancel some of them before they finish."""
    chance = random.Random(seed)
    for number in range(REQUESTS // CLIENTS):
        items = [random_item(chance) for _ in range(chance.choice([1, 1, 1, 9]))]
        request_id = f"{seed}-{number // 3}"
        may_end: set[type[GLiNERBentoError]] = {QueueFull}
        deadline = None
        if chance.random() < 0.1:
            deadline = time.monotonic() + chance.choice([-1, 0.001, 0.02])
            may_end.add(DeadlineExceeded)
        futures = scheduler.submit_many(
            [item for item, _ in items],
            request_id=request_id,
            deadline=deadline,
            priority=chance.choice([0, 0, 0, -1, 1]),
        )
        submitted += [
            Submitted(item, future, request_id, must_fail, set(may_end))
            for (item, must_fail), future in zip(items, futures, strict=True)
        ]
        if chance.random() < 0.05:
            for sibling in submitted:
                if sibling.request_id == request_id:
                    sibling.may_end.add(Aborted)
            scheduler.abort(request_id)
        if chance.random() < 0.05:
            chance.choice(submitted[-20:]).future.cancel()
        if chance.random() < 0.02:
            wait(futures, timeout=PATIENCE_S)


def prelude(scheduler: Scheduler, device: threading.Event) -> list[Submitted]:
    """Fill the queue before anything runs, so that items share batches, split and are aborted whatever the timing."""
    texts = ["unrunnable" if number == 50 else f"Marie {number}" for number in range(100)]
    submitted = []
    for number, text in enumerate(texts):
        item = Item(text, {"person": "person"}, adapter_id=ADAPTERS[number % len(ADAPTERS)])
        future = scheduler.submit(item, request_id=f"prelude-{number}")
        submitted.append(Submitted(item, future, f"prelude-{number}", FAILURES.get(text), set()))
    while scheduler.stats.preparing_items:
        time.sleep(0.001)
    submitted[98].may_end.add(Aborted)
    assert scheduler.abort("prelude-98")
    assert submitted[99].future.cancel()
    device.set()
    return submitted


def check(one: Submitted) -> Outcome | Literal["cancelled"]:
    """How `one` finished, which must be a way that it may. A cancelled future hides how its item ended."""
    assert one.endings == 1
    if one.future.cancelled():
        return "cancelled"
    error = one.future.exception(timeout=0)
    if error is None:
        assert one.must_fail is None
        assert one.future.result() == extract(one.item)
        return "completed"
    assert type(error) in one.may_end or type(error) is one.must_fail
    if isinstance(error, Aborted):
        return "aborted"
    return "expired" if isinstance(error, DeadlineExceeded) else "failed"


@pytest.mark.parametrize(("packs", "decoding_threads", "batch_wait_timeout_ms"), [(False, 0, 0), (True, 2, 5)])
def test_every_item_finishes_exactly_once_with_the_right_outcome(
    packs: bool, decoding_threads: int, batch_wait_timeout_ms: float
) -> None:
    observer = Batches()
    device = threading.Event()

    def on_device(batch: Sequence[Prepared]) -> None:
        assert device.wait(PATIENCE_S)
        time.sleep(0.0002 * len(batch))  # so that a queue builds up

    adapters = LoadingAdapters()
    engine = Device(
        lease=adapters.lease,
        on_prepare=lambda item: time.sleep(0.0002),  # so that some finish meanwhile
        prepare_error=fails_as("unpreparable", InvalidField("text: cannot be prepared")),
        collate_error=fails_as("uncollatable", ValueError("cannot be collated")),
        forward_error=fails_as("unrunnable", ValueError("cannot be run")),
        decode_error=fails_as("undecodable", ValueError("cannot be decoded")),
        packs=packs,
        on_forward=on_device,
    )
    config = view(
        SchedulerConfig,
        max_batch_size=8,
        max_batch_tokens=MAX_BATCH_TOKENS,
        batch_lookahead=64,
        max_bypasses=8,
        queue_capacity=400,
        inference_lanes=LANES,
        tokenizer_threads=2,
        decoding_threads=decoding_threads,
        batch_wait_timeout_ms=batch_wait_timeout_ms,
    )
    scheduler = Scheduler(engine, config, observers=[observer])
    scheduler.start()
    everyone = prelude(scheduler, device)
    submitted: list[list[Submitted]] = [[] for _ in range(CLIENTS)]
    clients = [threading.Thread(target=client, args=(scheduler, seed, mine)) for seed, mine in enumerate(submitted)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert scheduler.drain(PATIENCE_S)
    stats = scheduler.stats
    scheduler._pool.shutdown()
    scheduler.close()
    adapters.close()

    for mine in submitted:
        everyone += mine
    seen = Counter(check(one) for one in everyone)
    hidden = {
        "completed": observer["completed"] - seen["completed"],
        "aborted": observer["aborted"] - seen["aborted"],
        "failed": observer["failed"] + observer["expired"] + observer["refused"] - seen["failed"] - seen["expired"],
    }
    assert min(hidden.values()) >= 0
    assert hidden["aborted"] > 0  # the last item of the prelude, which cannot have run
    assert sum(hidden.values()) == seen["cancelled"]
    assert (stats.unfinished_items, stats.lanes_alive) == (0, LANES)
    assert set(seen) == {"completed", "failed", "aborted", "expired", "cancelled"}
    assert observer["splits"] > 0
    assert all(size <= config.max_batch_size for size, _ in observer.batches)
    assert all(size == 1 or padded <= MAX_BATCH_TOKENS for size, padded in observer.batches)
    assert max(size for size, _ in observer.batches) == config.max_batch_size
    assert observer.stages == set(get_args(Stage))
    assert {lease.releases for lease in adapters.leases} == {1}
    assert 1 < engine.most_adapters <= SLOTS
