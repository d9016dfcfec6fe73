"""The health of a fleet's replicas on fake time: what each state means, and what the status shows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from doubles.fake_time import now_s, run_fast
from doubles.memory_replica import INFO
from doubles.mortal_replica import MortalReplica
from mortal_fleet import asked, assert_right, fleet_of, started, states

from gliner_bento.errors import ModelNotLoaded, NotReady
from gliner_bento.replicas.fleet.health import PROBE_INTERVAL_S, STARTING_PROBE_TIMEOUT_S


def test_probes_are_spread_over_their_interval():
    replicas = [MortalReplica() for _ in range(20)]

    async def scene():
        fleet = await started(*replicas)
        await asyncio.sleep(3 * PROBE_INTERVAL_S)
        before = sum(replica.probes for replica in replicas)
        counts = []
        for _ in range(10):
            await asyncio.sleep(PROBE_INTERVAL_S / 10)
            counts.append(sum(replica.probes for replica in replicas) - before)
            before += counts[-1]
        await fleet.close()
        return counts

    counts = run_fast(scene)
    assert sum(counts) == pytest.approx(20, abs=2)
    assert max(counts) <= 4


def test_a_replica_that_hangs_is_noticed_without_a_request():
    only = MortalReplica()

    async def scene():
        fleet = await started(only)
        only.hang()
        await asyncio.sleep(10)
        assert states(fleet) == ["suspect"]
        assert not (await fleet.status()).ready
        await fleet.close()

    run_fast(scene)


def test_a_request_that_waits_for_a_replica_fails_when_the_fleet_is_closed():
    """As that of a model that is deleted while it is loading."""
    only = MortalReplica()

    async def scene():
        fleet = fleet_of(only)
        only.hang()
        request = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(10)
        assert not request.done()
        await fleet.close()
        before_s = now_s()
        assert [type(outcome) for outcome in await request] == [ModelNotLoaded]
        assert now_s() == before_s

    run_fast(scene)


def test_a_suspect_replica_has_the_reason_of_its_latest_probe():
    only = MortalReplica()

    async def unloaded():
        raise NotReady("the model is unloaded")

    async def scene():
        fleet = await started(only)
        only.hang()
        await asyncio.sleep(10)
        first = (await fleet.status()).replicas[0].reason
        only.status = unloaded
        await asyncio.sleep(10)
        (health,) = (await fleet.status()).replicas
        await fleet.close()
        return first, health.reason, health.state

    assert run_fast(scene) == ("it did not answer a probe within 2 s", "the model is unloaded", "suspect")


def test_the_status_adds_up_the_ready_replicas_and_shows_each():
    one, other, dead = MortalReplica(resident=["a", "b"]), MortalReplica(resident=["b", "c"]), MortalReplica(hangs=True)

    async def scene():
        return await fleet_of(one, other, dead).status()

    status = run_fast(scene)
    assert (status.ready, status.model) == (True, INFO)
    assert (status.waiting_items, status.running_items, status.waiting_tokens, status.running_tokens) == (2, 4, 6, 8)
    assert status.resident_adapters == ["a", "b", "c"]
    assert [(one.name, one.state) for one in status.replicas] == [("0", "ready"), ("1", "ready"), ("2", "starting")]


def test_a_fleet_is_ready_if_one_replica_is():
    one, other = MortalReplica(admits=False), MortalReplica(admits=False)

    async def scene():
        fleet = await started(one, other)
        before = (await fleet.status()).ready
        other.admits = True
        after = (await fleet.status()).ready
        other.die()
        return before, after, (await fleet.status()).ready

    assert run_fast(scene) == (False, True, False)


def test_a_fleet_of_which_none_has_answered_has_no_status():
    async def scene():
        with pytest.raises(NotReady, match="no replica has answered yet"):
            await fleet_of(MortalReplica(hangs=True)).status()
        return now_s()

    assert run_fast(scene) == pytest.approx(STARTING_PROBE_TIMEOUT_S)


def test_a_replica_of_another_model_is_refused_and_reported():
    one, other = MortalReplica(), MortalReplica(model=replace(INFO, fingerprint="another", max_words=7))
    lines: list[str] = []

    async def scene():
        fleet = await started(one, other, on_other_model=lines.append)
        await asyncio.gather(*(asked(fleet) for _ in range(4)))
        await asyncio.sleep(5)
        return states(fleet)

    assert run_fast(scene) == ["ready", "refused"]
    assert not other.calls
    (line,) = lines
    assert line == (
        "replica 1 serves another model than the others: "
        f"max_words is 7, not 50; fingerprint is 'another', not {INFO.fingerprint!r}"
    )


def test_a_replica_that_comes_back_with_another_model_is_refused_and_ends_nothing():
    one, other = MortalReplica(), MortalReplica()
    lines: list[str] = []

    async def scene():
        fleet = await started(one, other, on_other_model=lines.append)
        other.model = replace(INFO, fingerprint="another")
        await asyncio.sleep(2)
        refused = states(fleet)
        other.model = INFO
        await asyncio.sleep(2)
        return refused, states(fleet)

    assert run_fast(scene) == (["ready", "refused"], ["ready", "ready"])
    assert lines == []


@pytest.mark.parametrize("others", [0, 1])
def test_when_no_replica_of_the_old_model_is_left_another_one_is_served(others):
    replicas = [MortalReplica() for _ in range(1 + others)]

    async def scene():
        fleet = await started(*replicas)
        for replica in replicas:
            replica.model = replace(INFO, model="another")
        await asyncio.sleep(3)
        status = await fleet.status()
        assert (status.model.model, status.ready) == ("another", True)
        assert_right(await asked(fleet))
        await fleet.close()

    run_fast(scene)


def test_replicas_that_come_get_work_and_one_that_leaves_finishes_its_own():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one)
        asking = [asyncio.ensure_future(asked(fleet)) for _ in range(2)]
        await asyncio.sleep(0.1)
        fleet.add("other", other)
        await asyncio.sleep(0.1)
        fleet.remove("0")
        assert list(fleet.replicas) == ["other"]
        outcomes = [*await asyncio.gather(*asking), await asked(fleet)]
        probes = one.probes
        await asyncio.sleep(5)
        assert one.probes == probes, "it is left alone"
        return outcomes, [replica.name for replica in (await fleet.status()).replicas]

    outcomes, names = run_fast(scene)
    for outcome in outcomes:
        assert_right(outcome)
    assert (len(one.calls), len(other.calls), names) == (2, 1, ["other"])
    assert one.cancelled == 0


def test_while_there_is_no_replica_requests_wait_for_one():
    async def scene():
        fleet = fleet_of()
        asking = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(5)
        with pytest.raises(NotReady, match="no replica has answered yet"):
            await fleet.status()
        fleet.add("new", MortalReplica())
        return await asking

    assert_right(run_fast(scene))


def test_what_a_replica_that_leaves_did_not_answer_is_repeated():
    only, new = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(only)
        asking = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0.5)
        only.hang()
        await asyncio.sleep(5)
        assert states(fleet) == ["suspect"]
        fleet.remove("0")
        fleet.add("new", new)
        return await asking

    assert_right(run_fast(scene))
    assert only.cancelled >= 1


def test_replicas_may_differ_in_their_device():
    async def scene():
        fleet = await started(MortalReplica(), MortalReplica(model=replace(INFO, device="cuda:1")))
        return states(fleet)

    assert run_fast(scene) == ["ready", "ready"]


def test_the_tokens_that_all_replicas_have_run_are_added_up_whatever_restarts():
    one, other = MortalReplica(), MortalReplica()

    async def scene():
        fleet = await started(one, other)
        await asyncio.gather(asked(fleet, "Ada"), asked(fleet, "Bob"))
        before = fleet.tokens_run
        one.tokens_run = 0
        await asyncio.gather(asked(fleet, "Ada"), asked(fleet, "Bob"))
        restarted = fleet.tokens_run
        await asyncio.gather(asked(fleet, "Ada"), asked(fleet, "Bob"))
        return before, restarted, fleet.tokens_run

    before, restarted, after = run_fast(scene)
    assert before == 6
    assert before < restarted < after == restarted + 6
