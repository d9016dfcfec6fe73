from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest
from doubles.fake_engine import FakeEngine, extract

from gliner_bento.engine.base import Engine, SlotState
from gliner_bento.tasks.extraction import ExtractionItem as Item


def item(text: str) -> Item:
    return Item(text=text, labels={"person": "person"}, relations={"knows": "knows"})


def test_every_capitalised_word_is_an_entity_and_adjacent_ones_are_related() -> None:
    answer = extract(item("Alice met Bob."))
    assert [(e.text, e.label, e.start, e.end) for e in answer.entities] == [
        ("Alice", "person", 0, 5),
        ("Bob", "person", 10, 13),
    ]
    assert [(r.relation, r.head.entity_idx, r.tail.entity_idx) for r in answer.relations] == [("knows", 0, 1)]
    assert (answer.usage.words, answer.usage.tokens) == (3, 4)


def test_records_its_batches_and_lanes() -> None:
    engine = FakeEngine()
    checked: Engine = engine
    batch = [checked.prepare(item("Alice")), checked.prepare(item("bob"))]
    checked.start_lane()
    assert [prepared.cost for prepared in batch] == [2, 2]
    answers = checked.decode(checked.forward(checked.collate(batch), 2))
    assert [len(answer.entities) for answer in answers] == [1, 0]
    assert engine.batches == [[item("Alice"), item("bob")]]
    assert engine.lanes == {threading.current_thread().name: 2}


@pytest.mark.parametrize("step", ["prepare", "collate", "forward", "decode"])
def test_fails_in_the_requested_step(step: str) -> None:
    def error(failing: Item) -> Exception | None:
        return ValueError(step) if failing.text == "bad" else None

    engine = FakeEngine(**{f"{step}_error": error})
    run = {
        "prepare": lambda text: engine.prepare(item(text)),
        "collate": lambda text: engine.collate([engine.prepare(item(text))]),
        "forward": lambda text: engine.forward(engine.collate([engine.prepare(item(text))]), 1),
        "decode": lambda text: engine.decode([item(text)]),
    }[step]
    run("good")
    with pytest.raises(ValueError, match=step):
        run("bad")


@dataclass
class Lease:
    key: str
    ready: Future[None] = field(default_factory=Future)

    def release(self) -> None:
        """No effect."""


def test_a_batch_of_more_adapters_than_slots_is_refused() -> None:
    ready: Future[None] = Future()
    ready.set_result(None)
    engine = FakeEngine(lease=lambda one: Lease(one.text, ready) if one.text else None, slot_state=SlotState(slots=1))
    assert engine.slot_state() == SlotState(slots=1)
    batch = [engine.prepare(item(text)) for text in ("a", "", "b", "a")]
    assert engine.collate([batch[0], batch[1], batch[3]])
    with pytest.raises(AssertionError, match="2 adapters for 1 slots"):
        engine.collate(batch)
    engine.slots = SlotState(slots=2)
    assert engine.collate(batch)


@pytest.mark.parametrize("error", [None, ValueError("broken")])
def test_a_batch_with_an_adapter_that_is_not_in_memory_is_refused(error: Exception | None) -> None:
    lease = Lease("a")
    if error:
        lease.ready.set_exception(error)
    engine = FakeEngine(lease=lambda one: lease, slot_state=SlotState(slots=1))
    with pytest.raises(AssertionError, match="not in memory"):
        engine.collate([engine.prepare(item("a"))])


def test_cost_may_differ_from_tokens() -> None:
    prepared = FakeEngine(cost=lambda item: 7).prepare(item("Alice"))
    assert (prepared.tokens, prepared.cost) == (2, 7)
