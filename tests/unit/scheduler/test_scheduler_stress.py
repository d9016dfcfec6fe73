"""Thousands of items of every kind at once: each ends exactly once, with the right answer or the right error."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import get_args

import pytest
from stage import PATIENCE_S, Tally

from gliner_bento.engine.base import Extraction, Item, Prepared
from gliner_bento.engine.fake import FakeEngine, extract
from gliner_bento.errors import Aborted, DeadlineExceeded, GLiNERBentoError, InternalError, InvalidField, QueueFull
from gliner_bento.scheduler.observer import Outcome, Stage
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig

REQUESTS = 2000
CLIENTS = 4
MAX_BATCH_TOKENS = 300
FAILURES = {
    "unpreparable": InvalidField,
    "uncollatable": InternalError,
    "unrunnable": InternalError,
    "undecodable": InternalError,
}


@dataclass
class Submitted:
    """One item, the error that it must end with if any, and what else may happen to it first."""

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


class Watch(Tally):
    """Batches as they really were, to check that the limits held."""

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
    return Item(text, {"person": "person"}, adapter_id=chance.choice([None, None, "a", "b"])), FAILURES.get(kind)


def fails_as(kind: str, error: Exception) -> Callable[[Item], Exception | None]:
    return lambda item: error if item.text.startswith(kind) else None


def client(scheduler: Scheduler, seed: int, submitted: list[Submitted]) -> None:
    """Submit requests, and abort or cancel some of those of its own that are still under way."""
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
    """A queue before anything runs, so that items share batches, split and are aborted whatever the timing."""
    texts = ["unrunnable" if number == 50 else f"Marie {number}" for number in range(100)]
    submitted = []
    for number, text in enumerate(texts):
        future = scheduler.submit(Item(text, {"person": "person"}), request_id=f"prelude-{number}")
        must_fail = FAILURES.get(text)
        submitted.append(Submitted(Item(text, {"person": "person"}), future, f"prelude-{number}", must_fail, set()))
    while scheduler.stats.preparing_items:
        time.sleep(0.001)
    submitted[98].may_end.add(Aborted)
    assert scheduler.abort("prelude-98")
    assert submitted[99].future.cancel()
    device.set()
    return submitted


def check(one: Submitted) -> Outcome:
    """How `one` ended, which must be a way that it may end."""
    assert one.endings == 1
    if one.future.cancelled():
        return "aborted"
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
def test_every_item_ends_exactly_once_and_rightly(
    packs: bool, decoding_threads: int, batch_wait_timeout_ms: float
) -> None:
    watch = Watch()
    device = threading.Event()

    def on_device(batch: Sequence[Prepared]) -> None:
        assert device.wait(PATIENCE_S)
        time.sleep(0.0002 * len(batch))  # so that a queue builds up

    engine = FakeEngine(
        group=lambda item: item.adapter_id,
        prepare_error=fails_as("unpreparable", InvalidField("text: cannot be prepared")),
        collate_error=fails_as("uncollatable", ValueError("cannot be collated")),
        forward_error=fails_as("unrunnable", ValueError("cannot be run")),
        decode_error=fails_as("undecodable", ValueError("cannot be decoded")),
        packs=packs,
        on_forward=on_device,
    )
    config = SchedulerConfig(
        max_batch_size=8,
        max_batch_tokens=MAX_BATCH_TOKENS,
        lookahead=64,
        max_overtakes=8,
        queue_capacity=400,
        inference_lanes=2,
        tokenizer_threads=2,
        decoding_threads=decoding_threads,
        batch_wait_timeout_ms=batch_wait_timeout_ms,
    )
    scheduler = Scheduler(engine, config, observer=watch)
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
    scheduler.close()

    for mine in submitted:
        everyone += mine
    seen = Counter(check(one) for one in everyone)
    assert seen["completed"] == watch["completed"]
    assert seen["aborted"] == watch["aborted"]
    assert seen["failed"] + seen["expired"] == watch["failed"] + watch["expired"] + watch["refused"]
    assert sum(watch[name] for name in get_args(Outcome)) == len(everyone)
    assert (stats.unfinished_items, stats.lanes_alive) == (0, 2)
    assert set(seen) == {"completed", "failed", "aborted", "expired"}
    assert watch["splits"] > 0
    assert all(size <= config.max_batch_size for size, _ in watch.batches)
    assert all(size == 1 or padded <= MAX_BATCH_TOKENS for size, padded in watch.batches)
    assert max(size for size, _ in watch.batches) == config.max_batch_size
    assert watch.stages == set(get_args(Stage))
