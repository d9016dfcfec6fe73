"""Partial results between threads and the event loop: in order, complete, and every pause ends."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

from replica_calls import PATIENCE_S, run

from gliner_bento.replicas.local.partial_results import PartialResults
from gliner_bento.tasks.extraction import Entity


def entity(number: int) -> Entity:
    return Entity(number, number + 1, "x", "label", 0.5)


def ended() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def parts_from(fill: Callable[[PartialResults], None]) -> list[list[Entity]]:
    """What a reader gets of what another thread puts."""

    async def scene() -> list[list[Entity]]:
        results = PartialResults(lambda: None)
        thread = threading.Thread(target=fill, args=(results,))
        thread.start()
        parts = [list(entities) async for entities in results]
        thread.join()
        return parts

    return run(scene)


def test_parts_arrive_in_order_and_end():
    def fill(results: PartialResults) -> None:
        for number in range(0, 1000, 2):
            results.put([entity(number), entity(number + 1)])
        results.end(ended())

    assert parts_from(fill) == [[entity(number), entity(number + 1)] for number in range(0, 1000, 2)]


def test_no_parts_are_an_end_too():
    assert parts_from(lambda results: results.end(ended())) == []


def test_a_reader_gets_a_part_before_the_end():
    async def scene() -> None:
        results = PartialResults(lambda: None)
        reader = results.__aiter__()
        first = asyncio.ensure_future(reader.__anext__())
        await asyncio.sleep(0)
        assert not first.done()
        results.put([entity(1)])
        assert await first == [entity(1)]

    run(scene)


def test_a_full_sink_resumes_processing_once_it_is_no_longer_full():
    async def scene() -> None:
        resumed: list[bool] = []
        put: list[None] = []
        results = PartialResults(lambda: resumed.append(results.full))
        while not results.full:
            assert len(put) < 1000
            put.append(results.put([entity(0)]))
        for _ in range(3):  # passes that run while it fills up still put theirs
            results.put([entity(0)])
        reader = results.__aiter__()
        for _ in range(4):
            await reader.__anext__()
            assert (results.full, resumed) == (True, [])
        await reader.__anext__()
        assert (results.full, resumed) == (False, [False])

    run(scene)


def test_a_thread_that_pauses_is_always_resumed():
    """However the threads interleave; here they switch as often as Python lets them."""
    parts, missed = 20_000, []

    async def scene() -> int:
        resumed = threading.Event()
        results = PartialResults(resumed.set)

        def fill() -> None:
            for _ in range(parts):
                while results.full:
                    if not resumed.wait(PATIENCE_S):
                        missed.append(True)
                        break
                    resumed.clear()
                results.put([entity(0)])
            results.end(ended())

        thread = threading.Thread(target=fill)
        thread.start()
        count = 0
        async for _ in results:
            count += 1
        thread.join()
        return count

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert asyncio.run(scene()) == parts
    finally:
        sys.setswitchinterval(interval_s)
    assert not missed
