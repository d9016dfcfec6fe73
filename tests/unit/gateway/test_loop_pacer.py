"""Work that is spread over the iterations of the event loop."""

from __future__ import annotations

import asyncio
from contextlib import closing

from gliner_bento.gateway.loop_pacer import LoopPacer


async def iterations(counts: list[int]):
    """Counts the loop's iterations."""
    while True:
        counts[0] += 1
        await asyncio.sleep(0)


def test_each_iteration_continues_one_task_in_order():
    async def scene():
        pacer, done, counts = LoopPacer(), [], [0]
        counting = asyncio.ensure_future(iterations(counts))

        async def work(number):
            await pacer.wait()
            done.append((number, counts[0]))

        await asyncio.gather(*map(work, range(5)))
        counting.cancel()
        numbers, at = zip(*done, strict=True)
        assert numbers == (0, 1, 2, 3, 4)
        assert at[0] == 1  # the first does not wait
        assert len(set(at)) == 5

    asyncio.run(scene())


def test_a_cancelled_wait_does_not_delay_the_next():
    async def scene():
        pacer = LoopPacer()
        waiting = [asyncio.ensure_future(pacer.wait()) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [False, True, False, False]

    asyncio.run(scene())


def test_a_loop_that_ended_with_work_does_not_stop_the_next_one():
    pacer = LoopPacer()

    async def scene():
        await pacer.wait()
        return asyncio.ensure_future(pacer.wait())  # it runs in the loop's last iteration

    for _ in range(2):
        with closing(asyncio.new_event_loop()) as loop:
            loop.call_later(10, loop.stop)  # if the pacer never lets it continue
            assert loop.run_until_complete(scene()).done()
