"""A fleet on fake time: which replica gets a request, what waits, what is refused, aborted and cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from doubles.fake_time import now_s, run_fast
from doubles.mortal_replica import MortalReplica
from mortal_fleet import asked, assert_right, call, item, started

from gliner_bento.errors import Aborted, DeadlineExceeded, NotReady, QueueFull
from gliner_bento.replicas.base import Call, Outcome
from gliner_bento.replicas.fleet.fleet import PIECE_TOKENS, Fleet
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item


def test_concurrent_requests_are_divided_among_the_replicas():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        return await asyncio.gather(*(asked(fleet) for _ in range(6))), now_s()

    answers, took_s = run_fast(scene)
    for outcomes in answers:
        assert_right(outcomes)
    assert (len(one.calls), len(other.calls)) == (3, 3)
    assert took_s < 2


def test_nothing_waits_where_every_replica_has_refused():
    one = MortalReplica(admits=False)

    async def scene():
        fleet = await started(one)
        return await asked(fleet), now_s()

    (outcome,), took_s = run_fast(scene)
    assert type(outcome) is NotReady
    assert took_s < 1


def test_requests_wait_in_order_while_all_replicas_are_full():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other, max_outstanding_tokens=1)
        order: list[int] = []

        async def ask(number: int) -> None:
            await asked(fleet)
            order.append(number)

        await asyncio.gather(*(ask(number) for number in range(6)))
        return order, now_s()

    order, took_s = run_fast(scene)
    assert [sorted(order[at : at + 2]) for at in (0, 2, 4)] == [[0, 1], [2, 3], [4, 5]]  # two at a time
    assert 3 <= took_s < 3.5
    assert (len(one.calls), len(other.calls)) == (3, 3)


def test_a_request_that_waits_too_long_misses_its_deadline_and_leaves_no_load():
    one = MortalReplica(item_s=10)

    async def scene():
        fleet = await started(one, max_outstanding_tokens=1)
        first = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0)
        (late,) = await asked(fleet, timeout_s=2)
        assert type(late) is DeadlineExceeded
        assert now_s() == pytest.approx(2)
        await first
        return sum(fleet._dispatcher.outstanding.values()), fleet._dispatcher.waiting_tokens, fleet._requests

    assert run_fast(scene) == (0, 0, {})
    assert len(one.calls) == 1


def test_too_many_that_wait_are_refused():
    async def scene():
        fleet = await started(MortalReplica(), max_outstanding_tokens=1, queue_capacity=2)
        return await asyncio.gather(*(asked(fleet) for _ in range(5)))

    kinds = [type(outcome) for (outcome,) in run_fast(scene)]
    assert kinds == [Extraction] * 3 + [QueueFull] * 2, "one runs, two wait"


def test_a_flood_of_one_tenant_neither_refuses_nor_delays_another():
    async def scene():
        fleet = await started(MortalReplica(), max_outstanding_tokens=1, queue_capacity=3)
        order: list[str] = []

        async def ask(tenant: str) -> type:
            (outcome,) = await asked(fleet, tenant=tenant)
            if isinstance(outcome, Extraction):
                order.append(tenant)
            return type(outcome)

        flood = [asyncio.ensure_future(ask("flood")) for _ in range(6)]
        await asyncio.sleep(0)
        late = asyncio.ensure_future(ask("late"))
        return await asyncio.gather(*flood), await late, order

    flood, late, order = run_fast(scene)
    assert flood == [Extraction] * 4 + [QueueFull] * 2, "one runs, three wait"
    assert late is Extraction
    assert order.index("late") <= 2


def test_a_large_request_is_divided_and_its_outcomes_keep_their_order():
    replicas = [MortalReplica() for _ in range(3)]
    texts = [f"Ada met Number{number} " + "and nobody else " * 20 for number in range(90)]

    async def scene():
        fleet = await started(*replicas)
        return await asked(fleet, *texts, timeout_s=60), now_s()

    outcomes, took_s = run_fast(scene)
    assert_right(outcomes, *texts)
    assert len(outcomes) == 90
    assert [len(replica.calls) for replica in replicas] == [1, 1, 1]
    assert took_s == pytest.approx(30, rel=0.1)


def test_many_short_texts_weigh_more_than_a_long_one():
    """As on a replica, where each takes a share of a batch besides its tokens."""
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        return await asyncio.gather(asked(fleet, "word " * 100), *(asked(fleet, "word") for _ in range(4)))

    run_fast(scene)
    assert (len(one.calls), len(other.calls)) == (2, 3), "not 1 and 4, as by tokens alone"


def test_a_small_request_is_not_divided():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        text = "word " * (PIECE_TOKENS // 10)
        await asked(fleet, text, text)

    run_fast(scene)
    assert len(one.calls) + len(other.calls) == 1


def test_an_abort_reaches_every_replica_and_what_waits():
    replicas = [MortalReplica(item_s=10), MortalReplica(item_s=10)]

    async def scene():
        fleet = await started(*replicas, max_outstanding_tokens=1)
        asking = [asyncio.ensure_future(asked(fleet, "Ada", "Bob", request_id="a")) for _ in range(3)]
        await asyncio.sleep(1)
        assert await fleet.abort("a") is True
        aborted_s = now_s()
        waiting = await asking[2]
        assert now_s() == aborted_s, "what waits ends immediately"
        running = await asyncio.gather(*asking[:2])
        return waiting, running, await fleet.abort("a"), await fleet.abort("b")

    waiting, running, _, unknown = run_fast(scene)
    assert [type(outcome) for outcome in waiting] == [Aborted] * 2
    assert [[type(outcome) for outcome in outcomes] for outcomes in running] == [[Extraction, Aborted]] * 2
    assert [replica.aborts[0] for replica in replicas] == ["a", "a"]
    assert unknown is False


def test_an_abort_that_overtakes_its_request_is_repeated():
    """The request's items may arrive at a replica later than the abort."""

    @dataclass(eq=False)
    class Late(MortalReplica):
        async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
            await asyncio.sleep(0.2)
            return await super().extract(items, call)

        async def abort(self, request_id: str) -> bool:
            return bool(self.calls) and await super().abort(request_id)

    async def scene():
        fleet = await started(Late())
        asking = asyncio.ensure_future(asked(fleet, *"abc", request_id="a"))
        await asyncio.sleep(0.1)
        assert await fleet.abort("a") is True
        return await asking

    assert [type(outcome) for outcome in run_fast(scene)] == [Extraction, Aborted, Aborted]


