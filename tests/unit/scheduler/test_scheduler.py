from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from doubles.fake_engine import FakeEngine, extract
from stage import Gate, Lease, MakeItem, Start, Tally, Until, ending_of, hold_lane, settle, submit_waiting

from gliner_bento.engine.base import SlotState
from gliner_bento.errors import (
    InternalError,
    TooLarge,
)
from gliner_bento.scheduler.entry import ResultOrError
from gliner_bento.scheduler.scheduler import Stats
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item


def test_item_gets_the_engine_result(start: Start, item: MakeItem, tally: Tally) -> None:
    scheduler = start(FakeEngine())
    ada = item("Ada Lovelace met Charles Babbage.")
    assert ending_of(scheduler.submit(ada, request_id="r")) == extract(ada)
    assert tally["completed"] == 1


def test_items_that_wait_together_run_together_in_order(
    start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally
) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    hold_lane(scheduler, gate, item)
    futures = submit_waiting(scheduler, until, [item("Ada"), item("Charles"), item("Marie")])
    gate.open()
    assert gate.arrival() == ["Ada", "Charles", "Marie"]
    answers = [ending_of(future) for future in futures]
    assert answers == [extract(item(text)) for text in ("Ada", "Charles", "Marie")]
    assert (tally["batches"], tally["batched_items"]) == (2, 4)


