from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from stage import PATIENCE_S, Clock, Gate, Start

from gliner_bento.engine.base import Extraction, Item, Prepared
from gliner_bento.engine.fake import FakeEngine, extract
from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    NotReady,
    QueueFull,
    TooLarge,
)
from gliner_bento.scheduler.observer import Tally
from gliner_bento.scheduler.scheduler import Scheduler

MakeItem = Callable[[str], Item]
Until = Callable[[Callable[[], bool]], None]


def ending_of(future: Future[Extraction]) -> Extraction | BaseException:
    return future.exception(timeout=PATIENCE_S) or future.result()


def hold_lane(scheduler: Scheduler, gate: Gate, item: MakeItem, text: str = "holds the lane") -> Future[Extraction]:
    """Submit one item and return when a lane stands at the gate with it."""
    future = scheduler.submit(item(text), request_id=text)
    assert gate.arrival() == [text]
    return future


def submit_waiting(
    scheduler: Scheduler, until: Until, items: Sequence[Item], **options: Any
) -> list[Future[Extraction]]:
    """Submit items while every lane is held, and return when all of them wait."""
    before = scheduler.stats.waiting_items
    futures = [scheduler.submit(item, **({"request_id": item.text} | options)) for item in items]
    until(lambda: scheduler.stats.waiting_items == before + len(items))
    return futures


# The way of an item


def test_item_is_answered_as_the_engine_answers_it_alone(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine())
    ada = item("Ada Lovelace met Charles Babbage.")
    assert ending_of(scheduler.submit(ada, request_id="r")) == extract(ada)
    assert scheduler.stats.completed == 1


