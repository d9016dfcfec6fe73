"""The `Replica` contract: streams. The same for every kind of replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from math import inf

import pytest
from doubles.fake_engine import extract
from replica_calls import call, item, run, until
from serving import LONG, LONG_PASSES, PASS_WORDS, Serving, parts_of

from gliner_bento.errors import (
    Aborted,
    AdapterNotFound,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    InvalidField,
    NotReady,
)
from gliner_bento.tasks.extraction import Entity, Extraction

Start = Callable[..., Serving]

SLACK_PASSES = 64
"""Passes that may run while nothing is read: those of unread parts, and those that the scheduler runs ahead."""


def entities_of(parts: Sequence[Sequence[Entity]]) -> list[Entity]:
    return [entity for part in parts for entity in part]


@pytest.mark.parametrize("text", [LONG, "Ada met Charles", "nobody", " ", ""])
def test_the_parts_hold_the_entities_and_the_last_one_the_rest(serving: Serving, text: str):
    serving.release()
    parts, last = run(lambda: parts_of(serving.replica.stream(item(text), call())))
    assert isinstance(last, Extraction)
    assert not any(isinstance(part, Extraction) for part in parts)
    assert [*entities_of(parts), *last.entities] == extract(item(text)).entities
    assert last.usage.words == len(text.split())


def test_the_last_part_holds_all_but_the_entities(serving: Serving):
    serving.release()
    requested = item("Ada met", relations={"met": "met"})
    _, last = run(lambda: parts_of(serving.replica.stream(requested, call())))
    (whole,) = run(lambda: serving.replica.extract([requested], call()))
    assert (last.relations, last.usage, last.truncated) == (whole.relations, whole.usage, whole.truncated)


def test_entities_arrive_while_the_text_is_processed(serving: Serving):
    async def scene():
        stream = serving.replica.stream(item(LONG), call())
        for number in range(3):
            serving.release(1)
            assert [entity.text for entity in await stream.__anext__()] == [
                f"Name{PASS_WORDS * number}",
                f"Name{PASS_WORDS * number + 1}",
            ]
        assert len(serving.passes) < LONG_PASSES
        await stream.aclose()

    run(scene)


async def ending_of(stream) -> tuple[list[Entity], GLiNERBentoError]:
    """The entities of a stream that fails, and its error."""
    entities: list[Entity] = []
    with pytest.raises(GLiNERBentoError) as caught:  # noqa: PT012
        async for part in stream:
            assert not isinstance(part, Extraction)
            entities += part
    return entities, caught.value


@pytest.mark.parametrize("error", [InvalidField("labels: wrong", param="labels"), AdapterNotFound("nobody")])
def test_the_error_of_the_item_is_raised(start: Start, error: GLiNERBentoError):
    serving = start(error=lambda _: error)
    serving.release()
    entities, raised = run(lambda: ending_of(serving.replica.stream(item(), call())))
    assert not entities
    assert (type(raised), raised.message, raised.param) == (type(error), error.message, error.param)


def test_an_error_comes_after_the_entities_before_it(start: Start):
    serving = start(error=lambda one: ValueError("a secret") if "Name50" in one.text.split() else None)
    serving.release()
    entities, raised = run(lambda: ending_of(serving.replica.stream(item(LONG), call())))
    assert type(raised) is InternalError
    assert "secret" not in raised.message
    assert 0 < len(entities) <= 50
    assert [entity.text for entity in entities] == [f"Name{number}" for number in range(len(entities))]


def test_a_deadline_that_passes_is_raised_after_the_entities_before_it(serving: Serving):
    async def scene(timeout_s):
        stream = serving.replica.stream(item(LONG), call(timeout_s=timeout_s))
        serving.release(1)
        return await ending_of(stream)

    for timeout_s in (0.2, 1.0, 5.0, 25.0):  # on a slow machine it passes before the first part
        entities, raised = run(partial(scene, timeout_s))
        if entities:
            break
        run(partial(_cleared, serving))
    assert type(raised) is DeadlineExceeded
    assert [entity.text for entity in entities[:2]] == ["Name0", "Name1"]


def test_a_stream_may_take_any_time_while_it_makes_progress(serving: Serving):
    async def scene(idle_s):
        stream = serving.replica.stream(item(LONG), call(timeout_s=inf, idle_timeout_s=idle_s))
        entities: list[Entity] = []
        with suppress(DeadlineExceeded):
            for _ in range(8):
                await asyncio.sleep(idle_s / 4)
                serving.release(1)
                entities += await anext(stream)
            assert type((await ending_of(stream))[1]) is DeadlineExceeded
        return entities

    for idle_s in (0.4, 2.0, 6.0):  # on a slow machine a pass takes longer
        entities = run(partial(scene, idle_s))
        if len(entities) >= 16:
            break
    assert [entity.text for entity in entities[:16]] == [f"Name{number}" for number in range(16)]


async def _cleared(serving: Serving) -> None:
    """End all passes, also those of items that have ended, and take back what was released."""
    serving.release()
    assert (await serving.replica.extract([item()], call()))[0].entities
    while serving.steps.acquire(blocking=False):
        pass


def test_a_stream_that_is_late_on_arrival_is_never_run(serving: Serving):
    serving.release()
    entities, raised = run(lambda: ending_of(serving.replica.stream(item(LONG), call(timeout_s=-1))))
    assert (entities, type(raised)) == ([], DeadlineExceeded)
    assert not serving.passes


def test_an_abort_is_raised(serving: Serving):
    async def scene():
        stream = serving.replica.stream(item(LONG), call("mine"))
        serving.release(1)
        await stream.__anext__()
        assert await serving.replica.abort("mine") is True
        return await ending_of(stream)

    assert type(run(scene)[1]) is Aborted


def test_a_closed_replica_ends_its_streams(serving: Serving):
    async def scene():
        stream = serving.replica.stream(item(LONG), call())
        serving.release(1)
        await stream.__anext__()
        closing = asyncio.ensure_future(asyncio.to_thread(serving.close))
        ended = await ending_of(stream)
        serving.release()
        await closing
        return ended

    assert type(run(scene)[1]) is NotReady


@pytest.mark.parametrize("waits", [False, True], ids=["between parts", "while it waits for one"])
def test_closing_the_generator_aborts_the_item(serving: Serving, waits: bool):
    async def scene():
        stream = serving.replica.stream(item(LONG), call("mine"))
        serving.release(1)
        await stream.__anext__()
        if waits:
            waiting = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await stream.aclose()
        await until(lambda: serving.unfinished == 0)
        serving.release()
        await until(serving.idle)
        assert (await serving.replica.extract([item()], call()))[0].entities

    run(scene)
    assert len(serving.passes) < SLACK_PASSES


# Parts of 20 kB, which the buffers of a connection hold few of.
LARGE = replace(item(LONG), labels={"n" * 10_000: "name"})


def test_closing_the_generator_aborts_an_item_that_has_stopped_for_its_reader(serving: Serving):
    async def scene():
        serving.release()
        stream = serving.replica.stream(LARGE, call("mine"))
        await stream.__anext__()
        await _settled(serving)
        await stream.aclose()
        await until(lambda: serving.unfinished == 0)

    run(scene)
    assert len(serving.passes) < max(LONG_PASSES, serving.buffered_passes)


def test_processing_pauses_while_nothing_is_read(serving: Serving):
    async def scene():
        serving.release()
        stream = serving.replica.stream(LARGE, call())
        read = 1
        await stream.__anext__()
        await _settled(serving)
        assert len(serving.passes) <= read + SLACK_PASSES + serving.buffered_passes + serving.buffered_passes
        async for part in stream:
            read += not isinstance(part, Extraction)
            assert len(serving.passes) <= read + SLACK_PASSES + serving.buffered_passes + serving.buffered_passes
        assert len(serving.passes) == LONG_PASSES

    run(scene)


async def _settled(serving: Serving) -> None:
    """Wait until no pass has run for a while."""
    before = -1
    while len(serving.passes) != before:
        before = len(serving.passes)
        await asyncio.sleep(0.05)


def test_a_paused_stream_does_not_hold_up_other_items(serving: Serving):
    async def scene():
        serving.release()
        stream = serving.replica.stream(item(LONG), call())
        await stream.__anext__()
        await _settled(serving)
        outcomes = await serving.replica.extract([item(), item()], call())
        await stream.aclose()
        return outcomes

    assert all(outcome.entities for outcome in run(scene))


def test_streams_of_one_request_id_are_independent(serving: Serving):
    async def scene():
        one, other = (serving.replica.stream(item(LONG), call("same")) for _ in range(2))
        serving.release()
        await one.__anext__()
        await one.aclose()
        return await parts_of(other)

    parts, last = run(scene)
    assert [*entities_of(parts), *last.entities] == extract(item(LONG)).entities


def test_a_reader_that_is_cancelled_repeatedly_leaves_nothing_running(
    serving: Serving, caplog: pytest.LogCaptureFixture
):
    async def scene():
        reading = asyncio.Event()

        async def read() -> None:
            async with aclosing(serving.replica.stream(item(LONG), call())) as steps:
                async for _ in steps:
                    reading.set()

        reader = asyncio.create_task(read())
        serving.release(1)
        await reading.wait()
        while not reader.done():
            reader.cancel()
            await asyncio.sleep(0)
        with suppress(serving.cancelled):
            await reader
        serving.release()
        await until(serving.idle)
        assert serving.unfinished == 0

    run(scene)
    assert not [record for record in caplog.records if record.exc_info]
