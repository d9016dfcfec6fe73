"""Whatever replicas die, hang, drain and come back: each request ends once, in time, right or with an error."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from doubles.fake_engine import extract
from doubles.fake_time import now_s, run_fast
from doubles.mortal_replica import MortalReplica
from hypothesis import given, settings
from hypothesis import strategies as st
from mortal_fleet import call, fleet_of, item

from gliner_bento.errors import DeadlineExceeded, EndsProcess, GLiNERBentoError, NotReady, QueueFull
from gliner_bento.replicas.fleet.fleet import Fleet
from gliner_bento.tasks.extraction import Extraction

LATE_S = 3.0
"""An item that runs when its deadline passes ends with its replica's next answer; a test's item takes this long."""


@dataclass(frozen=True)
class Asked:
    """A request. texts: its items; a single one may be streamed."""

    at_s: float
    texts: int
    timeout_s: float
    streamed: bool


@dataclass(frozen=True)
class Event:
    at_s: float
    replica: int
    action: str


TIMES = st.floats(0, 20).map(lambda at_s: round(at_s, 2))
REQUESTS = st.lists(
    st.builds(Asked, TIMES, st.integers(1, 3), st.sampled_from([2.0, 15.0, 60.0]), st.booleans()),
    min_size=1,
    max_size=12,
)
EVENTS = st.lists(
    st.builds(
        Event, TIMES, st.integers(0, 2), st.sampled_from(["die", "hang", "revive", "drain", "admit", "leave", "join"])
    ),
    max_size=12,
)


async def happen(fleet: Fleet, replicas: list[MortalReplica], deaths: list[float], event: Event) -> None:
    await asyncio.sleep(event.at_s)
    number = event.replica % len(replicas)
    replica = replicas[number]
    if event.action in ("leave", "join"):
        if (str(number) in fleet.replicas) == (event.action == "leave"):
            fleet.remove(str(number)) if event.action == "leave" else fleet.add(str(number), replica)
    elif event.action in ("drain", "admit"):
        replica.admits = event.action == "admit"
    else:
        if event.action == "die" and replica.alive:
            deaths.append(now_s())
        getattr(replica, event.action)()


async def outcomes_of(fleet: Fleet, deaths: list[float], number: int, asked: Asked) -> list:
    """The right result is `None`; others are the errors. deaths: when processes ended."""
    await asyncio.sleep(asked.at_s)
    began_s = now_s()
    items = [item(f"Ada met Number{number} and Place{place}") for place in range(asked.texts)]
    began = call(str(number), asked.timeout_s)
    if asked.streamed:
        entities = []
        try:
            async for part in fleet.stream(items[0], began):
                entities += part.entities if isinstance(part, Extraction) else part
            outcomes = [entities]
        except GLiNERBentoError as error:
            outcomes = [error]
        items = items[:1]
    else:
        outcomes = [
            list(one.entities) if isinstance(one, Extraction) else one for one in await fleet.extract(items, began)
        ]
    assert now_s() <= began.deadline_s + LATE_S
    rights = [extract(one).entities for one in items]
    assert len(outcomes) == len(rights)
    for outcome, right in zip(outcomes, rights, strict=True):
        ended_twice = isinstance(outcome, EndsProcess) and sum(at_s >= began_s for at_s in deaths) >= 2
        assert outcome == right or ended_twice or isinstance(outcome, (NotReady, DeadlineExceeded, QueueFull))
    return [None if isinstance(outcome, list) else outcome for outcome in outcomes]


def ran(requests: list[Asked], events: list[Event], replicas: list[MortalReplica]) -> list[list]:
    """The errors of each request, `None` for right results. Nothing is left behind."""

    async def scene():
        fleet = fleet_of(*replicas, max_outstanding_tokens=40, queue_capacity=1000)
        deaths: list[float] = []
        happening = [asyncio.ensure_future(happen(fleet, replicas, deaths, event)) for event in events]
        answers = await asyncio.gather(*(outcomes_of(fleet, deaths, *asked) for asked in enumerate(requests)))
        await asyncio.gather(*happening)
        assert not any(fleet._dispatcher.outstanding.values())
        assert (fleet._dispatcher.waiting_tokens, fleet._waiting_items.total, fleet._requests) == (0, 0, {})
        await fleet.close()
        return answers

    return run_fast(scene)


@settings(max_examples=150, deadline=None)
@given(REQUESTS, EVENTS)
def test_every_request_ends_in_time_with_the_right_result_or_an_error(requests, events):
    ran(requests, events, [MortalReplica(item_s=0.7) for _ in range(3)])


@settings(max_examples=150, deadline=None)
@given(REQUESTS, TIMES, st.sampled_from(["die", "hang"]), st.booleans())
def test_one_death_loses_nothing_but_streams_that_had_begun(requests, at_s, action, revives):
    asked = [Asked(one.at_s, one.texts, 200.0, one.streamed) for one in requests]
    events = [Event(at_s, 1, action), *([Event(at_s + 7.0, 1, "revive")] if revives else [])]
    for one, errors in zip(asked, ran(asked, events, [MortalReplica(), MortalReplica()]), strict=True):
        assert all(
            error is None or (one.streamed and "after the stream had begun" in error.message) for error in errors
        )
