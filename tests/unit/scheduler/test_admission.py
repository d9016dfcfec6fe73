from __future__ import annotations

import threading

import pytest
from doubles.fake_engine import FakeEngine, extract
from stage import PATIENCE_S, Clock, Gate, MakeItem, Start, Tally, Until, ending_of, hold_lane, submit_waiting

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import (
    NotReady,
    QueueFull,
    TooLarge,
)
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.tasks.extraction import Extraction


def test_overload_is_refused_immediately_and_before_preparation(
    start: Start, gate: Gate, item: MakeItem, tally: Tally
) -> None:
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
    assert tally["refused"] == 1


def test_request_that_does_not_fit_is_refused_whole(start: Start, gate: Gate, item: MakeItem, tally: Tally) -> None:
    engine = FakeEngine(on_forward=gate)
    scheduler = start(engine, queue_capacity=3)
    too_many = scheduler.submit_many([item("a")] * 4, request_id="never fits")
    assert [type(future.exception(0)) for future in too_many] == [TooLarge] * 4
    hold_lane(scheduler, gate, item)
    admitted = scheduler.submit_many([item("b")] * 2, request_id="fits")
    refused = scheduler.submit_many([item("c")] * 2, request_id="does not fit now")
    assert [type(future.exception(0)) for future in refused] == [QueueFull] * 2
    assert tally["refused"] == 6
    gate.open()
    assert [ending_of(future) for future in admitted] == [extract(item("b"))] * 2
    assert scheduler.submit_many([], request_id="nothing") == []


def test_large_request_is_prepared_in_parts_and_answered_in_order(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(), max_batch_size=3, tokenizer_threads=2, inference_lanes=2)
    texts = [f"Ada {number}" for number in range(20)]
    futures = scheduler.submit_many([item(text) for text in texts], request_id="r")
    assert [ending_of(future) for future in futures] == [extract(item(text)) for text in texts]


def test_place_in_the_queue_is_free_before_the_future_is_answered(start: Start, item: MakeItem, tally: Tally) -> None:
    scheduler = start(FakeEngine(), queue_capacity=1)
    for _ in range(200):
        assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="r")), Extraction)
    assert tally["completed"] == 200


def test_not_ready_before_start_and_after_close(
    start: Start, config: SchedulerConfig, clock: Clock, item: MakeItem
) -> None:
    running = start(FakeEngine())
    unstarted = Scheduler(FakeEngine(), config, clock=clock)
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


def test_drain_refuses_new_items_and_waits_for_the_admitted(
    start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally
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
    assert tally["completed"] == 2


def test_close_fails_every_unfinished_item(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate), max_batch_size=2)
    running = hold_lane(scheduler, gate, item)
    ahead = [scheduler.submit(item(text), request_id="r") for text in "ab"]
    until(lambda: scheduler.stats.running_items == 3)
    waiting = submit_waiting(scheduler, until, [item("c")])
    threads = list(scheduler._threads)
    closing = threading.Thread(target=scheduler.close, args=[PATIENCE_S])
    closing.start()
    assert [type(ending_of(future)) for future in [running, *ahead, *waiting]] == [NotReady] * 4
    gate.open()
    closing.join()
    assert not any(thread.is_alive() for thread in threads)
