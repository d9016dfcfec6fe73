"""Nothing is left running: a call that is cancelled again and again, as `anyio` does, still waits for what it began."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

import pytest

from gliner_bento.http.disconnect import cancel
from gliner_bento.replicas.ended import step_within, until_ended, within
from gliner_bento.replicas.fleet.health import Member, Unanswering


class Steps:
    """A generator whose steps take `turns` iterations of the event loop to end when they are cancelled."""

    def __init__(self, turns: int = 5) -> None:
        self.turns = turns
        self.waiting = asyncio.Event()
        self.ended = 0

    async def __call__(self):
        try:
            yield 1
            self.waiting.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            self.ended += 1


async def cancelled_repeatedly(task: asyncio.Task[None]) -> None:
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()


@pytest.mark.parametrize("kind", ["within", "member"])
def test_a_generator_can_be_closed_after_its_step_was_cancelled_repeatedly(kind):
    async def scene():
        steps, member = Steps(), Member("one", 0, None)

        async def read():
            async with aclosing(steps()) as each:
                while True:
                    await (step_within(anext(each), 3600) if kind == "within" else member.run_step(anext(each)))

        reader = asyncio.create_task(read())
        await steps.waiting.wait()
        await cancelled_repeatedly(reader)
        assert steps.ended == 1
        assert not member.calls
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scene())


def test_the_calls_of_a_lost_member_end_also_if_their_clients_leave_meanwhile():
    async def scene():
        steps, member = Steps(), Member("one", 0, None)

        async def read():
            async with aclosing(steps()) as each:
                while True:
                    await member.run_step(step_within(anext(each), 3600))

        reader = asyncio.create_task(read())
        await steps.waiting.wait()
        member.cancel_calls()
        await cancelled_repeatedly(reader)
        assert steps.ended == 1

    asyncio.run(scene())


def test_a_timeout_is_raised_after_the_work_has_ended():
    async def scene():
        ended = []

        async def work():
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(True)

        with pytest.raises(asyncio.TimeoutError):
            await within(work(), 0.0)
        assert ended == [True]
        assert await within(asyncio.sleep(0, "result"), 3600) == "result"

    asyncio.run(scene())


@pytest.mark.parametrize("timeout_s", [None, 3600.0])
def test_a_call_that_is_given_up_again_and_again_ends_once_and_its_task_continues(timeout_s):
    async def scene():
        member, begun = Member("one", 0, None), asyncio.Event()

        async def call():
            begun.set()
            await asyncio.Event().wait()

        async def request():
            with pytest.raises(Unanswering):
                await member.run(within(call(), timeout_s))
            assert not member.calls
            await asyncio.sleep(0)

        task = asyncio.create_task(request())
        await begun.wait()
        member.cancel_calls()
        member.cancel_calls()
        await task

    asyncio.run(scene())


def test_a_call_that_fails_when_it_is_given_up_does_not_end_the_next_one():
    async def scene():
        member, begun = Member("one", 0, None), asyncio.Event()

        async def call(outcome):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if outcome is asyncio.CancelledError:
                    raise
                if outcome:
                    raise outcome from None

        async def request():
            with pytest.raises(ConnectionError):
                await member.run(call(ConnectionError))
            await member.run(call(None))
            with pytest.raises(Unanswering):
                await member.run(call(asyncio.CancelledError))

        task = asyncio.create_task(request())
        while not task.done():
            if begun.is_set():
                begun.clear()
                member.cancel_calls()
            await asyncio.sleep(0)
        await task
        assert not getattr(task, "cancelling", bool)()  # from Python 3.11

    asyncio.run(scene())


@pytest.mark.parametrize("leaves_first", [False, True])
def test_a_client_that_leaves_while_its_call_is_given_up_ends_the_request(leaves_first):
    async def scene():
        member, begun = Member("one", 0, None), asyncio.Event()

        async def call():
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(member.run(call()))
        await begun.wait()
        ends = [member.cancel_calls, partial(cancel, task)]
        for end in reversed(ends) if leaves_first else ends:
            end()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())


def test_the_error_of_a_call_that_nobody_waits_for_any_more_is_not_logged(caplog):
    async def scene():
        begun = asyncio.Event()

        async def work():
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ConnectionError from None

        waiting = asyncio.create_task(until_ended(asyncio.ensure_future(work())))
        await begun.wait()
        await cancelled_repeatedly(waiting)

    asyncio.run(scene())
    assert not caplog.records
