from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage import UNHURRIED

from gliner_bento.engine.base import Extraction, Item, Prepared
from gliner_bento.engine.fake import FakeEngine, extract
from gliner_bento.errors import DoesNotFit, GLiNERBentoError, InternalError
from gliner_bento.scheduler.lane import Batch, Ending, Lane
from gliner_bento.scheduler.observer import Tally
from gliner_bento.scheduler.queue import Entry


def batch_of(engine: FakeEngine, texts: Sequence[str]) -> Batch:
    entries = []
    for sequence, text in enumerate(texts):
        item = Item(text, {"person": "person"})
        entries.append(Entry(item, f"request {sequence}", sequence, 0, 100.0, prepared=engine.prepare(item)))
    return Batch(entries)


class Run:
    """One batch run by a lane: how each item ended, in order."""

    def __init__(self, engine: FakeEngine, batch: Batch) -> None:
        self.endings: list[tuple[int, Ending]] = []
        self.tally = Tally()
        Lane(engine, lambda *ending: self.endings.append(ending), self.tally, lambda: 101.0).run(batch)


def broken(*texts: str) -> Callable[[Item], Exception | None]:
    return lambda item: ValueError("broken") if item.text in texts else None


@pytest.mark.parametrize("stage", ["collate", "forward"])
@UNHURRIED
@given(size=st.integers(1, 16), data=st.data())
def test_only_the_culprits_fail_in_order_and_in_bounded_work(stage: str, size: int, data: st.DataObject) -> None:
    texts = [f"Ada {number}" for number in range(size)]
    culprits = data.draw(st.sets(st.sampled_from(texts)))
    attempts: list[int] = []
    engine = FakeEngine(
        collate_error=broken(*culprits if stage == "collate" else ()),
        forward_error=broken(*culprits if stage == "forward" else ()),
        on_collate=lambda batch: attempts.append(len(batch)),
    )
    run = Run(engine, batch_of(engine, texts))
    assert [sequence for sequence, _ in run.endings] == list(range(size))
    for text, (_, ending) in zip(texts, run.endings, strict=True):
        if text in culprits:
            assert isinstance(ending, InternalError)
            assert "broken" not in ending.message
        else:
            assert ending == extract(Item(text, {"person": "person"}))
    assert len(attempts) <= 2 * size - 1
    if len(culprits) == 1:
        assert len(attempts) <= 2 * ceil(log2(size)) + 1
    assert run.tally.counts()["splits"] == sum(1 for _ in attempts) - run.tally.counts()["batches"] - len(culprits)


def test_known_error_of_a_single_item_reaches_it_as_it_is() -> None:
    engine = FakeEngine(forward_error=lambda item: DoesNotFit("too long for this device") if item.text == "b" else None)
    run = Run(engine, batch_of(engine, ["a", "b"]))
    assert isinstance(run.endings[0][1], Extraction)
    assert isinstance(run.endings[1][1], DoesNotFit)


def test_unknown_error_is_logged_whole_and_answered_generically(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(forward_error=broken("b"))
    with caplog.at_level(logging.WARNING, "gliner_bento.scheduler"):
        Run(engine, batch_of(engine, ["a", "b"]))
    split, failure = caplog.records
    assert (split.levelname, failure.levelname) == ("WARNING", "ERROR")
    assert failure.exc_info is not None
    assert isinstance(failure.exc_info[1], ValueError)
    assert "request 1" in failure.getMessage()


@pytest.mark.parametrize("given_results", [0, 1, 3])
def test_wrong_number_of_results_never_reaches_a_wrong_item(given_results: int) -> None:
    class Miscounting(FakeEngine):
        def decode(self, scores: Any) -> list[Extraction]:
            results = super().decode(scores)
            return results if len(scores) == 1 else (results * 3)[:given_results]

    engine = Miscounting()
    run = Run(engine, batch_of(engine, ["Ada", "Charles"]))
    assert run.endings == [(n, extract(Item(text, {"person": "person"}))) for n, text in enumerate(["Ada", "Charles"])]


def test_items_that_have_ended_never_reach_the_device_even_when_collated_already() -> None:
    engine = FakeEngine()
    batch = batch_of(engine, ["a", "b", "c"])
    batch.collated = engine.collate(batch.prepared)
    batch.entries[1].ended = True
    run = Run(engine, batch)
    assert [[item.text for item in forwarded] for forwarded in engine.batches] == [["a", "c"]]
    assert [sequence for sequence, _ in run.endings] == [0, 2]


def test_batch_whose_items_have_all_ended_is_not_run() -> None:
    engine = FakeEngine()
    batch = batch_of(engine, ["a"])
    batch.entries[0].ended = True
    assert Run(engine, batch).endings == []
    assert engine.batches == []


def test_collated_batch_is_not_collated_again() -> None:
    collations: list[int] = []
    engine = FakeEngine(on_collate=lambda batch: collations.append(len(batch)))
    batch = batch_of(engine, ["a", "b"])
    batch.collated = engine.collate(batch.prepared)
    Run(engine, batch)
    assert collations == [2]


@pytest.mark.parametrize("ahead", [False, True])
def test_tensors_of_a_failed_batch_are_free_before_its_halves_run(ahead: bool) -> None:
    class Tensors(list[Prepared]):
        """A list that can be watched."""

    alive: list[weakref.ref[Tensors]] = []

    class Crowded(FakeEngine):
        def collate(self, batch: Sequence[Prepared]) -> list[Prepared]:
            assert not any(tensors() for tensors in alive)
            tensors = Tensors(super().collate(batch))
            alive.append(weakref.ref(tensors))
            return tensors

        def forward(self, collated: Sequence[Prepared], threads: int) -> list[Item]:
            if "d" in [prepared.item.text for prepared in collated]:
                raise MemoryError
            return super().forward(collated, threads)

    engine = Crowded()
    batch = batch_of(engine, list("abcd"))
    if ahead:
        batch.collated = engine.collate(batch.prepared)
    run = Run(engine, batch)
    assert [isinstance(ending, GLiNERBentoError) for _, ending in run.endings] == [False, False, False, True]


def test_cost_of_each_batch_is_told() -> None:
    waits = []

    class Watching(Tally):
        def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float, forward_s: float) -> None:
            super().on_batch(size, padded_tokens, real_tokens, wait_s, forward_s)
            waits.append((wait_s, forward_s))

    engine = FakeEngine(tokens=lambda item: len(item.text))
    tally, times_s = Watching(), iter([101.0, 101.5])
    Lane(engine, lambda *_: None, tally, lambda: next(times_s)).run(batch_of(engine, ["aaa", "a"]))
    assert tally.counts() == {"batches": 1, "batched_items": 2, "padded_tokens": 6, "real_tokens": 4}
    assert waits == [(1.0, 0.5)]
