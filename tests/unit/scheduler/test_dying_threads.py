from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from doubles.fake_engine import FakeEngine, extract
from stage import PATIENCE_S, Gate, MakeItem, Start, Until, ending_of, hold_lane, submit_waiting

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import (
    GLiNERBentoError,
    InternalError,
    NotReady,
)
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item


class Fatal(BaseException):
    """An error that kills the thread."""


def die(item: Item) -> None:
    if item.text == "fatal":
        raise Fatal


def die_together(batch: Sequence[Prepared]) -> None:
    for prepared in batch:
        die(prepared.item)


def test_dead_lane_fails_its_batch_and_readiness_while_the_other_continues(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(on_forward=die_together), inference_lanes=2)
    assert isinstance(ending_of(scheduler.submit(item("fatal"), request_id="r")), InternalError)
    assert not scheduler.ready
    assert scheduler.stats.lanes_alive == 1
    assert ending_of(scheduler.submit(item("Ada"), request_id="r")) == extract(item("Ada"))
    assert scheduler.drain(PATIENCE_S)


def test_last_lane_that_dies_fails_every_item_and_nothing_hangs(
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


def test_dead_collator_ends_readiness_but_fails_no_item(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    def die_in_collator(batch: Sequence[Prepared]) -> None:
        if threading.current_thread().name == "collator":
            raise Fatal

    scheduler = start(FakeEngine(on_forward=gate, on_collate=die_in_collator), max_batch_size=2)
    hold_lane(scheduler, gate, item)
    futures = [scheduler.submit(item(text), request_id="r") for text in "abcd"]
    until(lambda: not scheduler.ready)
    gate.open()
    assert [type(ending_of(future)) for future in futures] == [Extraction] * 4


def test_base_exception_in_preparation_fails_the_item(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(on_prepare=die))
    assert isinstance(ending_of(scheduler.submit(item("fatal"), request_id="r")), InternalError)
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="r")), Extraction)


def test_unknown_errors_are_hidden_from_callers(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(forward_error=lambda item: ValueError("/secret/path")))
    ending = ending_of(scheduler.submit(item("Ada"), request_id="r"))
    assert isinstance(ending, GLiNERBentoError)
    assert "secret" not in str(ending)
