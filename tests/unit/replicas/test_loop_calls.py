from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gliner_bento.replicas.local.loop_calls import LoopCalls


class Loop(asyncio.SelectorEventLoop):
    """Counts how often threads wake it."""

    wakes = 0

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, **more: Any) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(callback, *args, **more)


def test_calls_that_end_together_wake_the_loop_once_and_run_in_order() -> None:
    ran: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls, ended = LoopCalls(loop), loop.create_future()
        wakes = {calls.add(ran.append, number) for number in range(64)} | {calls.add(ended.set_result, None)}
        for wake in wakes:
            wake()
        await ended
        calls.add(ran.append, 64)()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop = Loop()
    loop.run_until_complete(main())
    loop.close()
    assert ran == list(range(65))
    assert loop.wakes == 2


def test_a_call_into_a_closed_loop_has_no_effect() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    LoopCalls(loop).add(lambda: None)()
