"""The order in which waiting work is served, fair among tenants; and how they share a limit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.fairness.capacity import SharedCapacity
from gliner_bento.fairness.constants import MAX_REMEMBERED_TENANTS
from gliner_bento.fairness.queue import FairQueue, Order, TenantShare

FLOOD = 200
_numbers = count()


@dataclass(frozen=True, eq=False)
class Work:
    share: TenantShare
    cost: int
    order: Order


def work(tenant: str, cost: int = 10, priority: int = 0, **share: float) -> Work:
    return Work(TenantShare(tenant, **share), cost, (priority, 0.0, next(_numbers)))


def queue_of(*works: Work) -> FairQueue[Work]:
    queue: FairQueue[Work] = FairQueue()
    for one in works:
        queue.add(one)
    return queue


def flood(tenant: str, number: int = FLOOD, cost: int = 10, **share: float) -> list[Work]:
    return [work(tenant, cost, **share) for _ in range(number)]


def served(queue: FairQueue[Work], number: int) -> list[Work]:
    return [queue.serve() for _ in range(number)]


def tenants_of(works: list[Work]) -> Counter[str]:
    return Counter(one.share.tenant for one in works)


def test_of_one_tenant_the_first_is_first():
    works = flood("a", 5)
    queue = queue_of(*works)
    queue.remove(works[2])
    assert served(queue, 4) == [*works[:2], *works[3:]]
    assert not queue


def test_a_tenant_with_one_request_does_not_wait_for_a_flood():
    late = work("late")
    queue = queue_of(*flood("a"))
    served(queue, 50)
    queue.add(late)
    assert late in served(queue, 2)


@pytest.mark.parametrize(("weight", "cost", "share"), [(1.0, 10, 0.5), (3.0, 10, 0.75), (1.0, 30, 0.25)])
def test_tenants_share_tokens_by_their_weights(weight: float, cost: int, share: float):
    queue = queue_of(*flood("a"), *flood("b", cost=cost, weight=weight))
    assert tenants_of(served(queue, 100))["b"] == pytest.approx(100 * share, abs=1)


def test_leaving_the_queue_between_requests_wins_nothing():
    queue = queue_of(*flood("patient"))
    counted: Counter[str] = Counter()
    for _ in range(100):
        if not any(one.share.tenant == "returning" for one in queue):
            queue.add(work("returning"))
        counted[queue.serve().share.tenant] += 1
    assert counted == {"patient": 50, "returning": 50}


def test_time_without_requests_earns_nothing():
    queue = queue_of(*flood("a"), *flood("b", 1))
    served(queue, 100)
    for one in flood("b"):
        queue.add(one)
    assert tenants_of(served(queue, 20)) == {"a": 10, "b": 10}


def test_priority_orders_a_tenants_own_requests_and_others_if_it_may():
    patient = flood("a", 2)
    own = work("b", priority=-1)
    queue = queue_of(*patient, work("b"), own)
    assert served(queue, 2) == [patient[0], own]
    crossing = [work("c", priority=-1, crosses_tenants=True) for _ in range(3)]
    queue = queue_of(*patient, *crossing)
    assert served(queue, 4) == [*crossing, patient[0]]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.integers(-1, 1)), max_size=30))
def test_work_is_served_in_the_order_of_iteration(sent: list[tuple[str, int, int]]):
    weights = {"a": 1.0, "b": 2.5, "c": 1.0}
    works = [
        work(tenant, cost, priority, weight=weights[tenant], crosses_tenants=tenant == "c")
        for tenant, cost, priority in sent
    ]
    queue = queue_of(*works)
    expected = list(queue)
    assert Counter(expected) == Counter(works)
    for one in expected:
        assert (queue.first, queue.serve()) == (one, one)
    assert queue.first is None
    assert not queue


def test_what_is_remembered_of_tenants_is_bounded():
    queue = queue_of(*flood("a", 10_000))
    for number in range(5000):
        one = work(str(number))
        queue.add(one)
        queue.remove(one)
    assert len(queue._tenants) <= MAX_REMEMBERED_TENANTS + 1
    queue.clear()
    assert not queue._tenants


def test_a_tenant_with_less_than_an_equal_share_finds_room_in_a_full_queue():
    places = SharedCapacity(10)
    places.hold("a", 9)
    assert places.excess("a", 1) == 0
    assert places.excess("a", 2) == 1
    places.hold("a", 1)
    assert places.excess("b", 5) == 0
    assert places.excess("b", 6) == 6
    places.hold("b", 5)
    assert [places.excess(tenant, 1) for tenant in "abc"] == [6, 6, 0]
    for tenant in "cdefg":
        places.hold(tenant, 1)
    assert places.excess("h", 1) == 11, "twice the capacity is held"
    for tenant, held in {"a": 10, "b": 5}.items():
        places.hold(tenant, -held)
    assert (len(places), places.total) == (5, 5)


def near(queue: FairQueue[Work], max_lead: float) -> list[str]:
    return [waiting[0].share.tenant for waiting in queue.near_turn(max_lead)]


def test_tenants_are_near_their_turn_that_were_served_little_more_than_the_next():
    queue = queue_of(*flood("a"), *flood("b"), *flood("c"))
    assert near(queue, 0) == ["a", "b", "c"]
    served(queue, 1)
    queue.charge("b", 100)
    assert (queue.lead("a"), queue.lead("b"), queue.lead("c")) == (10, 100, 0)
    assert near(queue, 0) == ["c"]
    assert near(queue, 50) == ["c", "a"]
    assert near(queue, 100) == ["c", "a", "b"]


def test_a_tenants_work_is_in_its_order_when_it_is_near_its_turn():
    works = flood("a", 3)
    assert [list(waiting) for waiting in queue_of(*works[::-1]).near_turn(0)] == [works]


def test_a_tenant_is_not_near_its_turn_while_another_ones_work_is_more_urgent():
    urgent = work("operator", priority=-1, crosses_tenants=True)
    queue = queue_of(*flood("a"), urgent)
    assert near(queue, 1000) == ["operator"]
    queue.remove(urgent)
    assert near(queue, 1000) == ["a"]


def test_nobody_leads_and_nobody_is_near_while_nothing_waits():
    queue: FairQueue[Work] = FairQueue()
    assert (queue.lead("a"), near(queue, 1)) == (0, [])