def test_what_answers_return_is_called_once_after_all_that_end_together(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    calls: list[str] = []

    class Caller:
        def answer(self, outcomes: Sequence[ResultOrError]) -> Callable[[], None]:
            calls.append("answer")
            return self.wake

        def wake(self) -> None:
            calls.append("wake")

    scheduler, caller = start(FakeEngine(on_forward=gate)), Caller()
    hold_lane(scheduler, gate, item)
    for text in ("Ada", "Charles", "Marie"):
        scheduler.submit_together([item(text)], caller.answer, request_id=text)
    settle(scheduler, until)
    gate.open()
    until(lambda: "wake" in calls)
    assert calls == ["answer", "answer", "answer", "wake"]


def test_idle_lane_takes_a_lone_item_immediately(start: Start, gate: Gate, item: MakeItem) -> None:
    scheduler = start(FakeEngine(on_forward=gate), inference_lanes=2)
    first = hold_lane(scheduler, gate, item, "first")
    hold_lane(scheduler, gate, item, "second")
    gate.open()
    assert ending_of(first) == extract(item("first"))


def test_full_batch_is_collated_while_the_lane_is_busy(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    collated: list[int] = []
    scheduler = start(
        FakeEngine(on_forward=gate, on_collate=lambda batch: collated.append(len(batch))), max_batch_size=3
    )
    hold_lane(scheduler, gate, item)
    futures = [scheduler.submit(item(str(number)), request_id="r") for number in range(7)]
    until(lambda: collated == [1, 3] and scheduler.stats.waiting_items == 4)
    gate.open()
    assert [isinstance(ending_of(future), Extraction) for future in futures] == [True] * 7
    assert sorted(collated) == [1, 1, 3, 3]


def test_partial_batch_stays_open_while_the_lane_is_busy(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    collated: list[int] = []
    scheduler = start(FakeEngine(on_forward=gate, on_collate=lambda batch: collated.append(len(batch))))
    hold_lane(scheduler, gate, item)
    submit_waiting(scheduler, until, [item("a"), item("b")])
    submit_waiting(scheduler, until, [item("c")])
    assert collated == [1]
    gate.open()
    assert gate.arrival() == ["a", "b", "c"]


def test_batch_collated_ahead_goes_to_the_next_free_lane(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    scheduler = start(FakeEngine(on_forward=gate), inference_lanes=2, max_batch_size=2)
    hold_lane(scheduler, gate, item, "first")
    hold_lane(scheduler, gate, item, "second")
    for text in "abcd":
        scheduler.submit(item(text), request_id=text)
    until(lambda: scheduler.stats.running_items == 6)
    gate.let_through(2)
    assert sorted([gate.arrival(), gate.arrival()]) == [["a", "b"], ["c", "d"]]


def test_each_lane_is_started_once(start: Start) -> None:
    engine = FakeEngine()
    scheduler = start(engine, inference_lanes=3)
    assert sorted(engine.lanes) == ["lane-0", "lane-1", "lane-2"]
    assert scheduler.ready
    assert scheduler.stats.lanes_alive == 3


def lease_by_first_letter(item: Item) -> Lease | None:
    """Items that begin with "-" use the base model."""
    return None if item.text[0] == "-" else Lease(item.text[0])


@pytest.mark.parametrize("packs", [False, True])
def test_batch_has_as_many_adapters_as_there_are_slots_at_that_time(
    start: Start, gate: Gate, item: MakeItem, until: Until, packs: bool
) -> None:
    engine = FakeEngine(on_forward=gate, lease=lease_by_first_letter, packs=packs, slot_state=SlotState(slots=1))
    scheduler = start(engine)
    hold_lane(scheduler, gate, item, "- holds the lane")
    submit_waiting(scheduler, until, [item(text) for text in ("x1", "y1", "-1", "x2", "z1", "y2", "z2")])
    gate.let_through()
    assert gate.arrival() == ["x1", "-1", "x2"]
    engine.slots = SlotState(slots=2)
    gate.let_through()
    assert gate.arrival() == ["y1", "z1", "y2", "z2"]


@pytest.mark.parametrize(("in_use", "batch"), [(frozenset(), ["x"]), (frozenset("y"), ["x", "y"])])
def test_lane_leaves_free_slots_to_the_other_and_shares_those_in_use(
    start: Start, gate: Gate, item: MakeItem, until: Until, in_use: frozenset[str], batch: list[str]
) -> None:
    slot_state = SlotState(slots=2, resident=in_use, in_use=in_use)
    scheduler = start(
        FakeEngine(on_forward=gate, lease=lease_by_first_letter, slot_state=slot_state), inference_lanes=2
    )
    hold_lane(scheduler, gate, item, "- first")
    hold_lane(scheduler, gate, item, "- second")
    submit_waiting(scheduler, until, [item("x"), item("y")])
    gate.let_through()
    assert gate.arrival() == batch


def test_lower_priority_number_goes_first(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    collated: list[str] = []
    engine = FakeEngine(on_forward=gate, on_collate=lambda batch: collated.append(batch[0].item.text))
    scheduler = start(engine, max_batch_size=1)
    hold_lane(scheduler, gate, item, "running")
    scheduler.submit(item("ahead"), request_id="r")
    settle(scheduler, until)
    submit_waiting(scheduler, until, [item("usual")])
    submit_waiting(scheduler, until, [item("urgent")], priority=-1)
    gate.let_through()
    assert gate.arrival() == ["ahead"]
    until(lambda: len(collated) == 3)
    assert collated == ["running", "ahead", "urgent"]


def test_blank_item_is_answered_without_the_device(start: Start) -> None:
    engine = FakeEngine()
    scheduler = start(engine)
    assert ending_of(scheduler.submit(Item(" \n", {"person": "person"}), request_id="r")) == Extraction(())
    assert engine.batches == []


def test_error_in_preparation_fails_only_that_item(start: Start, item: MakeItem, tally: Tally) -> None:
    errors = {"long": TooLarge("text: too long", param="text"), "odd": ValueError("odd")}
    scheduler = start(FakeEngine(prepare_error=lambda item: errors.get(item.text)))
    long, odd, good = (scheduler.submit(item(text), request_id="r") for text in ("long", "odd", "good"))
    assert ending_of(long) is errors["long"]
    assert isinstance(ending_of(odd), InternalError)
    assert ending_of(good) == extract(item("good"))
    assert (tally["failed"], tally["completed"]) == (2, 1)


def test_failing_item_fails_none_of_its_batch(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    engine = FakeEngine(on_forward=gate, forward_error=lambda item: ValueError("bad") if item.text == "c" else None)
    scheduler = start(engine)
    hold_lane(scheduler, gate, item)
    futures = submit_waiting(scheduler, until, [item(text) for text in "abcde"])
    gate.open()
    assert gate.arrival() == list("abcde")
    endings = [ending_of(future) for future in futures]
    assert [isinstance(ending, InternalError) for ending in endings] == [False, False, True, False, False]
    assert scheduler.ready


def test_batch_that_cannot_be_collated_ahead_is_split_by_its_lane(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    collated: list[int] = []
    engine = FakeEngine(
        on_forward=gate,
        on_collate=lambda batch: collated.append(len(batch)),
        collate_error=lambda item: ValueError("bad") if item.text == "b" else None,
    )
    scheduler = start(engine, max_batch_size=2)
    hold_lane(scheduler, gate, item)
    good, bad = (scheduler.submit(item(text), request_id="r") for text in "ab")
    until(lambda: collated == [1, 2])
    gate.open()
    assert ending_of(good) == extract(item("a"))
    assert isinstance(ending_of(bad), InternalError)
    assert scheduler.ready


def test_stats_count_items_and_their_cost_in_tokens(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, cost=lambda item: 10 * len(item.text)), inference_lanes=2)
    hold_lane(scheduler, gate, item, "aa")
    hold_lane(scheduler, gate, item, "bbb")
    submit_waiting(scheduler, until, [item("c"), item("dddd")])
    assert scheduler.stats == Stats(
        unfinished_items=4,
        preparing_items=0,
        waiting_items=2,
        waiting_tokens=50,
        running_items=2,
        running_tokens=50,
        lanes=2,
        lanes_alive=2,
        lanes_free=0,
    )
