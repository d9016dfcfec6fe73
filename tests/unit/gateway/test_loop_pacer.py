"""Work that is spread over the iterations of the event loop."""

from __future__ import annotations

import asyncio

from gliner_bento.gateway.loop_pacer import LoopPacer


async def iterations(counts: list[int]):
    """Counts the loop's iterations."""
    while True:
        counts[0] += 1
        await asyncio.sleep(0)


def test_each_iteration_runs_one_callback_in_order():
    async def scene():
        pacer, done, counts = LoopPacer(), [], [0]
        counting = asyncio.ensure_future(iterations(counts))
        for number in range(5):
            pacer.run(lambda number=number: done.append((number, counts[0])))
        assert done == [(0, 0)]  # the first callback does not wait
        while len(done) < 5:
            await asyncio.sleep(0)
        counting.cancel()
        numbers, at = zip(*done, strict=True)
        assert numbers == (0, 1, 2, 3, 4)
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
    pacer, done = LoopPacer(), []

    async def scene(number):
        pacer.run(lambda: done.append(number))
        pacer.run(lambda: done.append(-1))

    asyncio.run(scene(1))
    asyncio.run(scene(2))
    assert [number for number in done if number > 0] == [1, 2]