def test_items_that_wait_together_run_together_in_order(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    hold_lane(scheduler, gate, item)
    futures = submit_waiting(scheduler, until, [item("Ada"), item("Charles"), item("Marie")])
    gate.open()
    assert gate.arrival() == ["Ada", "Charles", "Marie"]
    answers = [ending_of(future) for future in futures]
    assert answers == [extract(item(text)) for text in ("Ada", "Charles", "Marie")]
    assert (scheduler.stats.batches, scheduler.stats.batched_items) == (2, 4)


def test_idle_lane_takes_a_lone_item_at_once(start: Start, gate: Gate, item: MakeItem) -> None:
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


def test_partial_batch_is_left_open_for_more_while_the_lane_is_busy(
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


def test_batch_made_ahead_goes_to_whichever_lane_is_free_first(
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


def test_groups_never_share_a_batch(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, group=lambda item: item.text[0]))
    hold_lane(scheduler, gate, item)
    submit_waiting(scheduler, until, [item("x1"), item("y1"), item("x2")])
    gate.open()
    assert [gate.arrival(), gate.arrival()] == [["x1", "x2"], ["y1"]]


def test_lower_priority_number_goes_first(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    collated: list[str] = []
    engine = FakeEngine(on_forward=gate, on_collate=lambda batch: collated.append(batch[0].item.text))
    scheduler = start(engine, max_batch_size=1)
    hold_lane(scheduler, gate, item, "running")
    scheduler.submit(item("ahead"), request_id="r")
    until(lambda: scheduler.stats.running_items == 2)
    submit_waiting(scheduler, until, [item("usual")])
    submit_waiting(scheduler, until, [item("urgent")], priority=-1)
    gate.let_through()
    assert gate.arrival() == ["ahead"]
    until(lambda: len(collated) == 3)
    assert collated == ["running", "ahead", "urgent"]


def test_blank_item_is_answered_without_the_device(start: Start) -> None:
    engine = FakeEngine()
    scheduler = start(engine)
    assert ending_of(scheduler.submit(Item(" \n", {"person": "person"}), request_id="r")) == Extraction()
    assert engine.batches == []


# Errors stay where they belong


def test_error_in_preparation_fails_that_item_alone(start: Start, item: MakeItem) -> None:
    errors = {"long": TooLarge("text: too long", param="text"), "odd": ValueError("odd")}
    scheduler = start(FakeEngine(prepare_error=lambda item: errors.get(item.text)))
    long, odd, good = (scheduler.submit(item(text), request_id="r") for text in ("long", "odd", "good"))
    assert ending_of(long) is errors["long"]
    assert isinstance(ending_of(odd), InternalError)
    assert ending_of(good) == extract(item("good"))
    assert (scheduler.stats.failed, scheduler.stats.completed) == (2, 1)


def test_failing_item_fails_alone_in_a_shared_batch(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
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


# Admission


def test_overload_is_refused_at_once_and_before_preparation(start: Start, gate: Gate, item: MakeItem) -> None:
    engine = FakeEngine(on_prepare=lambda item: gate([Prepared(item, 1, 1)]))
    scheduler = start(engine, queue_capacity=1)
    admitted = scheduler.submit(item("admitted"), request_id="r")
    assert gate.arrival() == ["admitted"]
    refused = scheduler.submit(item("refused"), request_id="r")
    assert refused.done()
    assert isinstance(refused.exception(), QueueFull)
    gate.open()
    assert isinstance(ending_of(admitted), Extraction)
    assert [item.text for item in engine.prepared] == ["admitted"]
    assert scheduler.stats.refused == 1


def test_place_is_free_again_when_the_answer_is_seen(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(), queue_capacity=1)
    for _ in range(200):
        assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="r")), Extraction)
    assert scheduler.stats.completed == 200


def test_not_ready_before_start_and_after_close(start: Start, clock: Clock, item: MakeItem) -> None:
    running = start(FakeEngine())
    unstarted = Scheduler(FakeEngine(), running._config, clock=clock)
    assert not unstarted.ready
    assert isinstance(unstarted.submit(item("early"), request_id="r").exception(0), NotReady)
    unstarted.close()
    with pytest.raises(RuntimeError, match="starts once"):
        unstarted.start()
    assert running.ready
    running.close()
    running.close()
    assert not running.ready
    assert isinstance(running.submit(item("late"), request_id="r").exception(0), NotReady)


# Abort, cancellation, deadline


def test_abort_ends_all_waiting_items_of_the_request_and_no_other(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=gate)
    scheduler = start(engine)
    held = hold_lane(scheduler, gate, item)
    first, second = submit_waiting(scheduler, until, [item("a"), item("b")], request_id="mine")
    (other,) = submit_waiting(scheduler, until, [item("c")], request_id="theirs")
    assert scheduler.abort("mine")
    assert [type(future.exception(0)) for future in (first, second)] == [Aborted, Aborted]
    assert scheduler.stats.waiting_items == 1
    assert not scheduler.abort("mine")
    gate.open()
    assert isinstance(ending_of(other), Extraction)
    assert isinstance(ending_of(held), Extraction)
    assert [[item.text for item in batch] for batch in engine.batches] == [["holds the lane"], ["c"]]


def test_abort_of_a_running_item_answers_at_once_and_drops_the_late_result(
    start: Start, gate: Gate, item: MakeItem
) -> None:
    tally = Tally()
    scheduler = start(FakeEngine(on_forward=gate), observer=tally)
    running = hold_lane(scheduler, gate, item)
    assert scheduler.abort("holds the lane")
    assert isinstance(running.exception(0), Aborted)
    gate.open()
    assert scheduler.drain(PATIENCE_S)
    assert isinstance(running.exception(0), Aborted)
    assert isinstance(ending_of(running), Aborted)
    assert tally.counts()["aborted"] == 1
    assert tally.counts()["completed"] == 0


def test_abort_during_preparation_keeps_the_item_from_the_device(start: Start, gate: Gate, item: MakeItem) -> None:
    engine = FakeEngine(on_prepare=lambda item: gate([Prepared(item, 1, 1)]))
    scheduler = start(engine)
    doomed = scheduler.submit(item("doomed"), request_id="doomed")
    next_one = scheduler.submit(item("next"), request_id="next")
    assert gate.arrival() == ["doomed"]
    assert scheduler.abort("doomed")
    gate.open()
    assert isinstance(ending_of(doomed), Aborted)
    assert isinstance(ending_of(next_one), Extraction)
    assert [[item.text for item in batch] for batch in engine.batches] == [["next"]]


def test_cancelling_a_waiting_future_takes_the_item_out_of_the_queue(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=gate)
    scheduler = start(engine)
    hold_lane(scheduler, gate, item)
    gone, stays = submit_waiting(scheduler, until, [item("gone"), item("stays")])
    assert gone.cancel()
    assert scheduler.stats.waiting_items == 1
    done, _ = concurrent.futures.wait([gone], timeout=PATIENCE_S)
    assert done == {gone}
    gate.open()
    assert isinstance(ending_of(stays), Extraction)
    assert ["gone"] not in [[item.text for item in batch] for batch in engine.batches]
    assert scheduler.stats.aborted == 1


def test_cancelling_a_running_future_drops_its_result(start: Start, gate: Gate, item: MakeItem) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    running = hold_lane(scheduler, gate, item)
    assert running.cancel()
    gate.open()
    assert isinstance(ending_of(scheduler.submit(item("next"), request_id="next")), Extraction)
    assert running.cancelled()
    assert (scheduler.stats.aborted, scheduler.stats.completed) == (1, 1)


def test_client_that_leaves_an_asyncio_server_aborts_its_item(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    hold_lane(scheduler, gate, item)

    async def serve() -> Extraction:
        gone, stays = (
            asyncio.ensure_future(asyncio.wrap_future(future))
            for future in submit_waiting(scheduler, until, [item("gone"), item("stays")])
        )
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        while scheduler.stats.waiting_items == 2:  # the cancellation travels by the event loop
            await asyncio.sleep(0)
        gate.open()
        return await stays

    assert asyncio.run(serve()) == extract(item("stays"))


def test_deadlines_fire_while_all_lanes_are_busy(
    start: Start, gate: Gate, clock: Clock, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=gate)
    scheduler = start(engine)
    running = scheduler.submit(item("running"), request_id="running", deadline=clock() + 5)
    assert gate.arrival() == ["running"]
    (waiting,) = submit_waiting(scheduler, until, [item("waiting")], deadline=clock() + 5)
    (patient,) = submit_waiting(scheduler, until, [item("patient")], deadline=clock() + 50)
    clock.now_s += 4.9
    scheduler.expire()
    assert [running.done(), waiting.done()] == [False, False]
    clock.now_s += 0.1
    scheduler.expire()
    assert [type(future.exception(0)) for future in (running, waiting)] == [DeadlineExceeded] * 2
    gate.open()
    assert isinstance(ending_of(patient), Extraction)
    assert [[item.text for item in batch] for batch in engine.batches] == [["running"], ["patient"]]
    assert (scheduler.stats.expired, scheduler.stats.completed) == (2, 1)


def test_watch_fires_a_deadline_by_itself_with_a_real_clock(gate: Gate, start: Start, item: MakeItem) -> None:
    config = start(FakeEngine())._config
    scheduler = Scheduler(FakeEngine(on_forward=gate), config)
    scheduler.start()
    now_s = scheduler._clock()
    sleeper = scheduler.submit(item("in no hurry"), request_id="r", deadline=now_s + 1e9)
    hurried = scheduler.submit(item("in a hurry"), request_id="r", deadline=now_s + 0.05)
    assert isinstance(ending_of(hurried), DeadlineExceeded)
    assert not sleeper.done()
    gate.open()
    assert isinstance(ending_of(sleeper), Extraction)
    scheduler.close()


def test_item_that_expired_unnoticed_never_reaches_the_device(
    start: Start, gate: Gate, clock: Clock, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=gate)
    scheduler = start(engine)
    hold_lane(scheduler, gate, item)
    (late,) = submit_waiting(scheduler, until, [item("late")], deadline=clock() + 1000)
    (good,) = submit_waiting(scheduler, until, [item("good")])
    clock.now_s += 1000
    gate.open()
    assert isinstance(ending_of(late), DeadlineExceeded)
    assert isinstance(ending_of(good), Extraction)
    assert [[item.text for item in batch] for batch in engine.batches] == [["holds the lane"], ["good"]]
    assert isinstance(scheduler.submit(item("x"), request_id="r", deadline=clock()).exception(0), DeadlineExceeded)


# The end


def test_drain_refuses_new_items_and_waits_for_the_admitted(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    held = hold_lane(scheduler, gate, item)
    (waiting,) = submit_waiting(scheduler, until, [item("waits")])
    assert not scheduler.drain(timeout=0)
    assert not scheduler.ready
    assert isinstance(scheduler.submit(item("new"), request_id="r").exception(0), NotReady)
    gate.open()
    assert scheduler.drain(PATIENCE_S)
    assert held.done()
    assert waiting.done()
    assert scheduler.stats.completed == 2


def test_close_ends_everything_that_has_not_ended(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate), max_batch_size=2)
    running = hold_lane(scheduler, gate, item)
    ahead = [scheduler.submit(item(text), request_id="r") for text in "ab"]
    until(lambda: scheduler.stats.running_items == 3)
    waiting = submit_waiting(scheduler, until, [item("c")])
    threads = list(scheduler._threads)
    gate_opener = threading.Timer(0.05, gate.open)
    gate_opener.start()
    scheduler.close(PATIENCE_S)
    gate_opener.join()
    assert [type(future.exception(0)) for future in [running, *ahead, *waiting]] == [NotReady] * 4
    assert not any(thread.is_alive() for thread in threads)


# Threads that die


class Fatal(BaseException):
    """What no batch survives."""


def die(item: Item) -> None:
    if item.text == "fatal":
        raise Fatal


def die_together(batch: Sequence[Prepared]) -> None:
    for prepared in batch:
        die(prepared.item)


def test_dead_lane_fails_its_batch_and_readiness_while_the_other_goes_on(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(on_forward=die_together), inference_lanes=2)
    assert isinstance(ending_of(scheduler.submit(item("fatal"), request_id="r")), InternalError)
    assert not scheduler.ready
    assert scheduler.stats.lanes_alive == 1
    assert ending_of(scheduler.submit(item("Ada"), request_id="r")) == extract(item("Ada"))
    assert scheduler.drain(PATIENCE_S)


def test_last_lane_takes_everything_along_and_nothing_hangs(
    start: Start, gate: Gate, item: MakeItem, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    def gate_then_die(batch: Sequence[Prepared]) -> None:
        gate(batch)
        die_together(batch)

    scheduler = start(FakeEngine(on_forward=gate_then_die), max_batch_size=2)
    running = hold_lane(scheduler, gate, item, "fatal")
    ahead = [scheduler.submit(item(text), request_id="r") for text in "ab"]
    until(lambda: scheduler.stats.running_items == 3)
    waiting = submit_waiting(scheduler, until, [item("c")])
    gate.open()
    assert isinstance(ending_of(running), InternalError)
    assert [type(ending_of(future)) for future in [*ahead, *waiting]] == [NotReady] * 3
    until(lambda: scheduler.stats.lanes_alive == 0)
    assert not scheduler.ready
    assert isinstance(scheduler.submit(item("new"), request_id="r").exception(0), NotReady)
    assert scheduler.drain(PATIENCE_S)
    scheduler.close()
    assert any(record.levelname == "CRITICAL" and record.exc_info for record in caplog.records)


def test_lane_that_cannot_start_is_dead_from_the_start(start: Start, item: MakeItem) -> None:
    class OnlyOneLane(FakeEngine):
        def start_lane(self) -> None:
            if threading.current_thread().name != "lane-0":
                raise RuntimeError("no stream left")

    scheduler = start(OnlyOneLane(), inference_lanes=2)
    assert not scheduler.ready
    assert scheduler.stats.lanes_alive == 1
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="r")), Extraction)


def test_dead_collator_costs_readiness_but_no_item(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    def die_in_collator(batch: Sequence[Prepared]) -> None:
        if threading.current_thread().name == "collator":
            raise Fatal

    scheduler = start(FakeEngine(on_forward=gate, on_collate=die_in_collator), max_batch_size=2)
    hold_lane(scheduler, gate, item)
    futures = [scheduler.submit(item(text), request_id="r") for text in "abcd"]
    until(lambda: not scheduler.ready)
    gate.open()
    assert [type(ending_of(future)) for future in futures] == [Extraction] * 4


def test_base_exception_in_preparation_ends_the_item(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(on_prepare=die))
    assert isinstance(ending_of(scheduler.submit(item("fatal"), request_id="r")), InternalError)
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="r")), Extraction)


def test_unknown_errors_are_hidden_from_callers(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(forward_error=lambda item: ValueError("/secret/path")))
    ending = ending_of(scheduler.submit(item("Ada"), request_id="r"))
    assert isinstance(ending, GLiNERBentoError)
    assert "secret" not in str(ending)
