"""The order in which a fleet serves what waits: fair among tenants."""

from __future__ import annotations

from collections import Counter

import pytest

from gliner_bento.replicas.fleet.line import Line, Ticket

FLOOD = 200


def line_of(*tickets: Ticket) -> Line:
    line = Line()
    for ticket in tickets:
        line.add(ticket)
    return line


def flood(tenant: str, count: int = FLOOD, cost: int = 10, **share: float) -> list[Ticket]:
    return [Ticket(cost, tenant=tenant, **share) for _ in range(count)]


def served(line: Line, count: int) -> list[Ticket]:
    return [line.serve() for _ in range(count)]


def test_of_one_tenant_the_first_is_first():
    tickets = flood("a", 5)
    line = line_of(*tickets)
    line.remove(tickets[2])
    assert served(line, 4) == [*tickets[:2], *tickets[3:]]
    assert not line


def test_a_tenant_with_one_request_does_not_wait_for_a_flood():
    (late,) = flood("late", 1)
    line = line_of(*flood("a"))
    served(line, 50)
    line.add(late)
    assert late in served(line, 2)


@pytest.mark.parametrize(("weight", "cost", "share"), [(1.0, 10, 0.5), (3.0, 10, 0.75), (1.0, 30, 0.25)])
def test_tenants_share_tokens_by_their_weights(weight: float, cost: int, share: float):
    line = line_of(*flood("a"), *flood("b", cost=cost, weight=weight))
    counted = Counter(ticket.tenant for ticket in served(line, 100))
    assert counted["b"] == pytest.approx(100 * share, abs=1)


def test_leaving_the_line_between_requests_wins_nothing():
    line = line_of(*flood("patient"))
    counted: Counter[str] = Counter()
    for _ in range(100):
        if not any(ticket.tenant == "returning" for ticket in line):
            line.add(Ticket(10, tenant="returning"))
        counted[line.serve().tenant] += 1
    assert counted == {"patient": 50, "returning": 50}


def test_time_without_requests_earns_nothing():
    line = line_of(*flood("a"), *flood("b", 1))
    served(line, 100)
    for ticket in flood("b"):
        line.add(ticket)
    assert Counter(ticket.tenant for ticket in served(line, 20)) == {"a": 10, "b": 10}


def test_priority_orders_a_tenants_own_requests_and_others_if_it_may():
    patient = flood("a", 2)
    own = Ticket(10, tenant="b", priority=-1)
    line = line_of(*patient, Ticket(10, tenant="b"), own)
    assert served(line, 2) == [patient[0], own]
    crossing = [Ticket(10, tenant="c", priority=-1, crosses_tenants=True) for _ in range(3)]
    line = line_of(*patient, *crossing)
    assert served(line, 4) == [*crossing, patient[0]]


def test_what_is_remembered_of_tenants_is_bounded():
    line = line_of(*flood("a", 10_000))
    for number in range(5000):
        (ticket,) = flood(str(number), 1)
        line.add(ticket)
        line.remove(ticket)
    assert len(line._tenants) < 2000
    line.clear()
    assert not line._tenants
