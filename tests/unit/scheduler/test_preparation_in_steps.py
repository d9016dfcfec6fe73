"""Preparation in steps: an item of many steps lets others pass, and ends when it has expired."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doubles.fake_engine import FakeEngine
from stage import PATIENCE_S, Gate, MakeItem, Start, ending_of

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import Aborted
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.scheduler import preparation
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item


@pytest.fixture
def every_step_is_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "SLICE_S", -1.0)


class Steps:
    """The steps of the item "long": `number` of them, each held by the gate."""

    def __init__(self, gate: Gate, number: int) -> None:
        self._gate = gate
        self._number = number
        self.made = 0
        self.closed = False

    def __call__(self, item: Item) -> Iterator[None]:
        if item.text != "long":
            return
        try:
            for _ in range(self._number):
                self._gate([Prepared(item, 1, 1)])
                self.made += 1
                yield
        finally:
            self.closed = True


@pytest.mark.usefixtures("every_step_is_a_slice")
def test_another_item_is_prepared_between_two_steps(start: Start, gate: Gate, item: MakeItem) -> None:
    steps = Steps(gate, 3)
    scheduler = start(FakeEngine(steps=steps))
    long = scheduler.submit(item("long"), request_id="long")
    assert gate.arrival() == ["long"]
    short = scheduler.submit(item("short"), request_id="short")
    gate.let_through()
    assert isinstance(ending_of(short), Extraction)
    assert steps.made == 1
    gate.open()
    assert isinstance(ending_of(long), Extraction)
    assert steps.made == 3


def test_another_tenant_is_next_after_each_step(start: Start, gate: Gate, item: MakeItem) -> None:
    steps = Steps(gate, 3)
    scheduler = start(FakeEngine(steps=steps))
    long = scheduler.submit(item("long"), request_id="long", share=TenantShare("a"))
    assert gate.arrival() == ["long"]
    short = scheduler.submit(item("short"), request_id="short", share=TenantShare("b"))
    gate.let_through()
    assert isinstance(ending_of(short), Extraction)
    assert steps.made == 1
    gate.open()
    assert isinstance(ending_of(long), Extraction)


@pytest.mark.usefixtures("every_step_is_a_slice")
def test_an_item_that_has_ended_takes_no_more_steps(start: Start, gate: Gate, item: MakeItem) -> None:
    steps = Steps(gate, 1000)
    scheduler = start(FakeEngine(steps=steps))
    long = scheduler.submit(item("long"), request_id="long")
    assert gate.arrival() == ["long"]
    assert scheduler.abort("long")
    gate.open()
    assert isinstance(ending_of(long), Aborted)
    assert isinstance(ending_of(scheduler.submit(item("next"), request_id="next")), Extraction)
    assert scheduler.drain(PATIENCE_S)
    assert (steps.made, steps.closed) == (1, True)


def test_an_item_that_ends_while_it_runs_is_cancelled(start: Start, gate: Gate, item: MakeItem) -> None:
    running: list[Prepared] = []
    engine = FakeEngine(on_forward=lambda batch: (running.extend(batch), gate(batch)))
    scheduler = start(engine)
    doomed = scheduler.submit(item("doomed"), request_id="doomed")
    assert gate.arrival() == ["doomed"]
    assert not running[0].ended
    assert scheduler.abort("doomed")
    assert running[0].ended
    gate.open()
    assert isinstance(ending_of(doomed), Aborted)
