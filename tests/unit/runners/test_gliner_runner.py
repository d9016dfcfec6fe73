"""What the runner does besides hosting: warm-up and serialization."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from views import view

from gliner_bento.engine.base import Entity, Extraction, Relation
from gliner_bento.engine.fake import FakeEngine
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from runners.gliner_runner import GLiNERRunner, _as_data, warm_up


@pytest.mark.parametrize(("sizes", "iterations", "expected"), [((2, 4), 3, 19), ((), 5, 1), ((8,), 0, 1)])
def test_warms_up_with_every_size_as_often_as_it_is_told(sizes: Sequence[int], iterations: int, expected: int) -> None:
    engine = FakeEngine()
    scheduler = Scheduler(engine, view(SchedulerConfig, max_batch_size=8, max_batch_tokens=1000))
    scheduler.start()
    try:
        warm_up(scheduler, sizes, iterations)
    finally:
        scheduler.close()
    assert sum(map(len, engine.batches)) == expected


def test_a_warm_up_that_fails_is_not_passed_over() -> None:
    scheduler = Scheduler(
        FakeEngine(forward_error=lambda item: ValueError("broken")),
        view(SchedulerConfig, max_batch_size=8, max_batch_tokens=1000),
    )
    scheduler.start()
    try:
        with pytest.raises(Exception, match="internal error"):
            warm_up(scheduler, (1,), 1)
    finally:
        scheduler.close()


def test_an_extraction_travels_as_its_fields():
    extraction = Extraction(
        entities=[Entity(0, 4, "Bill", "person", 0.9)],
        relations=[Relation("knows", 0.8, 0, 1)],
        truncated_at=4,
        words=3,
        tokens=9,
        windows=2,
        label_groups=3,
        relation_groups=4,
    )
    expected = dataclasses.asdict(extraction)
    del expected["displaced"]  # is of passes alone
    assert _as_data(extraction) == expected


def test_the_type_of_an_answer_is_not_derived_from_its_schema():
    assert GLiNERRunner.apis["extract"].output_spec.media_type == "application/json"
