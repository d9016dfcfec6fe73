"""A fleet that loses replicas, on fake time: what is repeated, what fails, what a stream does."""

from __future__ import annotations

import asyncio

import pytest
from doubles.fake_time import now_s, run_fast
from doubles.mortal_replica import MortalReplica
from mortal_fleet import asked, assert_right, call, item, started, states

from gliner_bento.errors import Aborted, DeadlineExceeded, NotReady
from gliner_bento.replicas.fleet.fleet import Fleet
from gliner_bento.replicas.fleet.health import PROBE_TIMEOUT_S
from gliner_bento.tasks.extraction import Extraction


def test_what_a_replica_had_when_it_died_is_repeated_on_another():
    one, other = MortalReplica(), MortalReplica()
    repeated: list[int] = []

    async def scene():
        fleet = await started(one, other, on_repeat=repeated.append)
        asking = [asyncio.ensure_future(asked(fleet)) for _ in range(4)]
        await asyncio.sleep(0.5)
        one.die()
        answers = await asyncio.gather(*asking)
        assert states(fleet) == ["suspect", "ready"]
        before = len(one.calls)
        await asked(fleet)
        assert len(one.calls) == before, "a suspect replica gets nothing but probes"
        one.revive()
        await asyncio.sleep(PROBE_TIMEOUT_S)
        assert states(fleet) == ["ready", "ready"]
        return answers

    for outcomes in run_fast(scene):
        assert_right(outcomes)
    assert sum(repeated) == 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("alone", [True, False])
def test_a_replica_that_answers_is_not_suspect_because_a_call_was_lost(alone: bool, streamed: bool, caplog):
    """One connection was reset: its calls are sent again, also to the same replica."""

    class Resetting(MortalReplica):
        async def _work(self, seconds: float, deadline_s: float) -> None:
            await super()._work(seconds, deadline_s)
            if now_s() < 1.5 * self.item_s:
                raise NotReady("the model's process cannot be reached; try again")

    async def streamed_to_its_end(fleet: Fleet) -> list[object]:
        *_, last = [step async for step in fleet.stream(item("nobody"), call())]
        return [last]

    async def scene():
        fleet = await started(*([Resetting()] if alone else [Resetting(), Resetting()]))
        ask = streamed_to_its_end if streamed else asked
        answers = await asyncio.gather(*(ask(fleet) for _ in range(3)))
        known = states(fleet)
        await fleet.close()
        return answers, known

    answers, known = run_fast(scene)
    assert [type(outcome) for outcomes in answers for outcome in outcomes] == [Extraction] * 3
    assert set(known) == {"ready"}
    assert "suspect" not in caplog.text


def test_what_a_replica_has_that_answers_no_probe_is_taken_from_it():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        asking = [asyncio.ensure_future(asked(fleet)) for _ in range(4)]
        await asyncio.sleep(0.5)
        one.hang()
        answers = await asyncio.gather(*asking)
        return answers, now_s()

    answers, took_s = run_fast(scene)
    for outcomes in answers:
        assert_right(outcomes)
    assert one.cancelled >= 2, "its calls are given up, so that it does not run them for nobody"
    assert took_s < 0.5 + 2 * PROBE_TIMEOUT_S + 1


def test_a_slow_replica_without_another_keeps_its_work():
    one = MortalReplica()

    async def scene():
        fleet = await started(one)
        asking = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0.5)
        one.hang()
        await asyncio.sleep(3 * PROBE_TIMEOUT_S)
        assert states(fleet) == ["suspect"]
        one.revive()
        return await asking

    assert_right(run_fast(scene))
    assert len(one.calls) == 1


def test_extraction_is_repeated_once():
    replicas = [MortalReplica() for _ in range(3)]

    async def scene():
        fleet = await started(*replicas)
        asking = asyncio.ensure_future(asked(fleet))
        for replica in replicas:
            await asyncio.sleep(0.5)
            replica.die()
        return await asking

    (outcome,) = run_fast(scene)
    assert type(outcome) is NotReady
    assert "twice" in str(outcome), "the text may be what ends the processes"
    assert [len(replica.calls) for replica in replicas] == [1, 1, 0]


def test_a_repeated_request_waits_for_a_replica_until_its_deadline():
    one = MortalReplica()

    async def scene():
        fleet = await started(one)
        asking = [asyncio.ensure_future(asked(fleet, timeout_s=timeout_s)) for timeout_s in (2, 30)]
        await asyncio.sleep(0.5)
        one.die()
        await asyncio.sleep(2)
        one.revive()
        return [await one for one in asking], now_s()

    (late, good), took_s = run_fast(scene)
    assert type(late[0]) is DeadlineExceeded
    assert_right(good)
    assert took_s < 13


