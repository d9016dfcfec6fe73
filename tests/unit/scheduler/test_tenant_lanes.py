"""Lanes and batches among tenants, and beside large requests: nobody has all of them while others send."""

from __future__ import annotations

from dataclasses import replace

from stage import Clock, Gate, MakeItem, Start, Until, ending_of, hold_lane, settle, submit_waiting

from benchmark.fake_engine import FakeEngine
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.tasks.extraction import Extraction

A, B = TenantShare("a"), TenantShare("b")


def hold_flood(gate: Gate):
    """Lets everything through but the batches of A, whose texts begin with "flood"."""

    def on_forward(batch) -> None:
        if batch[0].item.text.startswith("flood"):
            gate(batch)

    return on_forward


def test_a_tenant_that_sends_has_a_lane_free_of_the_flood_of_another(
    start: Start, gate: Gate, item: MakeItem, until: Until, clock: Clock
) -> None:
    scheduler = start(FakeEngine(on_forward=hold_flood(gate), packs=True), inference_lanes=2, max_batch_size=2)
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="b", share=B)), Extraction)
    until(lambda: scheduler.stats.lanes_free == 2)
    for number in range(20):
        scheduler.submit(item(f"flood {number}"), request_id="a", share=A)
    gate.arrival()
    until(lambda: scheduler.stats.preparing_items == 0)
    for _ in range(3):
        assert isinstance(ending_of(scheduler.submit(item("Charles"), request_id="b", share=B)), Extraction)
        assert gate.nothing_came, "one lane runs nothing of the flood"
        gate.let_through()
        gate.arrival()
    until(lambda: scheduler.stats.lanes_free == 1)
    clock.now_s += 1.5  # B sends less than once in a second
    for _ in range(3):
        gate.let_through()
        gate.arrival()
        assert scheduler.stats.lanes_free == 1
    clock.now_s += 10  # B has sent nothing for long
    gate.arrival()
    until(lambda: scheduler.stats.lanes_free == 0)


def test_no_flood_is_collated_ahead_for_the_lane_that_another_tenant_will_need(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    other = Gate()
    engine = FakeEngine(on_forward=lambda batch: (other if batch[0].item.text == "Ada" else gate)(batch), packs=True)
    scheduler = start(engine, inference_lanes=2, max_batch_size=2)
    ada = scheduler.submit(item("Ada"), request_id="b", share=B)
    other.arrival()
    for number in range(20):
        scheduler.submit(item(f"flood {number}"), request_id="a", share=A)
    flood = gate.arrival()
    settle(scheduler, until)
    ahead = scheduler.stats.running_items - len(flood) - 1
    other.open()
    assert isinstance(ending_of(ada), Extraction)
    assert ahead == 0
    until(lambda: scheduler.stats.lanes_free == 1)
    assert gate.nothing_came


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


def test_a_tenant_that_may_cross_is_not_kept_from_the_last_lane(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    operator = TenantShare("operator", crosses_tenants=True)
    scheduler = start(FakeEngine(on_forward=hold_flood(gate), packs=True), inference_lanes=2, max_batch_size=2)
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="b", share=B)), Extraction)
    for number in range(20):
        scheduler.submit(item(f"flood {number}"), request_id="a", priority=-1, share=operator)
    gate.arrival()
    gate.arrival()


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
    submit_waiting(scheduler, until, [item("Ada")], share=B)  # first: from now on nothing of A is collated ahead
    submit_waiting(scheduler, until, [item(f"flood {number}") for number in range(40)], share=A)
    gate.let_through()
    assert batch_of(gate) == (2, 1), "A has at most 250 of 1000 tokens"
    assert batch_of(gate) == (2, 0)
    clock.now_s += 10  # B has sent nothing for long
    assert batch_of(gate)[0] <= 10
    assert batch_of(gate) == (10, 0)


def test_a_tenant_alone_has_all_of_a_batch(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, packs=True, cost=lambda _: 100), inference_lanes=1, max_batch_size=32)
    for number in range(20):
        scheduler.submit(item(f"flood {number}"), request_id="a", share=A)
    gate.arrival()
    settle(scheduler, until)
    gate.let_through()
    assert batch_of(gate) == (10, 0)


def test_a_large_request_leaves_a_lane_to_small_ones_of_its_tenant(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    scheduler = start(FakeEngine(on_forward=hold_flood(gate), packs=True), inference_lanes=2, max_batch_size=2)
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="small")), Extraction)
    until(lambda: scheduler.stats.lanes_free == 2)
    scheduler.submit_many([item(f"flood {number}") for number in range(40)], request_id="large")
    gate.arrival()
    until(lambda: scheduler.stats.preparing_items == 0)
    for number in range(3):
        assert isinstance(ending_of(scheduler.submit(item("Charles"), request_id=str(number))), Extraction)
        assert gate.nothing_came, "one lane runs nothing of the large request"
        gate.let_through()
        gate.arrival()


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
    submit_waiting(scheduler, until, [item("Ada")], priority=-1)
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
