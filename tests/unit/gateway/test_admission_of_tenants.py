"""Admission among tenants, on a simulated clock: who asks for little is not refused because of who asks for much."""

from __future__ import annotations

import pytest
from doubles.simulated_replica import BATCH, TOKENS_PER_S, Simulated, item, tokens

from gliner_bento.gateway.policy.tenants import Tenant

pytestmark = pytest.mark.long

A, B = Tenant("a"), Tenant("b")
WAIT_S = 3.0


def p95(waits_s: list[float]) -> float:
    return sorted(waits_s)[int(0.95 * len(waits_s))]


def beside_a_flood(flood_words: int, seconds: float = 20, connections: int = 0) -> tuple[Simulated, list[bool]]:
    """B asks for a short text 4 times a second. Beside it A has so many connections, or sends ten times as much as the
    replica can answer."""
    simulated = Simulated()
    asked, admitted = 0, []
    while simulated.now_s < seconds:
        if connections:
            while sum(request.tenant is A for request in simulated.running) < connections:
                if not simulated.ask(item(flood_words), tenant=A):
                    break
        else:
            while asked < simulated.now_s * 10 * TOKENS_PER_S / tokens(item(flood_words)):
                simulated.ask(item(flood_words), timeout_s=2.0, tenant=A)
                asked += 1
        if len(admitted) < simulated.now_s * 4:
            admitted.append(simulated.ask(item(20), timeout_s=2.0, tenant=B))
        simulated.run(0.02)
    return simulated, admitted


@pytest.mark.parametrize("flood_words", [20, 300, 5000])
def test_a_tenant_is_not_refused_and_does_not_wait_because_another_one_floods(flood_words: int):
    simulated, admitted = beside_a_flood(flood_words)
    assert len(admitted) >= 30
    assert all(admitted)
    assert len(simulated.refusals) > 50, "the flood is refused"
    assert p95(simulated.waits_of["b"]) <= 0.5, "a turn of the flood, and the own one"


def test_a_tenant_with_64_connections_of_long_texts_leaves_the_replica_to_another():
    simulated, admitted = beside_a_flood(2000, seconds=40, connections=64)
    assert all(admitted)
    assert p95(simulated.waits_of["b"]) <= 0.5
    assert p95(simulated.waits_of["a"]) > 5


def test_a_tenants_short_requests_do_not_wait_for_its_own_of_a_lower_priority():
    simulated, admitted, refused = Simulated().measured(), [], 0
    start_s = simulated.now_s
    while simulated.now_s < start_s + 20:
        while len(simulated.running) < 200 and simulated.ask(*[item(20)] * 16, timeout_s=60.0, priority=100):
            pass
        refused += not simulated.ask(*[item(20)] * 16, timeout_s=2.0, priority=100)
        if len(admitted) < (simulated.now_s - start_s) * 4:
            admitted.append(simulated.ask(item(20), timeout_s=2.0))
        simulated.run(0.02)
    assert len(admitted) >= 30
    assert all(admitted)
    assert refused > 30, "what is served last waits for all"


@pytest.mark.parametrize(("flood_words", "connections"), [(250, 64), (5000, 64)])
def test_a_tenants_short_requests_are_answered_beside_its_own_flood(flood_words: int, connections: int):
    simulated, waits, shorts = Simulated().measured(), [], 0
    start_s = simulated.now_s
    while simulated.now_s < start_s + 40:
        while len(simulated.running) < connections and simulated.ask(item(flood_words)):
            pass
        if shorts < (simulated.now_s - start_s) * 4:
            assert simulated.ask(item(20), timeout_s=10.0)
            waits.append(([*simulated.running][-1], simulated.now_s))
            shorts += 1
        simulated.run(0.02)
        waits = [(one, asked_s) for one, asked_s in waits if one in simulated.running]
        assert all(simulated.now_s - asked_s < 3 for _, asked_s in waits)
    assert shorts >= 30
    assert len(simulated.waits_s) > shorts, "the flood is answered, too"


def test_large_requests_leave_room_for_short_ones_of_their_tenant():
    simulated = Simulated(max_queued_tokens=100_000)
    while simulated.ask(item(2000)):
        pass
    assert all([simulated.ask(item(20)) for _ in range(200)])
    assert simulated.admission._capacity.total <= 100_000


def test_tenants_that_all_flood_are_answered_alike():
    simulated = Simulated().measured()
    tenants = [Tenant(f"t{number}") for number in range(4)]
    while simulated.now_s < 40:
        for tenant in tenants:
            for _ in range(4):
                simulated.ask(item(), timeout_s=WAIT_S, tenant=tenant)
        simulated.run(0.02)
    answered = [len(simulated.waits_of[tenant.name]) for tenant in tenants]
    assert max(answered) < 1.3 * min(answered)
    assert p95(simulated.waits_s) < WAIT_S


def test_many_new_tenants_together_are_refused_as_one_is():
    simulated = Simulated().measured()
    while simulated.now_s < 32:
        for _ in range(10):
            simulated.ask(item(), timeout_s=WAIT_S, tenant=Tenant(f"t{simulated.now_s} {len(simulated.running)}"))
        simulated.run(0.02)
    assert simulated.refusals
    assert p95(simulated.waits_s[200:]) < WAIT_S
    simulated.run(10)
    assert not simulated.admission._loads


def test_weight_is_a_larger_share():
    simulated = Simulated().measured()
    heavy = Tenant("heavy", weight=3.0)
    while simulated.now_s < 40:
        for tenant in (A, heavy):
            for _ in range(8):
                simulated.ask(item(), timeout_s=WAIT_S, tenant=tenant)
        simulated.run(0.02)
    answered = {name: len(waits) for name, waits in simulated.waits_of.items()}
    assert answered["heavy"] == pytest.approx(3 * answered["a"], rel=0.25)


def test_max_queued_tokens_limits_the_tokens_under_way():
    simulated = Simulated(max_queued_tokens=10_000)
    while simulated.ask(item(1000), tenant=A):
        assert len(simulated.running) < BATCH
    total = sum(request.left for request in simulated.running)
    assert 5000 < total <= 20_000
    refused = item(3000)
    assert not simulated.ask(refused, tenant=A)
    assert simulated.refusals[-1].retry_after_s == 1, "the throughput has not been measured"
    assert simulated.ask(item(200), tenant=B), "less than half of it, which is the share of the second of two tenants"
    while simulated.ask(item(200), tenant=B):
        pass
    assert simulated.admission._capacity.total <= 20_000
    simulated.run(30)
    assert simulated.ask(item(100_000), tenant=A), "nothing else is under way"


def test_without_max_queued_tokens_the_tokens_are_not_limited():
    simulated = Simulated()
    for _ in range(BATCH - 1):
        assert simulated.ask(item(100_000))


def test_what_a_full_replica_refuses_may_come_again_when_as_much_is_answered():
    simulated = Simulated()
    simulated.measured()
    for _ in range(BATCH):
        assert simulated.ask(item(1000))
    assert simulated.admission.retry_after_s(1) == 1
    one_s = simulated.admission._capacity.total / BATCH / TOKENS_PER_S
    assert simulated.admission.retry_after_s(100) == pytest.approx(100 * one_s, abs=1)
