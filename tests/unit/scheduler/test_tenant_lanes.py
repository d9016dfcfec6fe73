"""Lanes and batches among tenants, and beside large requests: work that waits has all lanes, and part of a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from collator import express_rests
from doubles.fake_engine import FakeEngine
from stage import Clock, Gate, MakeItem, Start, Until, ending_of, hold_lane, settle, submit_waiting

from gliner_bento.fairness.queue import TenantShare
from gliner_bento.tasks.extraction import Extraction

A, B = TenantShare("a"), TenantShare("b")


def hold_flood(gate: Gate):
    """Lets everything through but the batches of A, whose texts begin with "flood"."""

    def on_forward(batch) -> None:
        if batch[0].item.text.startswith("flood"):
            gate(batch)

    return on_forward


@pytest.mark.parametrize("share", [A, B], ids=["of the same tenant", "of another tenant"])
@pytest.mark.parametrize("texts", [1, 40], ids=["short", "large"])
def test_no_lane_is_idle_while_a_flood_waits_after_a_short_text(
    start: Start, gate: Gate, item: MakeItem, until: Until, share: TenantShare, texts: int
) -> None:
    scheduler = start(FakeEngine(on_forward=hold_flood(gate), packs=True), inference_lanes=2, max_batch_size=2)
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="short", share=share)), Extraction)
    until(lambda: scheduler.stats.lanes_free == 2)
    for number in range(0, 40, texts):
        flood = [item(f"flood {number + text}") for text in range(texts)]
        scheduler.submit_many(flood, request_id=f"flood {number}", share=A)
    gate.arrival()
    for _ in range(5):
        gate.arrival()
        assert scheduler.stats.lanes_free == 0
        until(lambda: express_rests(scheduler))  # while it ends its last batch, the next one may be collated for a lane
        assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="short", share=B)), Extraction)
        gate.let_through()


def test_one_tenant_alone_has_all_lanes(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=hold_flood(gate), packs=True), inference_lanes=2, max_batch_size=2)
    for number in range(20):
        scheduler.submit(item(f"flood {number}"), request_id="a", share=A)
    gate.arrival()
    gate.arrival()
    until(lambda: scheduler.stats.lanes_free == 0)


def test_two_tenants_that_flood_have_all_lanes(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, packs=True), inference_lanes=2, max_batch_size=2)
    for number in range(10):
        for share in (A, B):
            scheduler.submit(item(f"{share.tenant} {number}"), request_id=share.tenant, share=share)
    gate.arrival()
    gate.arrival()
    until(lambda: scheduler.stats.lanes_free == 0)


@pytest.mark.parametrize("flood", ["of another tenant", "large"])
def test_no_flood_is_collated_ahead_while_somebody_else_sends(
    start: Start, gate: Gate, item: MakeItem, until: Until, flood: str
) -> None:
    scheduler = start(FakeEngine(on_forward=gate, packs=True), inference_lanes=1, max_batch_size=2)
    scheduler.submit(item("Ada " * 300), request_id="b", share=B)  # too long for the express lane
    gate.arrival()
    if flood == "large":
        scheduler.submit_many([item("flood")] * 40, request_id="large", share=B)
    else:
        for number in range(20):
            scheduler.submit(item(f"flood {number} " + "x" * 1000), request_id=str(number), share=A)
    settle(scheduler, until)
    assert scheduler.stats.running_items == 1, "only what the lane runs"


def batch_of(gate: Gate) -> tuple[int, int]:
    """How many items of the flood, and how many others, are in the next batch."""
    texts = gate.arrival()
    gate.let_through()
    flood = sum(text.startswith("flood") for text in texts)
    return flood, len(texts) - flood


def test_a_tenant_has_a_quarter_of_a_batch_while_another_one_sends(
    start: Start, gate: Gate, item: MakeItem, until: Until, clock: Clock
) -> None:
    engine = FakeEngine(on_forward=gate, packs=True, cost=lambda one: 100 if one.text.startswith("flood") else 1)
    scheduler = start(engine, inference_lanes=1, max_batch_size=32)
    scheduler.submit(item("flood"), request_id="a", share=A)
    assert gate.arrival() == ["flood"]
    submit_waiting(scheduler, until, [item("Ada " * 300)], share=B)  # too long for the express lane
    submit_waiting(scheduler, until, [item(f"flood {number} " + "x" * 1000) for number in range(40)], share=A)
    gate.let_through()
    assert batch_of(gate) == (2, 1), "A has at most 250 of 1000 tokens"
    assert batch_of(gate) == (2, 0)
    clock.now_s += 10  # B has sent nothing for long
    later = [batch_of(gate) for _ in range(3)]  # one or two were collated before
    assert later[-1] == (10, 0)
    assert set(later) <= {(2, 0), (10, 0)}


def test_short_texts_are_in_no_batch_with_longer_ones_of_another_tenant(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    """They would wait for the longer ones, and their tenant would get less than its share."""
    engine = FakeEngine(on_forward=gate, packs=True, cost=lambda one: 100 if one.text.startswith("flood") else 50)
    scheduler = start(engine, inference_lanes=1, max_batch_size=32)
    hold_lane(scheduler, gate, item)  # short, too: it sends, and the express lane leaves its tenant to the lane
    for number in range(15):
        scheduler.submit(item(f"flood {number} " + "x" * 1000), request_id=f"flood {number}", share=A)
        scheduler.submit_many([item("Ada"), item("Bea")], request_id=f"short {number}")
    settle(scheduler, until)
    gate.let_through()
    assert {batch_of(gate) for _ in range(6)} == {(2, 0), (0, 5)}, "each has at most 250 of 1000 tokens"


def test_a_tenant_alone_has_all_of_a_batch(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, packs=True, cost=lambda _: 100), inference_lanes=1, max_batch_size=32)
    for number in range(20):
        scheduler.submit(item(f"flood {number}"), request_id="a", share=A)
    gate.arrival()
    settle(scheduler, until)
    gate.let_through()
    assert batch_of(gate) == (10, 0)


def test_a_large_request_alone_has_all_lanes(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, packs=True), inference_lanes=2, max_batch_size=2)
    scheduler.submit_many([item(f"flood {number}") for number in range(40)], request_id="large")
    gate.arrival()
    gate.arrival()
    until(lambda: scheduler.stats.lanes_free == 0)


def test_a_small_request_is_in_no_batch_with_a_large_one(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=gate, packs=True, cost=lambda one: 100 if one.text.startswith("flood") else 1)
    scheduler = start(engine, inference_lanes=1, max_batch_size=32)
    hold_lane(scheduler, gate, item)  # small, too: from now on nothing of large ones is collated ahead
    gate.let_through()
    scheduler.submit_many([item(f"flood {number}") for number in range(40)], request_id="large")
    gate.arrival()
    settle(scheduler, until)
    submit_waiting(scheduler, until, [item("Ada " * 300)], priority=-1)  # too long for the express lane
    gate.let_through()
    assert batch_of(gate) == (0, 1)
    assert batch_of(gate) == (2, 0), "little of the large one: the next small one does not wait long"


def test_a_request_that_scores_all_pairs_is_a_large_one(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    engine = FakeEngine(on_forward=gate, packs=True)
    scheduler = start(engine, inference_lanes=1, max_batch_size=32)
    scheduler.submit(item("Ada"), request_id="first")
    gate.arrival()
    pairs = replace(item("flood"), threshold=0.0, relations={"met": "met"})
    scheduler.submit(pairs, request_id="pairs")
    scheduler.submit(item("Charles"), request_id="small")
    until(lambda: scheduler.stats.waiting_items == 2)
    gate.let_through()
    assert sorted([batch_of(gate), batch_of(gate)]) == [(0, 1), (1, 0)]
