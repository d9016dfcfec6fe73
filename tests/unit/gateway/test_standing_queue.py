"""A burst is absorbed, a standing queue is refused; on a simulated clock, with the defaults of the settings."""

from __future__ import annotations

import pytest
from doubles.simulated_replica import TIMEOUT_S, TOKENS_PER_S, Simulated, item, tokens
from views import view

from gliner_bento.fairness.constants import CALM_FRACTION
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.standing_queue import StandingQueue
from gliner_bento.gateway.policy.tenants import Tenant

pytestmark = pytest.mark.long

DEFAULTS = view(GatewayOptions)
WAIT_S, INTERVAL_S = DEFAULTS.max_queue_wait_s, DEFAULTS.queue_wait_interval_s
WORDS = 300
PER_S = TOKENS_PER_S / tokens(item(WORDS))
A, B = Tenant("a"), Tenant("b")
FIRST_PILE_S = INTERVAL_S + TIMEOUT_S
"""What arrives before the queue stands, and the time in which that is answered."""


def simulated(**settings: float) -> Simulated:
    return Simulated(**{"max_queue_wait_s": WAIT_S, "queue_wait_interval_s": INTERVAL_S} | settings).measured()


def send(server: Simulated, seconds: float, factor: float, tenant: Tenant | None = A) -> list[tuple[float, bool]]:
    """Send `factor` times what the server can answer. tenant: None for a new tenant per request. Returns when each
    request was sent, from the start, and whether it was admitted."""
    start_s, sent = server.now_s, []
    while server.now_s < start_s + seconds:
        while len(sent) < (server.now_s - start_s) * factor * PER_S:
            admitted = server.ask(item(WORDS), tenant=tenant or Tenant(f"t{server.now_s} {len(sent)}"))
            sent.append((server.now_s - start_s, admitted))
        server.run(0.05)
    return sent


def percentile(waits_s: list[float], share: float) -> float:
    return sorted(waits_s)[int(share * len(waits_s))]


@pytest.mark.parametrize("spread_s", [0.0, 1.0, INTERVAL_S])
def test_a_burst_is_answered_whole(spread_s: float):
    server, count = simulated(), int(18 * PER_S)
    start_s = server.now_s
    for number in range(count):
        server.run(max(0.0, start_s + spread_s * number / count - server.now_s))
        assert server.ask(item(WORDS))
    server.run(TIMEOUT_S)
    assert len(server.waits_s) == count
    assert max(server.waits_s) < TIMEOUT_S


def test_a_load_that_can_be_answered_is_never_refused():
    server = simulated()
    assert all(admitted for _, admitted in send(server, 120, 0.95))


@pytest.mark.parametrize("factor", [2, 10])
@pytest.mark.parametrize("tenant", [A, None], ids=["one tenant", "a tenant per request"])
def test_under_overload_the_admitted_wait_no_longer_than_the_maximum(factor: float, tenant: Tenant | None):
    server = simulated()
    seconds = FIRST_PILE_S + 30
    sent = send(server, seconds, factor, tenant)
    admitted = sum(was_admitted for _, was_admitted in sent)
    assert admitted / PER_S / seconds > 0.95, "the server has no idle time"
    first_pile = int(FIRST_PILE_S * PER_S)
    assert percentile(server.waits_s[first_pile:], 0.99) <= 1.1 * WAIT_S
    assert percentile(server.waits_s, 0.5) <= 1.1 * WAIT_S
    server.run(1.1 * WAIT_S)
    assert not server.running, "it is normal again"


def test_without_a_maximum_the_admitted_wait_until_their_deadline():
    server = simulated(max_queue_wait_s=0.0)
    send(server, 60, 10)
    assert percentile(server.waits_s, 0.5) > 2 * WAIT_S


def test_without_an_interval_no_request_waits_longer_than_the_maximum():
    server = simulated(queue_wait_interval_s=0.0)
    send(server, 20, 10)
    assert max(server.waits_s) <= 1.1 * WAIT_S


def test_the_next_burst_is_absorbed_once_it_is_calm_again():
    server = simulated()
    send(server, 60, 10)
    server.run(WAIT_S)
    assert all(server.ask(item(WORDS)) for _ in range(int(15 * PER_S)))


@pytest.mark.parametrize(("words", "at_once"), [(20, 30), (300, 6), (5000, 1)])
def test_a_tenant_within_its_share_is_not_refused_because_another_ones_queue_stands(words: int, at_once: int):
    server, admitted = simulated(), []
    start_s = server.now_s
    while server.now_s < start_s + 60:
        for _ in range(at_once):
            server.ask(item(words), tenant=A)
        if len(admitted) < (server.now_s - start_s) * 4:
            admitted.append(server.ask(item(20), timeout_s=5.0, tenant=B))
        server.run(0.05)
    assert all(admitted)
    assert len(server.refusals) > 100
    assert percentile(server.waits_of["b"], 0.95) <= 0.5


def test_the_burst_of_a_tenant_is_absorbed_while_another_ones_queue_stands():
    server = simulated()
    send(server, 60, 3)
    assert not all(admitted for _, admitted in send(server, 0.1, 30))
    assert all(
        server.ask(item(WORDS), tenant=B) for _ in range(int(WAIT_S * PER_S))
    )  # it waits twice as long beside A's


def test_short_requests_do_not_wait_for_longer_ones_of_their_tenant_and_are_not_refused_for_them():
    server = simulated()
    start_s, shorts = server.now_s, []
    while server.now_s < start_s + 60:
        for _ in range(2):
            server.ask(item(400), tenant=A)
        if len(shorts) < (server.now_s - start_s) * 4:
            shorts.append(server.ask(item(10), tenant=A))
        server.run(0.05)
    assert server.refusals
    assert all(shorts)


def test_a_queue_stands_after_the_interval_until_its_wait_has_fallen_far_enough():
    queue = StandingQueue(2.0, 10.0)
    waits = [
        (0, 2.1),
        (5, 1.9),
        (9, 2.5),
        (10, 2.5),
        (11, 1.01),
        (12, 3.0),
        (13, 0.99),
        (14, 9.0),
        (23.9, 9.0),
        (24, 9.0),
    ]
    stood = [queue.stands(now_s, lambda wait_s=wait_s: wait_s) for now_s, wait_s in waits]
    assert stood == [False, False, False, True, True, True, False, False, False, True]
    assert CALM_FRACTION == 0.5


def test_the_wait_is_not_estimated_for_every_request():
    queue, estimates = StandingQueue(2.0, 10.0), []

    def estimate() -> float:
        estimates.append(3.0)
        return 3.0

    stood = [queue.stands(number / 1000, estimate) for number in range(11_000)]
    assert len(estimates) <= 56
    assert stood.index(True) == 10_000
