from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Sequence
from math import ceil, log2
from typing import Any

import pytest
from doubles.fake_engine import FakeEngine, extract
from hypothesis import given
from hypothesis import strategies as st
from stage import Clock, Tally

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import DoesNotFit, GLiNERBentoError, InternalError
from gliner_bento.fairness.queue import NO_TENANT
from gliner_bento.scheduler.entry import Entry, ResultOrError, State
from gliner_bento.scheduler.items import Items
from gliner_bento.scheduler.observer import Stage
from gliner_bento.scheduler.queue import WaitingQueue
from gliner_bento.scheduler.stages import Batch, Stages
from gliner_bento.scheduler.tenants import TenantState
from gliner_bento.scheduler.watchdog import Watchdog
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item


def batch_of(engine: FakeEngine, texts: Sequence[str]) -> Batch:
    entries = []
    for sequence, text in enumerate(texts):
        item = Item(text, {"person": "person"})
        entries.append(
            Entry(item, f"request {sequence}", TenantState(NO_TENANT), sequence, (0, sequence, sequence), 100.0)
        )
        entries[-1].set_prepared(engine.prepare(item))
    return Batch(entries)


class Run(Items):
    """One batch run to its end, with its halves: the outcome of each item, in order."""

    def __init__(self, engine: FakeEngine, batch: Batch, tally: Tally | None = None) -> None:
        self.outcomes: list[tuple[int, ResultOrError]] = []
        self.tally = tally or Tally()
        super().__init__(WaitingQueue(1, lambda: 0.0, packs=False), self.tally, lambda: 0.0)
        self._waiting = [batch]
        del batch  # no frame keeps it, as in a lane
        stages = Stages(engine, self, self.tally, Watchdog(60.0), lambda: 101.0)
        while self._waiting:
            running = self._waiting.pop(0)
            halves = stages.forward(running, threads=1)
            self._waiting[:0] = stages.decode(running) if halves is None else halves
            del running

    def finish_all(self, outcomes: Iterable[tuple[Entry, ResultOrError]]) -> bool:
        self.outcomes += [(entry.sequence, outcome) for entry, outcome in outcomes]
        return True


def broken(*texts: str) -> Callable[[Item], Exception | None]:
    return lambda item: ValueError("broken") if item.text in texts else None


@pytest.mark.parametrize("stage", ["collate", "forward", "decode"])
@given(size=st.integers(1, 16), data=st.data())
def test_only_the_failing_items_fail_in_order_and_in_bounded_work(stage: str, size: int, data: st.DataObject) -> None:
    texts = [f"Ada {number}" for number in range(size)]
    failing = data.draw(st.sets(st.sampled_from(texts)))
    attempts: list[int] = []
    engine = FakeEngine(
        collate_error=broken(*failing if stage == "collate" else ()),
        forward_error=broken(*failing if stage == "forward" else ()),
        decode_error=broken(*failing if stage == "decode" else ()),
        on_collate=lambda batch: attempts.append(len(batch)),
    )
    run = Run(engine, batch_of(engine, texts))
    assert [sequence for sequence, _ in run.outcomes] == list(range(size))
    for text, (_, outcome) in zip(texts, run.outcomes, strict=True):
        if text in failing:
            assert isinstance(outcome, InternalError)
            assert "broken" not in outcome.message
        else:
            assert outcome == extract(Item(text, {"person": "person"}))
    assert len(attempts) <= 2 * size - 1
    if len(failing) == 1:
        assert len(attempts) <= 2 * ceil(log2(size)) + 1
    assert len(attempts) == 2 * run.tally["splits"] + 1  # a tree of halves
    if stage == "decode":
        assert run.tally["batches"] == len(attempts)  # each has been on the device
    else:
        assert run.tally["batched_items"] == size - len(failing)


def test_known_error_of_a_single_item_reaches_it_as_it_is() -> None:
    engine = FakeEngine(forward_error=lambda item: DoesNotFit("too long for this device") if item.text == "b" else None)
    run = Run(engine, batch_of(engine, ["a", "b"]))
    assert isinstance(run.outcomes[0][1], Extraction)
    assert isinstance(run.outcomes[1][1], DoesNotFit)


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
    assert run.outcomes == [(n, extract(Item(text, {"person": "person"}))) for n, text in enumerate(["Ada", "Charles"])]


