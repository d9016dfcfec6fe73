"""A fleet on fake time: what is repeated, what waits, what each state of its replicas means."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_time import now_s, run_fast
from memory_adapters import MemoryManager
from memory_replica import INFO
from mortal_replica import MortalReplica
from views import view

from gliner_bento.engine.fake import extract
from gliner_bento.errors import Aborted, AdapterNotFound, DeadlineExceeded, NotReady, QueueFull
from gliner_bento.replicas.base import Call, Outcome
from gliner_bento.replicas.fleet.fleet import PIECE_TOKENS, Fleet, FleetOptions
from gliner_bento.replicas.fleet.health import LOST_S, PROBE_INTERVAL_S, PROBE_TIMEOUT_S
from gliner_bento.types import Extraction, Item


def item(text: str = "Ada met Charles", **options) -> Item:
    return Item(text, {"name": "name"}, **options)


def call(request_id: str = "r", timeout_s: float = 30.0, **share) -> Call:
    return Call(request_id, now_s() + timeout_s, **share)


def fleet_of(*replicas: MortalReplica, **options) -> Fleet:
    names = {str(number): replica for number, replica in enumerate(replicas)}
    others = {name: options.pop(name) for name in ("on_other_model", "on_repeat") if name in options}
    return Fleet(names, replace(view(FleetOptions), **options), clock=now_s, **others)


async def started(*replicas: MortalReplica, **options) -> Fleet:
    """A fleet whose replicas have answered a probe."""
    fleet = fleet_of(*replicas, **options)
    await fleet.status()
    return fleet


def states(fleet: Fleet) -> list[str]:
    return [member.state for member in fleet._members]


async def asked(fleet: Fleet, *texts: str, **options) -> Sequence[Outcome]:
    return await fleet.extract([item(text) for text in texts or ("Ada met Charles",)], call(**options))


def assert_right(outcomes: Sequence[Outcome], *texts: str) -> None:
    expected = [extract(item(text)).entities for text in texts or ("Ada met Charles",)]
    assert [list(outcome.entities) for outcome in outcomes if isinstance(outcome, Extraction)] == expected


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
    assert order == sorted(order)
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
        return fleet._dispatcher.outstanding, fleet._dispatcher.waiting_tokens, fleet._requests

    assert run_fast(scene) == ([0], 0, {})
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


def test_a_cancelled_request_is_cancelled_where_it_runs():
    one = MortalReplica(item_s=10)

    async def scene():
        fleet = await started(one)
        asking = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return fleet._dispatcher.outstanding

    assert run_fast(scene) == [0]
    assert one.cancelled == 1


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
        return first, fleet._dispatcher.outstanding, now_s()

    first, outstanding, took_s = run_fast(scene)
    assert [entity.text for entity in first] == ["Ada"]
    assert outstanding == [0, 0]
    assert took_s < 5
    assert not other.calls


def test_a_stream_that_is_closed_ends_on_its_replica():
    one = MortalReplica()

    async def scene():
        fleet = await started(one)
        stream = fleet.stream(item("Ada met Charles"), call())
        await anext(stream)
        assert fleet._dispatcher.outstanding != [0]
        await stream.aclose()
        return fleet._dispatcher.outstanding, fleet._requests

    assert run_fast(scene) == ([0], {})


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

    assert run_fast(scene) == pytest.approx(PROBE_TIMEOUT_S)


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


def test_replicas_may_differ_in_their_device():
    async def scene():
        fleet = await started(MortalReplica(), MortalReplica(model=replace(INFO, device="cuda:1")))
        return states(fleet)

    assert run_fast(scene) == ["ready", "ready"]


async def archive():
    yield b"one"


def test_an_adapter_is_stored_once_and_loaded_everywhere():
    store = MemoryManager()
    one, other = MortalReplica(manager=store), MortalReplica(manager=store)

    async def scene():
        fleet = await started(one, other)
        return await fleet.adapters.install("a", archive=archive()), await fleet.adapters.get("a")

    (info, created), seen = run_fast(scene)
    assert (info, created) == (seen, True)
    writing, loading = store.changes
    assert (writing["adapter_id"], loading["adapter_id"]) == ("a", "a")
    assert (writing["uploaded"], loading["uploaded"]) == (True, False)
    assert loading["preload"] is True


def test_a_replica_that_is_down_costs_no_change_of_an_adapter():
    store = MemoryManager()
    one, other = MortalReplica(manager=store), MortalReplica(manager=store)

    async def scene():
        fleet = await started(one, other)
        one.die()
        await asyncio.sleep(5)
        await fleet.adapters.install("a", archive=archive())
        await fleet.adapters.remove("a", 5.0)
        with pytest.raises(AdapterNotFound):
            await fleet.adapters.remove("a", 5.0)

    run_fast(scene)
    assert len(store.changes) == 1
    assert len(store.timeouts_s) == 2


def test_a_removal_reaches_every_replica_and_succeeds_where_one_does():
    stores = [MemoryManager(), MemoryManager()]

    async def scene():
        fleet = await started(*(MortalReplica(manager=store) for store in stores))
        stores[1].change("a", b"one", pinned=None, preload=True, replace=False, source=None, revision=None)
        await fleet.adapters.remove("a", 5.0)

    run_fast(scene)
    assert [store.timeouts_s for store in stores] == [[5.0], [5.0]]
    assert stores[1].contents == {}


def test_an_adapters_requests_stay_on_the_replica_that_has_it():
    one, other = MortalReplica(), MortalReplica(resident=["a"])

    async def scene():
        fleet = await started(one, other)
        for _ in range(4):
            await fleet.extract([item(adapter_id="a")], call())

    run_fast(scene)
    assert (len(one.calls), len(other.calls)) == (0, 4)


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


def test_requests_are_refused_soon_after_the_last_replica_was_lost_until_it_answers():
    only = MortalReplica()

    async def scene():
        fleet = await started(only)
        under_way = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0.5)
        only.die()
        lost_s = now_s()
        await asyncio.sleep(1)
        (new,) = await asked(fleet)
        (old,) = await under_way
        assert now_s() == lost_s + LOST_S
        (later,) = await asked(fleet)
        assert now_s() == lost_s + LOST_S, "it does not wait"
        assert {type(one) for one in (old, new, later)} == {NotReady}
        only.revive()
        await asyncio.sleep(3)
        assert_right(await asked(fleet))
        await fleet.close()

    run_fast(scene)


def test_a_replica_that_hangs_is_noticed_without_a_request():
    only = MortalReplica()

    async def scene():
        fleet = await started(only)
        only.hang()
        await asyncio.sleep(10)
        before_s = now_s()
        (refused,) = await asked(fleet)
        assert isinstance(refused, NotReady)
        assert now_s() == before_s
        await fleet.close()

    run_fast(scene)


def test_what_the_only_replica_had_is_repeated_on_it_if_it_comes_back_soon():
    only = MortalReplica()

    async def scene():
        fleet = await started(only)
        under_way = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0.5)
        only.die()
        only.revive()
        await asyncio.sleep(0.1)
        assert_right(await asked(fleet))
        assert_right(await under_way)
        await fleet.close()

    run_fast(scene)


def test_the_only_replica_may_come_back_with_another_model():
    only = MortalReplica()

    async def scene():
        fleet = await started(only)
        only.model = replace(INFO, model="another")
        status = await fleet.status()
        assert (status.model.model, status.ready) == ("another", True)
        await fleet.close()

    run_fast(scene)