def test_only_what_a_draining_replica_refused_is_repeated():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        one.admits = False
        answers = await asyncio.gather(*(asked(fleet) for _ in range(2)))
        await asyncio.sleep(1)
        return answers, states(fleet)

    answers, final = run_fast(scene)
    for outcomes in answers:
        assert_right(outcomes)
    assert final == ["not_ready", "ready"]


def test_what_a_hung_replica_had_is_repeated_in_its_order():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        other.hang()
        await asyncio.sleep(2 * PROBE_TIMEOUT_S)
        one.item_s = 60.0
        asking = [asyncio.ensure_future(asked(fleet, request_id=str(number), timeout_s=300)) for number in range(8)]
        await asyncio.sleep(0)
        other.revive()
        await asyncio.sleep(PROBE_TIMEOUT_S)
        other.calls.clear()
        one.hang()
        await asyncio.gather(*asking)

    run_fast(scene)
    assert [call.request_id for _, call in other.calls] == [*"01234567"]


def test_an_aborted_request_is_not_repeated():
    one, other = MortalReplica(item_s=10), MortalReplica(item_s=10)

    async def scene():
        fleet = await started(one, other)
        asking = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(1)
        await fleet.abort("r")
        one.die()
        return await asking

    (outcome,) = run_fast(scene)
    assert type(outcome) is Aborted
    assert not other.calls


async def parts_of(fleet: Fleet, text: str) -> list:
    return [part async for part in fleet.stream(item(text), call())]


def test_a_stream_that_has_not_begun_is_repeated():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        streaming = asyncio.ensure_future(parts_of(fleet, "Ada met Charles"))
        await asyncio.sleep(0.5)
        one.die()
        return await streaming

    *parts, last = run_fast(scene)
    assert [entity.text for part in parts for entity in part] == ["Ada", "Charles"]
    assert isinstance(last, Extraction)


@pytest.mark.parametrize("lose", [MortalReplica.die, MortalReplica.hang])
def test_a_stream_that_has_begun_fails_with_a_clear_message(lose):
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        stream = fleet.stream(item("Ada met Charles"), call())
        first = await anext(stream)
        lose(one)
        with pytest.raises(NotReady, match="lost after the stream had begun; send the request again"):
            await anext(stream)
        return first, sum(fleet._dispatcher.outstanding.values()), now_s()

    first, outstanding, took_s = run_fast(scene)
    assert [entity.text for entity in first] == ["Ada"]
    assert outstanding == 0
    assert took_s < 5
    assert not other.calls


def test_a_stream_that_is_closed_ends_on_its_replica():
    one = MortalReplica()

    async def scene():
        fleet = await started(one)
        stream = fleet.stream(item("Ada met Charles"), call())
        await anext(stream)
        assert any(fleet._dispatcher.outstanding.values())
        await stream.aclose()
        return sum(fleet._dispatcher.outstanding.values()), fleet._requests

    assert run_fast(scene) == (0, {})


def test_when_the_server_ends_requests_wait_for_no_lost_replica():
    only = MortalReplica()

    async def scene():
        fleet = await started(only)
        under_way = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0.5)
        fleet.expect_no_restart()
        assert_right(await under_way)
        lost = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0.5)
        only.die()
        assert [type(one) for one in (*await lost, *await asked(fleet))] == [NotReady, NotReady]
        await fleet.close()
        return now_s()

    assert run_fast(scene) < 5


def test_when_the_server_ends_now_what_runs_and_what_waits_is_refused():
    replicas = [MortalReplica(item_s=100), MortalReplica(item_s=100)]

    async def scene():
        fleet = await started(*replicas, max_outstanding_tokens=1)
        asking = [asyncio.ensure_future(asked(fleet)) for _ in range(3)]
        await asyncio.sleep(0.5)
        fleet.fail()
        assert [type(outcome) for (outcome,) in await asyncio.gather(*asking)] == [NotReady] * 3
        await fleet.close()
        return now_s()

    assert run_fast(scene) < 1
    assert [len(replica.calls) for replica in replicas] == [1, 1]


def test_while_the_only_replica_is_lost_requests_wait_for_it_within_their_deadlines():
    only = MortalReplica()

    async def scene():
        fleet = await started(only)
        under_way = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0.5)
        only.die()
        await asyncio.sleep(0.5)
        new = asyncio.ensure_future(asked(fleet))
        began_s = now_s()
        (late,) = await asked(fleet, timeout_s=5.0)
        assert isinstance(late, DeadlineExceeded)
        assert now_s() == began_s + 5
        await asyncio.sleep(15)
        only.revive()
        assert_right(await under_way)
        assert_right(await new)
        await fleet.close()

    run_fast(scene)
