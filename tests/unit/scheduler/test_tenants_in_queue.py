"""Tenants share the queue fairly: simulated lanes, no threads, no clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from doubles.fake_engine import FakeChunkedRequest
from views import view

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import QueueFull
from gliner_bento.fairness.queue import NO_TENANT, TenantShare
from gliner_bento.scheduler.batching import BatchLimits, form_batch
from gliner_bento.scheduler.entry import Entry
from gliner_bento.scheduler.queue import WaitingQueue
from gliner_bento.scheduler.tenants import LARGE
from gliner_bento.tasks.extraction import ExtractionItem as Item

ITEM = Item("Ada Lovelace wrote a program.", {"person": "person"})
ONE = view(BatchLimits, max_batch_size=1)
MANY = view(BatchLimits, max_batch_size=8, max_batch_tokens=1000)
A, B = TenantShare("a"), TenantShare("b")


def opened(capacity: int = 10_000, *, packs: bool = True) -> WaitingQueue:
    queue = WaitingQueue(capacity, lambda: 0.0, packs=packs)
    queue.open()
    return queue


def wait(queue: WaitingQueue, share: TenantShare = NO_TENANT, *, tokens: int = 10, priority: int = 0) -> Entry:
    (entry,) = queue.admit([ITEM], "r", None, priority, share=share)
    queue.put(entry, Prepared(ITEM, tokens, words=5))
    return entry


def serve(queue: WaitingQueue, limits: BatchLimits = ONE) -> list[Entry]:
    """Run the next batch, as a lane does."""
    batch = queue.take(queue.next_batch(limits))
    for entry in batch:
        queue.finish(entry)
    return batch


def tokens_served(queue: WaitingQueue, tokens: int, limits: BatchLimits = ONE) -> Counter[str]:
    """Tokens of each tenant in the next `tokens`."""
    served: Counter[str] = Counter()
    while served.total() < tokens:
        for entry in serve(queue, limits):
            served[entry.tenant.name] += entry.cost
    return served


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("limits", [ONE, MANY])
def test_backlogged_tenants_get_equal_tokens_whatever_their_items_cost(limits: BatchLimits, packs: bool) -> None:
    queue = opened(packs=packs)
    for _ in range(300):
        wait(queue, A, tokens=200)
    for _ in range(3000):
        wait(queue, B, tokens=20)
    served = tokens_served(queue, 50_000, limits)
    assert served["a"] == pytest.approx(served["b"], rel=0.05)


def test_new_weight_counts_from_the_next_request_on() -> None:
    queue = opened()
    for _ in range(1000):
        wait(queue, A)
        wait(queue, B)
    wait(queue, TenantShare("a", weight=4.0))
    served = tokens_served(queue, 10_000)
    assert served["a"] == pytest.approx(4 * served["b"], rel=0.02)


def test_work_that_nobody_waited_for_costs_nothing_later() -> None:
    queue = opened()
    for _ in range(100):
        wait(queue, A, tokens=500)
        serve(queue)
    for _ in range(100):
        wait(queue, A)
        wait(queue, B)
    served = tokens_served(queue, 400)
    assert served["a"] == pytest.approx(served["b"], abs=20)


def test_many_tenants_take_turns_in_the_order_of_their_arrival() -> None:
    queue = opened()
    names = [f"tenant {number}" for number in range(200)]
    for _ in range(2):
        for name in names:
            wait(queue, TenantShare(name))
    for _ in range(2):
        assert [serve(queue)[0].tenant.name for _ in names] == names


def test_passes_of_a_chunked_item_are_charged_to_its_tenant() -> None:
    queue = opened()
    (parent,) = queue.admit([ITEM], "long", share=A)
    queue.put(parent, Prepared(ITEM, 0, words=0, chunked=FakeChunkedRequest(ITEM, 2)))
    passes = [queue.put_pass(parent, Prepared(ITEM, 500, words=5)) for _ in range(3)]
    short = [wait(queue, B, tokens=100) for _ in range(6)]
    order = [serve(queue)[0] for _ in range(9)]
    assert order == [passes[0], *short[:5], passes[1], short[5], passes[2]]


def test_priority_counts_among_the_requests_of_a_tenant_only() -> None:
    queue = opened()
    usual = [wait(queue, A) for _ in range(3)]
    for _ in range(100):
        wait(queue, B, priority=-100)
    urgent = wait(queue, A, priority=-1)
    own = [entry for entry in (serve(queue)[0] for _ in range(8)) if entry.tenant.name == "a"]
    assert own == [urgent, *usual]


def test_requests_of_a_lower_priority_leave_lanes_and_batches_to_the_others() -> None:
    queue = opened()
    background, usual = [wait(queue, A, priority=100) for _ in range(4)], [wait(queue, A) for _ in range(4)]
    assert all(entry.size is LARGE for entry in background)
    assert not any(entry.size is LARGE for entry in usual)
    quota = queue.batch_quota(1000)
    assert queue.next_batch(MANY, quota=quota).entries == usual
    assert [serve(queue)[0] for _ in range(8)] == [*usual, *background]


def test_priority_of_a_tenant_that_may_cross_counts_among_all() -> None:
    queue = opened()
    for _ in range(50):
        wait(queue, A, priority=-100)
    operator = TenantShare("operator", crosses_tenants=True)
    late, urgent = wait(queue, operator, priority=1), [wait(queue, operator, priority=-1) for _ in range(20)]
    order = [serve(queue)[0] for _ in range(71)]
    assert order[:20] == urgent
    assert order[-1] is late


def test_tenant_that_is_new_after_a_crossing_one_is_not_behind_the_others() -> None:
    queue = opened()
    operator = TenantShare("operator", crosses_tenants=True)
    for _ in range(100):
        wait(queue, A)
    for _ in range(100):
        wait(queue, operator, priority=-1, tokens=1000)
        serve(queue)
    new = wait(queue, B)
    assert new in serve(queue) + serve(queue)


def test_one_tenant_cannot_fill_the_queue() -> None:
    queue = opened(capacity=8)
    for _ in range(8):
        wait(queue, A)
    with pytest.raises(QueueFull):
        wait(queue, A)
    for _ in range(4):
        wait(queue, B)
    with pytest.raises(QueueFull):
        wait(queue, B)
    for number in range(4):
        for _ in range(8 // (3 + number)):
            if queue.unfinished_items < 16:
                wait(queue, TenantShare(f"new {number}"))
    assert queue.unfinished_items == 16
    with pytest.raises(QueueFull):
        wait(queue, TenantShare("one more"))
    for _ in range(16):
        serve(queue)
    assert queue.unfinished_items == 0
    for _ in range(8):
        wait(queue, A)


@dataclass
class Waiting:
    """A waiting item, for a queue without tenants."""

    order: tuple[int, float, int]
    cost: int
    adapter: None = None
    bypassed: int = 0


@pytest.mark.parametrize("share", [NO_TENANT, TenantShare("a", weight=0.3, crosses_tenants=True)])
@pytest.mark.parametrize("packs", [False, True])
def test_one_tenant_is_served_by_priority_virtual_finish_and_admission(packs: bool, share: TenantShare) -> None:
    queue = opened(packs=packs)
    expected: list[Waiting] = []
    for step in range(120):
        entries = queue.admit([ITEM] * (1 + step * 7 % 45 if step < 60 else 0), "r", None, step % 3 - 1, share=share)
        for entry in entries:
            cost = 5 + entry.sequence * 13 % 90
            queue.put(entry, Prepared(ITEM, cost, words=5))
            expected.append(Waiting(entry.order, cost))
        expected.sort(key=lambda one: one.order)
        chosen = form_batch(expected, MANY, packs=packs)
        served = [entry.sequence for entry in serve(queue, MANY)]
        assert served == [expected[index].order[-1] for index in chosen]
        for one in expected[: chosen[-1]]:
            one.bypassed += 1
        for index in reversed(chosen):
            del expected[index]
    assert queue.waiting_entries == len(expected) > 0


def test_memory_does_not_grow_with_the_number_of_tenants() -> None:
    queue = opened()
    for number in range(5000):
        wait(queue, TenantShare(f"tenant {number}"), tokens=500 if number % 7 else 5)
        if number % 3:
            serve(queue)
    while queue.waiting_entries:
        serve(queue, MANY)
    assert len(queue._waiting._tenants) <= 1024
    assert not queue._tenants
