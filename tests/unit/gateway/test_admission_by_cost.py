"""Admission by cost, on its own clock: what is admitted is answered in time, and what could be is not refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from doubles.memory_replica import MemoryReplica
from doubles.simulated_replica import BATCH, SOMEONE, TIMEOUT_S, TOKENS_PER_S, Simulated, item, tokens
from gateway_options import OPTIONS
from overloading import measured as measured_at

from gliner_bento.errors import QueueFull
from gliner_bento.fairness.constants import ARRIVALS_SHARE, BATCH_TOKENS, MARGIN, MAX_EXTRAPOLATION, MEASURED_S
from gliner_bento.gateway.gateway import Gateway

pytestmark = pytest.mark.long


def overloaded(
    rate: float, offered: float, seconds: float = 30, words: int = 60, timeout_s: float = 5.0, **settings: float
) -> Simulated:
    """`offered` times as many short requests as it can answer."""
    simulated = Simulated(rate=rate, **settings)
    asked = 0
    while simulated.now_s < seconds:
        due = int(simulated.now_s * offered * rate / tokens(item(words)))
        while asked <= due:
            simulated.ask(item(words), timeout_s=timeout_s, gateway=asked % simulated.count)
            asked += 1
        simulated.run(0.005)
    return simulated


@pytest.mark.parametrize(("rate", "seconds"), [(1000, 60), (10_000, 30)])
@pytest.mark.parametrize(
    ("settings", "wait_s"), [({"timeout_s": 5.0}, 5.0), ({"timeout_s": 25.0, "max_queue_wait_s": 1.5}, 1.5)]
)
def test_under_overload_the_admitted_are_answered_in_time_and_the_rest_is_refused(
    rate: float, seconds: float, settings: dict[str, float], wait_s: float
):
    simulated = overloaded(rate, 10, seconds, **settings)
    batch_s = BATCH * tokens(item()) / rate
    before_measured = int(11 * (max(MEASURED_S, wait_s / MAX_EXTRAPOLATION) + batch_s) * rate / tokens(item()))
    waits_s = sorted(simulated.waits_s[before_measured:])
    assert waits_s
    assert waits_s[int(0.95 * len(waits_s))] <= max(wait_s, batch_s) * 1.1 + 0.1
    answered = len(simulated.waits_s) * tokens(item()) / rate / simulated.now_s
    assert answered > 0.95, "a replica that is overloaded has no idle time"
    assert len(simulated.refusals) > 5 * len(simulated.waits_s)


def test_what_several_gateways_admit_is_answered_in_time():
    """Each measures the throughput of the replica, of which the others have a part."""
    simulated = overloaded(TOKENS_PER_S, 10, 60, timeout_s=8.0, count=3)
    waits_s = simulated.waits_s[len(simulated.waits_s) // 2 :]
    assert sorted(waits_s)[int(0.99 * len(waits_s))] <= 8.0
    assert len(simulated.waits_s) * tokens(item()) / TOKENS_PER_S / simulated.now_s > 0.95


def test_what_is_known_of_other_gateways_is_forgotten_soon():
    simulated = Simulated(count=2).measured()
    simulated.run(1.0)
    assert simulated.admission.probe_other_gateways() is None, "this one has less than a batch"
    assert all(simulated.ask(item()) for _ in range(BATCH))
    note = simulated.admission.probe_other_gateways()
    assert note is not None
    assert simulated.admission.probe_other_gateways() is None, "not twice in a second"
    note(1000)
    assert not simulated.ask(item(), timeout_s=1.0)
    simulated.run(30.0)
    assert all(simulated.ask(item()) for _ in range(BATCH))
    assert simulated.ask(item(), timeout_s=1.0)


def test_it_is_normal_again_as_soon_as_the_overload_ends():
    simulated = overloaded(TOKENS_PER_S, 10, seconds=20)
    simulated.run(5.0)
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
    simulated.run(10_000)
    assert all(simulated.ask(item()) for _ in range(BATCH))


def test_retry_after_says_how_long_the_queue_is_too_long():
    simulated = overloaded(100, offered=10, seconds=60)
    simulated.run(10_000)
    while simulated.ask(item(), timeout_s=5.0):
        pass
    wait_s = (BATCH * tokens(item()) + BATCH_TOKENS) / 100 - 5.0 / MARGIN
    assert simulated.refusals[-1].retry_after_s == pytest.approx(wait_s, rel=0.1, abs=1)


@pytest.mark.parametrize("max_queue_wait_s", [0.0, 1e-9])
def test_before_the_throughput_is_measured_no_request_is_refused_for_its_wait(max_queue_wait_s: float):
    simulated = Simulated(max_queue_wait_s=max_queue_wait_s)
    assert all(simulated.ask(item(), timeout_s=1e-6) for _ in range(1000))
    batches = 0
    while simulated.ask(item(), timeout_s=1e-6):
        simulated.run(BATCH * tokens(item()) / TOKENS_PER_S)
        batches += 1
    assert batches * BATCH * tokens(item()) / TOKENS_PER_S >= MEASURED_S
    assert simulated.ask(item()) == (not max_queue_wait_s), "it would be answered by its deadline"


def test_clients_that_just_fill_a_batch_show_the_throughput():
    simulated = Simulated()
    while simulated.now_s < TIMEOUT_S:
        while len(simulated.running) < BATCH:
            assert simulated.ask(item())
        simulated.run(0.005)  # the next request comes only after a response
    assert simulated.admission._throughput.measured_s > 0.9 * TIMEOUT_S
    assert burst(simulated, TIMEOUT_S) < TIMEOUT_S / MARGIN


def test_what_the_first_seconds_predict_is_not_trusted_for_long_waits():
    """The gateway reads a burst, and the replica runs at a tenth of its rate."""
    simulated = Simulated(rate=TOKENS_PER_S / 10)
    assert all(simulated.ask(item()) for _ in range(1000))
    simulated.run(5.0)
    assert simulated.admission._throughput.rate == pytest.approx(TOKENS_PER_S / 10, rel=0.1)
    assert not simulated.ask(item(), timeout_s=5.0)
    assert all(simulated.ask(item()) for _ in range(1000))
    simulated.rate = TOKENS_PER_S
    simulated.run(15.0)
    assert all(simulated.ask(item()) for _ in range(500))


@pytest.fixture
def measured() -> Simulated:
    """A replica whose throughput is known, and which is idle."""
    return Simulated().measured()


def burst(simulated: Simulated, timeout_s: float) -> float:
    """How long those take that are admitted together."""
    count = 0
    while simulated.ask(item(), timeout_s=timeout_s):
        count += 1
    return count * tokens(item()) / TOKENS_PER_S


@pytest.mark.parametrize("timeout_s", [2.0, 10.0, TIMEOUT_S])
def test_a_burst_may_wait_until_its_deadline(measured: Simulated, timeout_s: float):
    assert burst(measured, timeout_s) == pytest.approx(timeout_s / MARGIN - BATCH_TOKENS / TOKENS_PER_S, rel=0.03)
    measured.run(0.2)
    assert measured.ask(item(), timeout_s=timeout_s), "those that have been answered count no more"
    measured.run(60)
    assert not measured.running


def test_no_request_may_wait_longer_than_the_servers_own_deadline(measured: Simulated):
    assert burst(measured, 1000.0) == burst(Simulated().measured(), TIMEOUT_S)


def test_requests_wait_no_longer_than_max_queue_wait_s_where_it_is_set():
    latency_first = Simulated(max_queue_wait_s=1.5).measured()
    assert burst(latency_first, TIMEOUT_S) == pytest.approx(1.5, rel=0.05)


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


def test_who_was_let_in_is_not_refused_at_its_turn_because_the_estimate_fell(measured: Simulated):
    admission = measured.admission

    def arrives() -> None:
        admission.check(SOMEONE, 10, share=ARRIVALS_SHARE)
        admission.count_unread(SOMEONE)

    with suppress(QueueFull):
        while True:
            arrives()
    admission._throughput._tokens *= 0.9
    with pytest.raises(QueueFull):
        arrives()
    admission.check(SOMEONE, 10)


def test_an_idle_replica_is_asked_whatever_it_costs(measured: Simulated):
    assert measured.ask(item(1_000_000), timeout_s=1)


def test_what_is_not_answered_is_no_longer_counted():
    admission = Simulated().admission

    @contextmanager
    def failing() -> Iterator[None]:
        with admission.admit([item()], TIMEOUT_S, SOMEONE):
            yield

    for _ in range(100):
        with suppress(ZeroDivisionError), failing():
            raise ZeroDivisionError
    admission.check(SOMEONE)
    with failing():
        assert admission._items == 1
    assert admission._items == 0
    assert not admission._loads


def test_a_full_batch_of_every_instance_is_admitted():
    gateway = Gateway(MemoryReplica(), replace(OPTIONS, max_batch_size=4, num_instances=3, max_queue_wait_s=1e-9))
    measured_at(gateway, 5.0)
    admission = gateway.models.default.policy
    for _ in range(12):
        admission.check(SOMEONE)
        admission.count_unread(SOMEONE)
    with pytest.raises(QueueFull):
        admission.check(SOMEONE)