def test_items_that_have_finished_never_reach_the_device_even_when_collated() -> None:
    engine = FakeEngine()
    batch = batch_of(engine, ["a", "b", "c"])
    batch.collated = engine.collate(batch.prepared)
    batch.entries[1].state = State.FINISHED
    run = Run(engine, batch)
    assert [[item.text for item in forwarded] for forwarded in engine.batches] == [["a", "c"]]
    assert [sequence for sequence, _ in run.outcomes] == [0, 2]


def test_batch_whose_items_have_all_finished_is_not_run() -> None:
    engine = FakeEngine()
    batch = batch_of(engine, ["a"])
    batch.entries[0].state = State.FINISHED
    assert Run(engine, batch).outcomes == []
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
        """A list that can be weakly referenced."""

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
    assert [isinstance(outcome, GLiNERBentoError) for _, outcome in run.outcomes] == [False, False, False, True]


def test_batch_that_no_longer_fits_is_split_before_it_runs_and_a_lone_item_is_tried() -> None:
    engine = FakeEngine(packs=True, tokens=lambda item: len(item.text))
    batch = batch_of(engine, ["aaaa", "bb", "cc", "d"])
    batch.collated = engine.collate(batch.prepared)
    engine.batch_tokens = 3
    run = Run(engine, batch)
    assert [[item.text for item in forwarded] for forwarded in engine.batches] == [["aaaa"], ["bb"], ["cc", "d"]]
    assert [isinstance(outcome, Extraction) for _, outcome in run.outcomes] == [True] * 4
    assert run.tally["splits"] == 2


def test_device_that_runs_out_of_memory_gets_batches_that_fit() -> None:
    holds = 3

    def run_out(batch: Sequence[Prepared]) -> None:
        if sum(prepared.cost for prepared in batch) > holds:
            engine.batch_tokens = (engine.batch_tokens or 0) // 2
            raise DoesNotFit("the device has too little memory for this text")

    engine = FakeEngine(packs=True, batch_tokens=16, tokens=lambda item: len(item.text), on_forward=run_out)
    run = Run(engine, batch_of(engine, ["a", "b", "c", "dddd", "e", "f", "g", "h"]))
    assert [isinstance(outcome, Extraction) for _, outcome in run.outcomes] == [True] * 3 + [False] + [True] * 4
    assert isinstance(run.outcomes[3][1], DoesNotFit)
    tried = ["".join(item.text[0] for item in forwarded) for forwarded in engine.batches]
    assert tried == ["abcdefgh", "abcd", "ab", "c", "d", "ef", "gh"]


@pytest.mark.parametrize(("packs", "padded"), [(False, 6), (True, 4)])
def test_size_of_each_batch_and_time_of_each_stage_are_observed(packs: bool, padded: int) -> None:
    waits_s: list[float] = []
    spent_s: dict[str, float] = {}

    class Times(Tally):
        def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
            super().on_batch(size, padded_tokens, real_tokens, wait_s)
            waits_s.append(wait_s)

        def on_stage(self, stage: Stage, seconds: float) -> None:
            spent_s[stage] = seconds

    clock = Clock()

    def pass_time(seconds: float) -> Callable[[object], None]:
        return lambda _: setattr(clock, "now_s", clock.now_s + seconds)

    engine = FakeEngine(
        packs=packs,
        tokens=lambda item: len(item.text),
        on_collate=pass_time(1),
        on_forward=pass_time(2),
        on_decode=pass_time(4),
    )
    tally = Times()
    run = Run(engine, Batch([]))
    stages = Stages(engine, run, tally, Watchdog(60.0), clock)
    batch = batch_of(engine, ["aaa", "a"])
    assert stages.forward(batch, threads=1) is None
    assert not stages.decode(batch)
    assert tally.counts == {"batches": 1, "batched_items": 2, "padded_tokens": padded, "real_tokens": 4}
    assert waits_s == [1.0]
    assert spent_s == {"collate": 1.0, "forward": 2.0, "decode": 4.0}
