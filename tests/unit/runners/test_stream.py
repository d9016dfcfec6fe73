"""Entities on their way out of the runner: in order, no faster than they are read, and an end to every answer."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future

import pytest
from views import view

from gliner_bento.engine.base import Entity, Item
from gliner_bento.engine.fake import FakeEngine, FakeReading, extract
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.types import RunnerItem
from runners.gliner_runner import GLiNERRunner
from runners.stream import Feed, line

PATIENCE_S = 60.0  # a safety net: no test passes or fails by waiting, unless something hangs
LONG = " ".join(f"Name{number}" for number in range(400))


def entity(number: int) -> Entity:
    return Entity(number, number + 1, "x", "label", 0.5)


def ended() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def told_by(tell: Callable[[Feed], None]) -> list[list[Entity]]:
    """What comes out of a feed that another thread fills."""

    async def scene() -> list[list[Entity]]:
        feed = Feed(lambda: None)
        thread = threading.Thread(target=tell, args=(feed,))
        thread.start()
        told = [list(entities) async for entities in feed]
        thread.join()
        return told

    return asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_what_another_thread_tells_comes_in_its_order_and_ends():
    def tell(feed: Feed) -> None:
        for number in range(0, 1000, 2):
            feed.take([entity(number), entity(number + 1)])
        feed.end(ended())

    assert told_by(tell) == [[entity(number), entity(number + 1)] for number in range(0, 1000, 2)]


def test_nothing_to_tell_is_an_end_too():
    assert told_by(lambda feed: feed.end(ended())) == []


def test_a_reader_gets_what_is_told_before_the_end():
    async def scene() -> None:
        feed = Feed(lambda: None)
        reader = feed.__aiter__()
        first = asyncio.ensure_future(reader.__anext__())
        await asyncio.sleep(0)
        assert not first.done()
        feed.take([entity(1)])
        assert await asyncio.wait_for(first, PATIENCE_S) == [entity(1)]

    asyncio.run(scene())


def test_a_full_feed_says_so_and_asks_for_more_once_it_has_room():
    async def scene() -> None:
        asked: list[bool] = []
        taken: list[None] = []
        feed = Feed(lambda: asked.append(feed.has_room))
        while feed.has_room:
            assert len(taken) < 1000
            taken.append(feed.take([entity(0)]))
        for _ in range(3):  # those that are under way come all the same
            feed.take([entity(0)])
        reader = feed.__aiter__()
        for _ in range(4):
            await reader.__anext__()
            assert (feed.has_room, asked) == (False, [])
        await reader.__anext__()
        assert (feed.has_room, asked) == (True, [True])

    asyncio.run(scene())


def test_who_waits_for_room_is_always_told_of_it():
    """Whatever the threads do in between; here they take turns as often as Python lets them."""
    number_of_all = 20_000

    async def scene() -> int:
        room = threading.Event()
        feed = Feed(room.set)

        def tell() -> None:
            for _ in range(number_of_all):
                while not feed.has_room:
                    if not room.wait(PATIENCE_S / 4):
                        break
                    room.clear()
                feed.take([entity(0)])
            feed.end(ended())

        thread = threading.Thread(target=tell)
        thread.start()
        count = 0
        async for _ in feed:
            count += 1
        thread.join()
        return count

    switches_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert asyncio.run(asyncio.wait_for(scene(), PATIENCE_S / 5)) == number_of_all
    finally:
        sys.setswitchinterval(switches_s)


@pytest.mark.parametrize("text", ["plain", "日本 é 🙂", "a\nb\r\nc", "\u2028\u0085\x1c", '"\\'])
def test_a_line_is_ascii_and_one_line(text):
    written = line({"text": text})
    assert written.isascii()
    assert written.splitlines(keepends=True) == [written]
    assert json.loads(written) == {"text": text}


class Hosted:
    """As much of the runner as its answers need, over a fake engine that reads long texts two words at a time.

    step: of a lane before a forward. clock_s: the scheduler's; it stands still.
    """

    def __init__(self, step: Callable[[], object], **engine: object) -> None:
        self.clock_s = 0.0
        self.engine = FakeEngine(on_forward=lambda _: step(), reading=self._reading, **engine)
        config = view(SchedulerConfig, max_batch_size=1, max_batch_tokens=3)
        self._scheduler = Scheduler(self.engine, config, clock=lambda: self.clock_s)
        self._scheduler.start()
        self._streams: dict[str, Future] = {}

    @staticmethod
    def _reading(item: Item) -> FakeReading | None:
        return FakeReading(item, 2) if len(item.text.split()) > 3 else None

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

    def _report(self) -> None:
        """Metrics are not what is tested here."""

    def extract_stream(self, text: str) -> AsyncIterator[str]:
        item = RunnerItem(
            text=text,
            labels={"name": "name"},
            relations={},
            threshold=0.5,
            relation_threshold=0.5,
            flat_ner=True,
            multi_label=False,
            adapter_id=None,
            long_text="window",
            window_words=None,
            window_overlap_words=None,
        )
        return GLiNERRunner.apis["extract_stream"].func(self, item, "r", "stream", 60_000.0, 0)

    async def stop_stream(self, stream_id: str) -> None:
        await GLiNERRunner.apis["stop_stream"].func(self, stream_id)

    @property
    def streams(self) -> list[str]:
        return list(self._streams)


@pytest.fixture
def steps() -> Iterator[threading.Semaphore]:
    """How many batches may run; all that are left when the test has ended."""
    steps = threading.Semaphore(0)
    yield steps
    steps.release(10_000)


@pytest.fixture
def host(steps: threading.Semaphore) -> Iterator[Callable[..., Hosted]]:
    hosts: list[Hosted] = []

    def host(**engine: object) -> Hosted:
        hosts.append(Hosted(lambda: steps.acquire(timeout=PATIENCE_S), **engine))
        return hosts[-1]

    yield host
    steps.release(10_000)
    for one in hosts:
        one.scheduler.close()


async def parts_of(lines: AsyncIterator[str]) -> list[dict]:
    return [json.loads(written) async for written in lines]


def entities_of(parts: list[dict]) -> list[Entity]:
    return [Entity(**found) for part in parts for found in part.get("entities", ())]


@pytest.mark.parametrize("text", [LONG, "Ada met Charles", "nobody", " "])
def test_the_lines_hold_the_entities_and_then_the_outcome_without_them(host, steps, text):
    steps.release(10_000)
    *parts, last = asyncio.run(parts_of(host().extract_stream(text)))
    assert entities_of(parts) == extract(Item(text, {"name": "name"})).entities
    result = last["outcome"]["result"]
    assert (result["entities"], result["words"]) == ([], len(text.split()))
    assert len(parts) >= result["windows"]


def test_entities_are_told_while_the_text_is_read(host, steps):
    async def scene() -> None:
        hosted = host()
        lines = hosted.extract_stream(LONG)
        for number in range(3):
            steps.release()
            assert [one.text for one in entities_of([json.loads(await lines.__anext__())])] == [
                f"Name{2 * number}",
                f"Name{2 * number + 1}",
            ]
        assert hosted.scheduler.stats.unfinished_items == 1
        await lines.aclose()

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_an_error_comes_after_what_was_found(host, steps):
    steps.release(10_000)
    broken = host(forward_error=lambda item: ValueError("broken") if "Name50 " in item.text else None)
    *parts, last = asyncio.run(parts_of(broken.extract_stream(LONG)))
    names = [found.text for found in entities_of(parts)]
    assert 0 < len(names) <= 50
    assert names == [f"Name{number}" for number in range(len(names))]
    assert (last["outcome"]["error"]["code"], last["outcome"]["error"]["request_id"]) == ("internal", "r")


def test_a_deadline_that_passes_is_the_outcome(host, steps):
    async def scene() -> list[dict]:
        hosted = host()
        lines = hosted.extract_stream(LONG)
        steps.release()
        first = json.loads(await lines.__anext__())
        hosted.clock_s = 1e12
        hosted.scheduler.expire()
        return [first, *await parts_of(lines)]

    *parts, last = asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert entities_of(parts)
    assert last["outcome"]["error"]["code"] == "deadline_exceeded"


def test_who_stops_reading_stops_the_work(host, steps):
    async def scene() -> None:
        hosted = host()
        lines = hosted.extract_stream(LONG)
        steps.release()
        await lines.__anext__()
        await lines.aclose()
        assert hosted.scheduler.stats.unfinished_items == 0
        assert hosted.scheduler.abort("r") is False

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_a_stream_that_is_stopped_ends_and_stops_the_work(host, steps):
    """Whoever reads it has gone, though the connection is still open."""

    async def scene() -> list[str]:
        hosted = host()
        lines = hosted.extract_stream(LONG)
        steps.release()
        await lines.__anext__()
        await hosted.stop_stream("another")
        assert (hosted.streams, hosted.scheduler.stats.unfinished_items) == (["stream"], 1)
        await hosted.stop_stream("stream")
        assert hosted.scheduler.stats.unfinished_items == 0
        rest = [written async for written in lines]
        assert hosted.streams == []
        await hosted.stop_stream("stream")
        return rest

    assert not [written for written in asyncio.run(asyncio.wait_for(scene(), PATIENCE_S)) if "outcome" in written]


def test_a_text_is_not_read_much_further_than_its_answer(host, steps):
    async def scene() -> None:
        hosted = host()
        steps.release(10_000)
        lines = hosted.extract_stream(LONG)
        seen = 0
        async for written in lines:
            seen += "entities" in json.loads(written)
            while seen == 1 and hosted.scheduler.stats.waiting_items + hosted.scheduler.stats.running_items:
                await asyncio.sleep(0.001)  # until it waits for its reader
            assert len(hosted.engine.batches) <= seen + 40
        assert len(hosted.engine.batches) == 200

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
