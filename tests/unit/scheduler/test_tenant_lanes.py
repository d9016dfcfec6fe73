"""Lanes among tenants: no tenant has all of them while another one sends."""

from __future__ import annotations

from stage import Clock, Gate, MakeItem, Start, Until, ending_of

from gliner_bento.engine.fake import FakeEngine
from gliner_bento.scheduler.tenant_queues import TenantShare
from gliner_bento.types import Extraction

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
    clock.now_s += 10  # B has sent nothing for long
    gate.arrival()
    until(lambda: scheduler.stats.lanes_free == 0)


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
