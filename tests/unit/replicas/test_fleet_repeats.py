"""A fleet that loses replicas, on fake time: what is repeated, what fails, what a stream does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from itertools import cycle

import pytest
from doubles.fake_time import now_s, run_fast
from doubles.mortal_replica import MortalReplica
from mortal_fleet import asked, assert_right, call, item, started, states

from gliner_bento.errors import Aborted, DeadlineExceeded, EndsProcess, GLiNERBentoError, NotReady, QueueFull
from gliner_bento.replicas.base import Call, Outcome
from gliner_bento.replicas.fleet.fleet import Fleet
from gliner_bento.replicas.fleet.health import PROBE_TIMEOUT_S
from gliner_bento.tasks.extraction import Entity, Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

Ask = Callable[..., Awaitable[Sequence[object]]]


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


POISON = "Poison"


class Poisonable(MortalReplica):
    """Its process ends `POISON_S` after it has begun to run POISON, and another one has started after `RESTART_S`."""

    POISON_S, RESTART_S = 0.5, 3.0

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        self._take(items)
        return await super().extract(items, call)

    def stream(self, item: Item, call: Call) -> AsyncGenerator[Sequence[Entity] | Extraction, None]:
        self._take([item])
        return super().stream(item, call)

    @property
    def poisonings(self) -> int:
        """How often it got POISON."""
        return sum(item.text == POISON for items, _ in self.calls for item in items)

    def _take(self, items: Sequence[Item]) -> None:
        if any(item.text == POISON for item in items):
            loop = asyncio.get_running_loop()
            loop.call_later(self.POISON_S, self.die)
            loop.call_later(self.POISON_S + self.RESTART_S, self.revive)


async def streamed(fleet: Fleet, text: str) -> list[object]:
    """The last part of a stream, or its error."""
    try:
        return [[step async for step in fleet.stream(item(text), call())][-1]]
    except GLiNERBentoError as error:
        return [error]


@pytest.mark.parametrize("ask", [asked, streamed])
def test_a_text_that_twice_ended_the_process_that_ran_it_alone_is_not_repeated(ask: Ask):
    one = Poisonable()

    async def scene():
        fleet = await started(one)
        return await ask(fleet, POISON)

    (outcome,) = run_fast(scene)
    assert type(outcome) is EndsProcess, "clients repeat what is not ready"
    assert one.poisonings == 2


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("ask", [asked, streamed])
def test_requests_beside_a_text_that_ends_processes_are_answered(ask: Ask, replicas: int):
    fleet_replicas = [Poisonable() for _ in range(replicas)]

    async def scene():
        fleet = await started(*fleet_replicas)
        texts = ["one", "two", POISON, "three", "four"]
        before = [asyncio.ensure_future(ask(fleet, text)) for text in texts]
        await asyncio.sleep(4.2)
        between = [asyncio.ensure_future(ask(fleet, text)) for text in ("five", "six")]
        return [outcome for outcomes in await asyncio.gather(*before, *between) for outcome in outcomes]

    outcomes = run_fast(scene)
    assert type(outcomes.pop(2)) is EndsProcess
    assert [type(outcome) for outcome in outcomes] == [Extraction] * 6
    assert sum(one.poisonings for one in fleet_replicas) <= 3


def test_of_two_texts_that_end_processes_neither_harms_others_nor_hangs():
    one = Poisonable()

    async def scene():
        fleet = await started(one)
        asking = [asyncio.ensure_future(asked(fleet, text)) for text in (POISON, "one", POISON, "two")]
        return [outcome for outcomes in await asyncio.gather(*asking) for outcome in outcomes]

    assert [type(outcome) for outcome in run_fast(scene)] == [EndsProcess, Extraction, EndsProcess, Extraction]


def test_a_text_that_ends_processes_fails_alone_in_its_batch():
    one = Poisonable()

    async def scene():
        fleet = await started(one)
        return await asked(fleet, "one", POISON, "two")

    assert [type(outcome) for outcome in run_fast(scene)] == [Extraction, EndsProcess, Extraction]
    assert one.poisonings == 3


def test_a_text_that_ends_processes_has_its_last_attempt_without_the_requests_that_keep_arriving():
    one = Poisonable()

    async def scene():
        fleet = await started(one)
        asking = [asyncio.ensure_future(asked(fleet, POISON))]
        for number in range(100):
            asking.append(asyncio.ensure_future(asked(fleet, f"Name{number}", timeout_s=60)))
            await asyncio.sleep(0.2)
        return [outcome for outcomes in await asyncio.gather(*asking) for outcome in outcomes]

    poison, *others = run_fast(scene)
    assert type(poison) is EndsProcess
    assert {type(outcome) for outcome in others} == {Extraction}
    assert one.poisonings == 3


@pytest.mark.parametrize(("poison_s", "several"), [(3.0, False), (0.5, True)])
def test_requests_of_other_gateways_are_not_at_fault_for_a_text_that_ends_processes(monkeypatch, poison_s, several):
    """A gateway knows of them from its probes, if these are more frequent than the ends of the process."""
    monkeypatch.setattr("random.random", cycle([0.0, 0.5]).__next__)
    one = Poisonable(item_s=4)
    one.POISON_S = poison_s

    async def scene():
        fleets = [await started(one, several_gateways=several) for _ in range(2)]
        asking = [
            asyncio.ensure_future(asked(fleet, text, timeout_s=60))
            for fleet, text in zip(fleets, [POISON, "one"], strict=True)
        ]
        return [outcome for outcomes in await asyncio.gather(*asking) for outcome in outcomes]

    assert [type(outcome) for outcome in run_fast(scene)] == [EndsProcess, Extraction]
    assert one.poisonings == 3


@pytest.mark.parametrize("ask", [asked, streamed])
def test_a_replica_that_answers_no_probe_has_not_ended(ask: Ask):
    """A slow replica gives up its calls, so the request gets no error that forbids to send it again."""
    one, other = MortalReplica(item_s=20), MortalReplica(item_s=20)

    async def scene():
        fleet = await started(one, other)
        asking = asyncio.ensure_future(ask(fleet, "nobody"))
        await asyncio.sleep(0.5)
        one.hang()
        await asyncio.sleep(4)
        assert len(other.calls) == 1
        one.revive()
        await asyncio.sleep(1)
        other.hang()
        return await asking

    (outcome,) = run_fast(scene)
    assert outcome.code == NotReady.code
    assert one.cancelled >= 1
    assert other.cancelled >= 1


async def waiting_for_its_last_attempt(fleet: Fleet, timeout_s: float = 30.0) -> asyncio.Task:
    """A request that waits while another has its last attempt, after a replica has ended at 1 s and 3 s."""
    replica: MortalReplica = next(iter(fleet.replicas.values()))
    asking = [("first", 300.0), ("waits", timeout_s)]
    _, waits = [asyncio.ensure_future(asked(fleet, request_id=name, timeout_s=limit_s)) for name, limit_s in asking]
    for _ in range(2):
        await asyncio.sleep(1)
        replica.die()
        await asyncio.sleep(1)
        replica.revive()
    await asyncio.sleep(1)
    assert [call.request_id for _, call in replica.calls] == ["first", "waits"] * 2 + ["first"]
    return waits


def test_what_waits_for_its_last_attempt_can_be_aborted_and_counts_as_waiting():
    async def scene():
        fleet = await started(MortalReplica(item_s=10), queue_capacity=2)
        waits = await waiting_for_its_last_attempt(fleet)
        assert (await fleet.status()).unfinished_items == 2
        also_waits = asyncio.ensure_future(asked(fleet, request_id="also waits"))
        await asyncio.sleep(0)
        (refused,) = await asked(fleet)
        assert type(refused) is QueueFull
        assert await fleet.abort("waits")
        assert await fleet.abort("also waits")
        await also_waits
        return await waits, now_s()

    (outcome,), took_s = run_fast(scene)
    assert type(outcome) is Aborted
    assert took_s < 6


def test_what_waits_for_its_last_attempt_misses_its_deadline():
    async def scene():
        fleet = await started(MortalReplica(item_s=10))
        waits = await waiting_for_its_last_attempt(fleet, timeout_s=8)
        return await waits, now_s()

    (outcome,), took_s = run_fast(scene)
    assert type(outcome) is DeadlineExceeded
    assert 8 <= took_s < 9


def test_a_last_attempt_begins_when_what_its_replica_runs_has_ended():
    class Noting(MortalReplica):
        """Notes what it runs when it gets more."""

        async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
            unfinished.append(self.unfinished)
            return await super().extract(items, call)

    unfinished: list[int] = []
    one, other = Noting(item_s=8), MortalReplica(item_s=8)

    async def scene():
        fleet = await started(one, other)
        asking = [asyncio.ensure_future(asked(fleet, "Ada met Eve", "Eve met Ada", timeout_s=300))]
        await asyncio.sleep(1)
        one.die()
        await asyncio.sleep(1)
        one.revive()
        await asyncio.sleep(2)
        asking.append(asyncio.ensure_future(asked(fleet, timeout_s=300)))
        await asyncio.sleep(0.5)
        other.die()
        return [outcome for outcomes in await asyncio.gather(*asking) for outcome in outcomes]

    assert [type(outcome) for outcome in run_fast(scene)] == [Extraction] * 3
    assert len(other.calls) == 1
    assert unfinished == [0] * 4


def test_a_last_attempt_that_waits_for_requests_of_other_gateways_can_be_aborted():
    replica = MortalReplica(item_s=10)

    async def scene():
        fleet = await started(replica)
        asking = asyncio.ensure_future(asked(fleet, "Ada met Eve", "Eve met Ada", request_id="waits", timeout_s=300))
        for _ in range(2):
            await asyncio.sleep(1)
            replica.die()
            await asyncio.sleep(1)
            replica.revive()
        replica.unfinished += 1  # of another gateway
        await asyncio.sleep(2)
        assert await fleet.abort("waits")
        return await asking, now_s()

    outcomes, took_s = run_fast(scene)
    assert [type(outcome) for outcome in outcomes] == [Aborted] * 2
    assert len(replica.calls) == 2
    assert took_s < 7


def test_a_stream_has_its_replica_to_itself_only_until_it_has_begun():
    one = MortalReplica(item_s=2)

    async def scene():
        fleet = await started(one)
        stream = fleet.stream(item("Ada met Charles"), call(timeout_s=300))
        first = asyncio.ensure_future(anext(stream))
        beside = asyncio.ensure_future(asked(fleet))
        for _ in range(2):
            await asyncio.sleep(1)
            one.die()
            await asyncio.sleep(1)
            one.revive()
        await first
        assert_right(await beside)
        assert_right(await asked(fleet))
        await stream.aclose()
        return fleet._dispatcher.outstanding

    assert run_fast(scene) == {0: 0}


def test_a_connection_that_is_lost_twice_ended_no_process():
    class Resetting(MortalReplica):
        async def _work(self, seconds: float, deadline_s: float) -> None:
            raise NotReady("the model's process cannot be reached; try again")

    async def scene():
        fleet = await started(Resetting())
        return [*await asked(fleet), *await streamed(fleet, "Ada")]

    assert [type(outcome) for outcome in run_fast(scene)] == [NotReady, NotReady]


def test_when_the_server_ends_during_a_repeat_the_request_is_not_at_fault():
    one = MortalReplica(item_s=2)

    async def scene():
        fleet = await started(one)
        asking = asyncio.ensure_future(asked(fleet))
        await asyncio.sleep(0.5)
        one.die()
        await asyncio.sleep(1)
        one.revive()
        await asyncio.sleep(1)
        assert len(one.calls) == 2
        fleet.fail()
        return await asking

    (outcome,) = run_fast(scene)
    assert outcome.code == NotReady.code


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
