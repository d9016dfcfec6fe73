"""Schedulers that are closed with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from stage import Clock, Gate, Start, Tally, wait_for_idle_lanes, wait_until
from views import view

from gliner_bento.engine.base import Engine
from gliner_bento.scheduler import preparation
from gliner_bento.scheduler.observer import Observer
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.tasks.extraction import ExtractionItem as Item

CONFIG = view(SchedulerConfig, max_batch_size=8, max_batch_tokens=1000, queue_capacity=100)


@pytest.fixture(autouse=True)
def slices_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which items are prepared together does not depend on the time that it takes."""
    monkeypatch.setattr(preparation, "SLICE_S", 3600.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def express() -> Iterator[Gate]:
    """For the batches of the express lane."""
    express = Gate()
    yield express
    express.open()


@pytest.fixture
def tally() -> Tally:
    """The default observer of the scheduler of `start`."""
    return Tally()


@pytest.fixture
def config() -> SchedulerConfig:
    return CONFIG


@pytest.fixture
def start(clock: Clock, gate: Gate, express: Gate, tally: Tally) -> Iterator[Start]:
    schedulers = []

    def start(engine: Engine, *, observer: Observer | None = None, **changes: float) -> Scheduler:
        scheduler = Scheduler(engine, replace(CONFIG, **changes), observers=[observer or tally], clock=clock)
        schedulers.append(scheduler)
        scheduler.start()
        wait_for_idle_lanes(scheduler, scheduler.stats.lanes_alive)
        return scheduler

    yield start
    gate.open()
    express.open()
    for scheduler in schedulers:
        scheduler.close()


@pytest.fixture
def item() -> Callable[[str], Item]:
    return lambda text: Item(text, {"person": "person"})


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """See `wait_until`."""
    return wait_until
