"""Admission by cost, on its own clock: what is admitted is answered in time, and what could be is not refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from gateway_options import OPTIONS
from memory_replica import MemoryReplica
from simulated_replica import BATCH, SOMEONE, TOKENS_PER_S, Simulated, item, tokens

from gliner_bento.errors import QueueFull
from gliner_bento.gateway.admission import ASSUMED_TOKENS_PER_S, BURST_FACTOR, BURST_S, Admission
from gliner_bento.gateway.gateway import Gateway


def overloaded(rate: float, offered: float, seconds: float = 30, words: int = 60) -> Simulated:
    """`offered` times as many short requests as it can answer."""
    simulated = Simulated(rate=rate)
    asked = 0
    while simulated.now_s < seconds:
        due = int(simulated.now_s * offered * rate / tokens(item(words)))
        while asked <= due:
            simulated.ask(item(words))
            asked += 1
        simulated.run(0.005)
    return simulated


@pytest.mark.parametrize(("rate", "seconds"), [(1000, 60), (5000, 30), (20_000, 15)])
def test_under_overload_the_admitted_are_answered_soon_and_the_rest_is_refused(rate: float, seconds: float):
    simulated = overloaded(rate, 10, seconds)
    batch_s = BATCH * tokens(item()) / rate
    answered_after_the_burst = sorted(simulated.waits_s[int(6 * rate / tokens(item())) :])
    assert answered_after_the_burst[int(0.95 * len(answered_after_the_burst))] <= max(1.5, batch_s) * 1.2 + 0.1
    answered = len(simulated.waits_s) * tokens(item()) / rate / simulated.now_s
    assert answered > 0.95, "a replica that is overloaded has no idle time"
    assert len(simulated.refusals) > 7 * len(simulated.waits_s)


def test_it_is_normal_again_as_soon_as_the_overload_ends():
    simulated = overloaded(TOKENS_PER_S, 10, seconds=5)
    simulated.run(2.0)
    assert not simulated.running
    simulated.refusals.clear()
    assert all(simulated.ask(item()) for _ in range(BATCH))
    assert not simulated.refusals


def test_a_load_that_can_be_answered_is_not_refused():
    assert not overloaded(TOKENS_PER_S, offered=0.9).refusals


@pytest.mark.parametrize("clients", [1, 32, 64])
def test_a_few_clients_that_wait_for_their_answers_are_not_refused(clients: int):
    simulated = Simulated()
    for _ in range(200):
        while len(simulated.running) < clients:
            assert simulated.ask(item())
        simulated.run(0.01)
    assert simulated.waits_s


def test_a_full_batch_is_admitted_however_slow_the_replica_is():
    simulated = overloaded(100, offered=10, seconds=60)
    simulated.run(1000)
    assert all(simulated.ask(item()) for _ in range(BATCH))


def test_retry_after_says_how_long_the_queue_is_too_long():
    simulated = overloaded(100, offered=10, seconds=60)
    simulated.run(1000)
    while simulated.ask(item()):
        pass
    wait_s = BATCH * tokens(item()) / 100 - 1.5
    assert simulated.refusals[-1].retry_after_s == pytest.approx(wait_s, rel=0.1, abs=1)


def test_before_anything_is_measured_a_throughput_is_assumed():
    simulated = Simulated()
    while simulated.ask(item()):
        pass
    admitted_s = len(simulated.running) * tokens(item()) / ASSUMED_TOKENS_PER_S
    assert admitted_s == pytest.approx(BURST_FACTOR * 1.5, rel=0.5)


@pytest.fixture
def measured() -> Simulated:
    """A replica whose throughput is known, and which is idle."""
    simulated = overloaded(TOKENS_PER_S, offered=2, seconds=10)
    simulated.run(10)
    simulated.refusals.clear()
    return simulated


def test_a_burst_may_wait_until_it_lasts(measured: Simulated):
    burst = 0
    while measured.ask(item()):
        burst += 1
    assert burst * tokens(item()) / TOKENS_PER_S == pytest.approx(BURST_FACTOR * 1.5, rel=0.02)
    measured.run(0.2)
    assert measured.ask(item()), "others may take the places of those that have been answered"
    measured.run(BURST_S)
    assert not measured.ask(item())
    measured.run(10)
    assert measured.ask(item())


def test_short_requests_are_admitted_beside_long_ones_which_they_do_not_wait_for(measured: Simulated):
    assert measured.ask(*[item()] * 256)
    assert measured.ask(item(20_000))
    assert measured.ask(item())


def test_a_request_that_would_miss_its_deadline_is_refused(measured: Simulated):
    for _ in range(4):
        assert measured.ask(*[item()] * 256)
    twelve_s = [item()] * 1000
    assert not measured.ask(*twelve_s, timeout_s=10)
    assert measured.ask(*twelve_s, timeout_s=60)


def test_an_idle_replica_is_asked_whatever_it_costs(measured: Simulated):
    assert measured.ask(item(1_000_000), timeout_s=1)


def test_what_is_not_answered_is_no_longer_counted():
    admission = Admission(max_queue_wait_s=1.5, max_queued_tokens=0, max_batch_size=1, clock=lambda: 0.0)

    @contextmanager
    def failing() -> Iterator[None]:
        with admission.admit([item()], 1.0, SOMEONE):
            yield

    for _ in range(100):
        with suppress(ZeroDivisionError), failing():
            raise ZeroDivisionError
    admission.check(SOMEONE)
    with failing():
        assert admission._items == 1
    assert admission._items == 0
    assert admission._turns == 0
    assert not admission._loads


def test_a_full_batch_of_every_instance_is_admitted():
    gateway = Gateway(MemoryReplica(), replace(OPTIONS, max_batch_size=4, num_instances=3, max_queue_wait_s=1e-9))
    admission = gateway._admission
    for _ in range(12):
        admission.check(SOMEONE)
        admission.expect(SOMEONE)
    with pytest.raises(QueueFull):
        admission.check(SOMEONE)
