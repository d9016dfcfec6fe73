"""Lanes that share threads, token budgets, decoding, and held batches: tested with gates, never by time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from doubles.fake_engine import FakeEngine, extract
from stage import PATIENCE_S, Clock, Gate, MakeItem, Start, Tally, Until, ending_of, hold_lane, settle, submit_waiting
from views import view

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import DoesNotFit, InternalError, NotReady
from gliner_bento.scheduler.dispatcher import DispatcherConfig
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

# Lanes


def test_lone_item_is_computed_with_the_threads_of_all_lanes(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=gate)
    scheduler = start(engine, inference_lanes=3, torch_threads=2)
    until(lambda: scheduler.stats.lanes_free == 3)
    hold_lane(scheduler, gate, item, "first")
    hold_lane(scheduler, gate, item, "second")  # no lane but the first uses shared threads
    assert engine.lanes == {"lane-0": 6, "lane-1": 2, "lane-2": 0}
    gate.let_through(2)
    until(lambda: scheduler.stats.lanes_free == 3)
    engine.lanes.clear()
    hold_lane(scheduler, gate, item, "third")
    assert list(engine.lanes.values()) == [6]


def test_the_same_lane_is_used_while_one_is_enough(start: Start, item: MakeItem, until: Until) -> None:
    lanes: list[str] = []
    engine = FakeEngine(on_forward=lambda batch: lanes.append(threading.current_thread().name))
    scheduler = start(engine, inference_lanes=4)
    for _ in range(5):
        until(lambda: scheduler.stats.lanes_free == 4)
        assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="r")), Extraction)
    assert set(lanes) == {"lane-0"}


def test_items_that_arrive_together_are_spread_over_the_free_lanes_by_cost(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=gate, packs=True, tokens=lambda item: len(item.text))
    scheduler = start(engine, inference_lanes=2, torch_threads=1)
    until(lambda: scheduler.stats.lanes_free == 2)
    scheduler.submit_many([item(text) for text in ("a" * 30, "b" * 9, "c" * 11, "d" * 10)], request_id="r")
    assert sorted([gate.arrival(), gate.arrival()]) == [["a" * 30], ["b" * 9, "c" * 11, "d" * 10]]
    assert list(engine.lanes.values()) == [1, 1]


@pytest.mark.parametrize("texts", [["a", "b", "c"], ["a" * 30, "b" * 20, "c" * 25]], ids=["alike", "padded"])
def test_items_that_arrive_together_share_a_batch_on_a_single_lane(
    start: Start, gate: Gate, item: MakeItem, texts: list[str]
) -> None:
    scheduler = start(FakeEngine(on_forward=gate, tokens=lambda item: len(item.text)))
    scheduler.submit_many([item(text) for text in texts], request_id="r")
    assert gate.arrival() == texts


# The device's memory


@pytest.mark.parametrize("packs", [False, True])
def test_budget_is_read_before_each_batch(start: Start, gate: Gate, item: MakeItem, until: Until, packs: bool) -> None:
    engine = FakeEngine(on_forward=gate, packs=packs, cost=lambda item: 10, batch_tokens=20)
    scheduler = start(engine)
    hold_lane(scheduler, gate, item)
    for text in "abcdef":
        scheduler.submit(item(text), request_id=text)
    settle(scheduler, until)
    assert (scheduler.stats.running_items, scheduler.stats.waiting_items) == (3, 4), "one is collated ahead"
    engine.batch_tokens = 10_000
    gate.let_through(2)
    assert [gate.arrival(), gate.arrival()] == [["a", "b"], ["c", "d", "e", "f"]]


def test_budget_never_exceeds_the_setting(start: Start, gate: Gate, item: MakeItem) -> None:
    scheduler = start(FakeEngine(on_forward=gate, batch_tokens=10_000, cost=lambda item: 10), max_batch_tokens=20)
    scheduler.submit_many([item(text) for text in "abc"], request_id="r")
    gate.open()
    assert [gate.arrival(), gate.arrival()] == [["a", "b"], ["c"]]


def test_batch_collated_ahead_is_split_if_memory_has_shrunk_since(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=gate, packs=True, cost=lambda item: 10)
    scheduler = start(engine, max_batch_size=4)
    hold_lane(scheduler, gate, item)
    futures = [scheduler.submit(item(text), request_id=text) for text in "abcd"]
    settle(scheduler, until)
    assert scheduler.stats.running_items == 5
    engine.batch_tokens = 20
    gate.open()
    assert [gate.arrival(), gate.arrival()] == [["a", "b"], ["c", "d"]]
    assert [ending_of(future) for future in futures] == [extract(item(text)) for text in "abcd"]


def test_device_that_runs_out_of_memory_fails_only_the_item_that_never_fits(start: Start, item: MakeItem) -> None:
    def run_out(batch: Sequence[Prepared]) -> None:
        if sum(prepared.cost for prepared in batch) > 15:
            engine.batch_tokens = 15
            raise DoesNotFit("the device has too little memory for this text")

    engine = FakeEngine(on_forward=run_out, packs=True, cost=lambda item: 20 if item.text == "huge" else 5)
    scheduler = start(engine)
    texts = ["a", "b", "huge", "c", "d", "e"]
    futures = scheduler.submit_many([item(text) for text in texts], request_id="r")
    endings = dict(zip(texts, map(ending_of, futures), strict=True))
    assert isinstance(endings.pop("huge"), DoesNotFit)
    assert endings == {text: extract(item(text)) for text in endings}
    sizes = [len(batch) for batch in engine.batches]
    assert sizes[0] == 6
    assert max(sizes[1:]) <= 3


# Decoding


def test_lane_continues_while_its_batch_is_decoded_but_never_two_ahead(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_decode=gate.hold)
    scheduler = start(engine, decoding_threads=2)
    futures = [hold_lane(scheduler, gate, item, "first"), scheduler.submit(item("second"), request_id="second")]
    until(lambda: len(engine.batches) == 2)
    futures += submit_waiting(scheduler, until, [item("third")])
    assert [[item.text for item in batch] for batch in engine.batches] == [["first"], ["second"]]
    gate.open()
    assert [isinstance(ending_of(future), Extraction) for future in futures] == [True] * 3


@pytest.mark.parametrize(("decoding_threads", "name"), [(0, "lane-0"), (1, "decode_0")])
def test_decoding_runs_in_its_pool_or_in_the_lane(
    start: Start, item: MakeItem, decoding_threads: int, name: str
) -> None:
    threads: list[str] = []
    engine = FakeEngine(on_decode=lambda items: threads.append(threading.current_thread().name))
    scheduler = start(engine, decoding_threads=decoding_threads)
    assert ending_of(scheduler.submit(item("Ada"), request_id="r")) == extract(item("Ada"))
    assert threads == [name]


@pytest.mark.parametrize("decoding_threads", [0, 1])
def test_only_the_item_that_cannot_be_decoded_fails(
    start: Start, item: MakeItem, tally: Tally, decoding_threads: int
) -> None:
    engine = FakeEngine(decode_error=lambda item: ValueError("bad") if item.text == "c" else None)
    scheduler = start(engine, decoding_threads=decoding_threads)
    futures = scheduler.submit_many([item(text) for text in "abcde"], request_id="r")
    endings = [ending_of(future) for future in futures]
    assert [isinstance(ending, InternalError) for ending in endings] == [False, False, True, False, False]
    assert scheduler.ready
    assert (tally["completed"], tally["failed"]) == (4, 1)


@pytest.mark.parametrize("decoding_threads", [0, 1])
def test_base_exception_in_decoding_fails_the_item(start: Start, item: MakeItem, decoding_threads: int) -> None:
    class Fatal(BaseException):
        """An error that an executor swallows."""

    def die(items: Sequence[Item]) -> None:
        if items[0].text == "fatal":
            raise Fatal

    scheduler = start(FakeEngine(on_decode=die), decoding_threads=decoding_threads)
    assert isinstance(ending_of(scheduler.submit(item("fatal"), request_id="r")), InternalError)
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="r")), Extraction)


def test_drain_waits_for_decoding_and_close_does_not(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    engine = FakeEngine(on_decode=gate.hold)
    scheduler = start(engine)
    futures = [hold_lane(scheduler, gate, item, "decoding"), scheduler.submit(item("run"), request_id="r")]
    until(lambda: len(engine.batches) == 2)
    futures += submit_waiting(scheduler, until, [item("waiting")])
    assert not scheduler.drain(timeout=0)
    scheduler.close(timeout=0)
    assert [type(ending_of(future)) for future in futures] == [NotReady] * 3
    gate.open()
    for thread in scheduler._threads:
        thread.join(PATIENCE_S)
    assert not scheduler._broken


# Holding a partial batch


class Preparing:
    """A scheduler in which `first` waits while `second` is in preparation, until the gate lets it through."""

    def __init__(self, start: Start, gate: Gate, item: MakeItem, until: Until, **changes: float) -> None:
        self.engine = FakeEngine(on_prepare=lambda item: gate.hold([item]))
        self.scheduler = start(self.engine, **{"batch_wait_timeout_ms": 20} | changes)
        until(lambda: self.scheduler.stats.lanes_free == self.scheduler.stats.lanes_alive)
        self.first = self.scheduler.submit(item("first"), request_id="first")
        self.second = self.scheduler.submit(item("second"), request_id="second")
        assert gate.arrival() == ["first"]
        gate.let_through()
        assert gate.arrival() == ["second"]

    @property
    def batches(self) -> list[list[str]]:
        return [[item.text for item in batch] for batch in self.engine.batches]


def test_partial_batch_is_held_for_an_item_in_preparation(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    preparing = Preparing(start, gate, item, until)
    gate.let_through()
    assert isinstance(ending_of(preparing.second), Extraction)
    assert preparing.batches == [["first", "second"]]


def test_partial_batch_is_held_no_longer_than_the_setting(
    start: Start, gate: Gate, clock: Clock, item: MakeItem, until: Until
) -> None:
    preparing = Preparing(start, gate, item, until)
    assert preparing.batches == []
    clock.now_s += 0.02
    assert isinstance(ending_of(preparing.first), Extraction)
    assert preparing.batches == [["first"]]


@pytest.mark.parametrize(
    "changes", [{"batch_wait_timeout_ms": 0}, {"max_batch_size": 1}, {"max_batch_tokens": 3}, {"inference_lanes": 2}]
)
def test_batch_is_not_held_where_nothing_could_join(
    start: Start, gate: Gate, item: MakeItem, until: Until, changes: dict[str, float]
) -> None:
    preparing = Preparing(start, gate, item, until, **changes)
    assert isinstance(ending_of(preparing.first), Extraction)
    assert preparing.batches == [["first"]]


def test_batch_is_not_held_for_an_item_that_failed_in_preparation(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(
        on_prepare=lambda item: gate.hold([item]),
        prepare_error=lambda item: ValueError("odd") if item.text == "second" else None,
    )
    scheduler = start(engine, batch_wait_timeout_ms=1e7)
    until(lambda: scheduler.stats.lanes_free == 1)
    first, second = (scheduler.submit(item(text), request_id=text) for text in ("first", "second"))
    gate.let_through(2)
    assert isinstance(ending_of(second), InternalError)
    assert isinstance(ending_of(first), Extraction)


@pytest.mark.parametrize("name", ["decoding_threads", "batch_wait_timeout_ms"])
def test_zero_is_allowed_and_less_is_not(name: str) -> None:
    assert getattr(view(DispatcherConfig, **{name: 0}), name) == 0
    with pytest.raises(ValueError, match=f"{name} must be at least 0"):
        view(DispatcherConfig, **{name: -1})