def test_an_abort_does_not_wait_for_the_reader_of_a_stream():
    async def scene():
        fleet = await started(MortalReplica())
        steps = fleet.stream(item("Ada met Charles"), call("a"))
        await anext(steps)
        begun_s = now_s()
        assert await fleet.abort("a") is True
        aborted_s = now_s()
        with pytest.raises(Aborted):
            await anext(steps)
        return aborted_s - begun_s

    assert run_fast(scene) == 0


def test_a_cancelled_request_is_cancelled_where_it_runs():
    one = MortalReplica(item_s=10)

    async def scene():
        fleet = await started(one)
        asking = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return sum(fleet._dispatcher.outstanding.values())

    assert run_fast(scene) == 0
    assert one.cancelled == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("texts", [1, 40])
def test_a_request_whose_abort_was_confirmed_gets_no_result(streamed: bool, texts: int):
    """Also if its result is on the way already. The other way round, a request that has its result is not aborted."""

    class Answering(MortalReplica):
        """Takes a few iterations of the event loop. Its abort comes too late: it has answered."""

        async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
            for _ in range(5):
                await asyncio.sleep(0)
            return await super().extract(items, call)

        async def abort(self, request_id: str) -> bool:
            return False

    async def ask(fleet: Fleet) -> Sequence[object]:
        if not streamed:
            return await asked(fleet, *["Ada met Charles" * (PIECE_TOKENS // 40)] * texts)
        try:
            return [step async for step in fleet.stream(item(), call())]
        except Aborted as error:
            return [error]

    async def scene():
        confirmed = 0
        for turns in range(60):
            fleet = await started(Answering(item_s=0.0), Answering(item_s=0.0))
            asking = asyncio.create_task(ask(fleet))
            for _ in range(turns):
                await asyncio.sleep(0)
            aborted = await fleet.abort("r")
            outcomes = await asking
            assert any(isinstance(outcome, Aborted) for outcome in outcomes) == aborted, turns
            confirmed += aborted
            await fleet.close()
        assert 0 < confirmed < 60

    run_fast(scene)
