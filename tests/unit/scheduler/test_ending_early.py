from __future__ import annotations

import asyncio
import concurrent.futures

import pytest
from doubles.fake_engine import FakeEngine, extract
from stage import (
    LONG,
    PATIENCE_S,
    Clock,
    Gate,
    ListSink,
    LongTexts,
    MakeItem,
    Start,
    Tally,
    Until,
    ending_of,
    hold_lane,
    submit_waiting,
)

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
)
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.tasks.extraction import Extraction


def test_abort_fails_all_waiting_items_of_the_request_and_no_other(
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


def test_abort_of_a_request_that_finishes_now_says_that_it_aborted_nothing(
    start: Start, gate: Gate, item: MakeItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    running = hold_lane(scheduler, gate, item)
    found = scheduler._queue.of_request("holds the lane")
    gate.open()
    assert isinstance(ending_of(running), Extraction)
    monkeypatch.setattr(scheduler._queue, "of_request", lambda _: found)  # as if it had finished right after the search
    assert not scheduler.abort("holds the lane")
    assert isinstance(ending_of(running), Extraction)


def test_abort_of_a_running_item_answers_immediately_and_drops_its_result(
    start: Start, gate: Gate, item: MakeItem, tally: Tally
) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    running = hold_lane(scheduler, gate, item)
    assert scheduler.abort("holds the lane")
    assert isinstance(running.exception(0), Aborted)
    gate.open()
    assert scheduler.drain(PATIENCE_S)
    assert isinstance(running.exception(0), Aborted)
    assert isinstance(ending_of(running), Aborted)
    assert tally.counts["aborted"] == 1
    assert tally.counts["completed"] == 0


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
    start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally
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
    assert tally["aborted"] == 1


def test_cancelled_futures_abort_no_other_request_of_the_same_id(start: Start, gate: Gate, item: MakeItem) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    hold_lane(scheduler, gate, item)
    gone = scheduler.submit_many([item("gone"), item("gone too")], request_id="same")
    stays = scheduler.submit_many([item("stays"), item("stays too")], request_id="same")
    assert all(future.cancel() for future in gone)
    gate.open()
    assert [ending_of(future) for future in stays] == [extract(item("stays")), extract(item("stays too"))]


def test_cancelling_a_running_future_drops_its_result(start: Start, gate: Gate, item: MakeItem, tally: Tally) -> None:
    scheduler = start(FakeEngine(on_forward=gate))
    running = hold_lane(scheduler, gate, item)
    assert running.cancel()
    gate.open()
    assert isinstance(ending_of(scheduler.submit(item("next"), request_id="next")), Extraction)
    assert running.cancelled()
    assert (tally["aborted"], tally["completed"]) == (1, 1)


def test_client_that_disconnects_from_an_asyncio_server_aborts_its_item(
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
        while scheduler.stats.waiting_items == 2:  # the event loop passes the cancellation on
            await asyncio.sleep(0)
        gate.open()
        return await stays

    assert asyncio.run(serve()) == extract(item("stays"))


def test_deadlines_fire_while_all_lanes_are_busy(
    start: Start, gate: Gate, clock: Clock, item: MakeItem, until: Until, tally: Tally
) -> None:
    engine = FakeEngine(on_forward=gate)
    scheduler = start(engine)
    running = scheduler.submit(item("running"), request_id="running", deadline=clock() + 500)
    assert gate.arrival() == ["running"]
    (waiting,) = submit_waiting(scheduler, until, [item("waiting")], deadline=clock() + 500)
    (patient,) = submit_waiting(scheduler, until, [item("patient")], deadline=clock() + 5000)
    clock.now_s += 499
    scheduler._items.expire()
    assert [running.done(), waiting.done()] == [False, False]
    clock.now_s += 1
    scheduler._items.expire()
    assert [type(future.exception(0)) for future in (running, waiting)] == [DeadlineExceeded] * 2
    gate.open()
    assert isinstance(ending_of(patient), Extraction)
    assert [[item.text for item in batch] for batch in engine.batches] == [["running"], ["patient"]]
    assert (tally["expired"], tally["completed"]) == (2, 1)


def test_deadline_fires_by_itself_with_a_real_clock(gate: Gate, config: SchedulerConfig, item: MakeItem) -> None:
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


def test_item_that_expired_while_waiting_never_reaches_the_device(
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


@pytest.mark.parametrize(("total_s", "pass_s", "finishes"), [(1000, 29, True), (1000, 30, False), (100, 29, False)])
def test_a_stream_ends_by_its_deadline_or_if_a_pass_takes_too_long(
    start: Start, gate: Gate, clock: Clock, item: MakeItem, until: Until, total_s: float, pass_s: float, finishes: bool
) -> None:
    scheduler, sink = start(FakeEngine(chunked=LongTexts(), on_forward=gate), max_batch_tokens=3), ListSink()
    stream = scheduler.submit_stream(item(LONG), sink, request_id="r", deadline=clock() + total_s, idle_timeout_s=30)
    for finished in range(20):
        gate.arrival()
        clock.now_s += pass_s
        scheduler._items.expire()
        if stream.done():
            break
        gate.let_through()
        until(lambda finished=finished: sink.capacity < 1000 - finished)
    gate.open()
    outcome = ending_of(stream)
    if finishes:
        assert len(outcome.entities) == 40
        return
    assert isinstance(outcome, DeadlineExceeded)
    assert all(limit in outcome.message for limit in (" timeout_ms ", " request_timeout_s "))
