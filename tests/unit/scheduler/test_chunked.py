"""Chunked requests: items of several passes, which take turns with other requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from doubles.fake_engine import FakeChunkedRequest, FakeEngine, extract
from stage import (
    LONG,
    Adapters,
    Clock,
    Gate,
    ListSink,
    LongTexts,
    MakeItem,
    Start,
    Tally,
    Until,
    ending_of,
    hold_lane,
    settle,
)

from gliner_bento.engine.base import ChunkedRequest, Prepared, SlotState
from gliner_bento.errors import Aborted, DeadlineExceeded, InternalError, NotReady, QueueFull, TooLarge
from gliner_bento.fairness.constants import MAX_SMALL_ITEMS
from gliner_bento.scheduler.scheduler import Scheduler
from gliner_bento.tasks.extraction import Entity, Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item


def submit_prepared(scheduler: Scheduler, until: Until, one: Item) -> None:
    """Submit an item while every lane is held, and return when it waits or is collated ahead."""
    scheduler.submit(one, request_id=one.text)
    settle(scheduler, until)


def names(outcome: Extraction | BaseException) -> list[str]:
    assert isinstance(outcome, Extraction)
    return [entity.text for entity in outcome.entities]


@pytest.mark.parametrize(("lanes", "per_call", "packs"), [(1, 1, False), (3, 7, False), (2, 3, True)])
def test_the_results_of_all_passes_are_merged(
    start: Start, item: MakeItem, tally: Tally, lanes: int, per_call: int, packs: bool
) -> None:
    engine = FakeEngine(chunked=LongTexts(per_call=per_call), packs=packs)
    scheduler = start(engine, inference_lanes=lanes, tokenizer_threads=2)
    answer = ending_of(scheduler.submit(item(LONG), request_id="r"))
    assert isinstance(answer, Extraction)
    assert answer.entities == extract(item(LONG)).entities
    assert (answer.usage.words, answer.usage.windows) == (40, 20)
    assert sorted(one.text.strip() for batch in engine.batches for one in batch) == sorted(
        f"Name{n} Name{n + 1}" for n in range(0, 40, 2)
    )
    assert (tally["completed"], tally["batched_items"]) == (1, 20)
    assert scheduler.stats.unfinished_items == scheduler.stats.waiting_items == scheduler.stats.running_items == 0


def test_a_request_has_few_passes_that_wait_or_run(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    texts = LongTexts()
    scheduler = start(FakeEngine(on_forward=gate, chunked=texts), max_batch_tokens=3)
    scheduler.submit_many([item(LONG), item(LONG)], request_id="r")
    gate.arrival()
    until(lambda: scheduler.stats.waiting_items + scheduler.stats.running_items == 2)
    assert sum(text.made for text in texts.made) == 2
    for _ in range(5):
        gate.let_through()
        gate.arrival()
    until(lambda: sum(text.made for text in texts.made) == 7)
    until(lambda: scheduler.stats.waiting_items + scheduler.stats.running_items == 2)


def test_short_texts_bypass_waiting_passes(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, chunked=LongTexts()), max_batch_tokens=3)
    scheduler.submit(item(LONG), request_id="long")
    gate.arrival()
    until(lambda: scheduler.stats.waiting_items == 1)
    submit_prepared(scheduler, until, item("Short"))
    gate.let_through()
    assert gate.arrival() == ["Short"]


def test_a_long_text_gets_its_turns_however_many_short_texts_arrive(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    scheduler = start(FakeEngine(on_forward=gate, chunked=LongTexts()), max_batch_tokens=3)
    scheduler.submit(item(LONG), request_id="long")
    gate.arrival()
    until(lambda: scheduler.stats.waiting_items == 1)
    before = 0
    for number in range(2 * MAX_SMALL_ITEMS):
        submit_prepared(scheduler, until, item(f"Short{number}"))
        gate.let_through()
        if gate.arrival()[0].startswith("Name"):
            break
        before += 1
    assert 8 <= before < MAX_SMALL_ITEMS


def hold_long(gate: Gate) -> Callable[[Sequence[Prepared]], object]:
    """Holds passes, and lets other items through."""
    return lambda batch: gate(batch) if batch[0].item.text.startswith("Name") else None


@pytest.mark.parametrize("priority", [0, -1])
def test_a_long_text_has_all_lanes_while_short_texts_arrive(
    start: Start, gate: Gate, item: MakeItem, until: Until, priority: int
) -> None:
    engine = FakeEngine(on_forward=hold_long(gate), chunked=LongTexts())
    scheduler = start(engine, inference_lanes=2, max_batch_tokens=12)
    scheduler.submit(item(LONG), request_id="long", priority=priority)
    gate.arrival()
    for number in range(3):
        gate.arrival()
        assert scheduler.stats.lanes_free == 0
        short = scheduler.submit(item("Ada"), request_id=f"ada {number}", priority=priority)
        assert names(ending_of(short)) == ["Ada"], "in the express lane"
        gate.let_through()


def test_long_texts_take_turns(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    engine = FakeEngine(on_forward=gate, chunked=LongTexts())
    scheduler = start(engine, max_batch_tokens=3)
    hold_lane(scheduler, gate, item)
    for name in ("a", "b"):
        scheduler.submit(item(LONG.replace("Name", name.upper())), request_id=name)
        until(lambda: scheduler.stats.preparing_items == 0)
    gate.let_through()
    first = [gate.arrival()[0][0]]
    for _ in range(19):
        gate.let_through()
        first.append(gate.arrival()[0][0])
    assert set(first) == {"A", "B"}
    assert abs(first.count("A") - first.count("B")) <= 2


def test_an_urgent_long_text_goes_first(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, chunked=LongTexts()), max_batch_tokens=3)
    hold_lane(scheduler, gate, item)
    for name in ("Short", "Short too"):
        submit_prepared(scheduler, until, item(name))  # the first is collated ahead, and runs first
    scheduler.submit(item(LONG), request_id="long", priority=-1)
    until(lambda: scheduler.stats.waiting_items == 3)
    arrivals = []
    for _ in range(3):
        gate.let_through()
        arrivals += gate.arrival()
    assert arrivals == ["Short", "Name0 Name1 ", "Name2 Name3 "]


def test_abort_drops_every_pass(start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally) -> None:
    engine = FakeEngine(on_forward=gate, chunked=LongTexts())
    scheduler = start(engine, max_batch_tokens=3)
    future = scheduler.submit(item(LONG), request_id="r")
    gate.arrival()
    until(lambda: scheduler.stats.waiting_items == 1)
    assert scheduler.abort("r")
    assert isinstance(ending_of(future), Aborted)
    assert scheduler.stats.waiting_items == scheduler.stats.unfinished_items == 0
    gate.open()
    assert ending_of(scheduler.submit(item("Ada"), request_id="s")) == extract(item("Ada"))
    assert len(engine.batches) == 2
    assert (tally["aborted"], tally["completed"]) == (1, 1)


def test_cancelling_the_future_drops_every_pass(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    engine = FakeEngine(on_forward=gate, chunked=LongTexts())
    scheduler = start(engine, max_batch_tokens=3)
    future = scheduler.submit(item(LONG), request_id="r")
    gate.arrival()
    until(lambda: scheduler.stats.waiting_items == 1)
    assert future.cancel()
    gate.open()
    until(lambda: scheduler.stats.running_items == 0)
    assert len(engine.batches) == 1


def test_a_deadline_drops_every_pass(
    start: Start, gate: Gate, item: MakeItem, until: Until, clock: Clock, tally: Tally
) -> None:
    scheduler = start(FakeEngine(on_forward=gate, chunked=LongTexts()), max_batch_tokens=3)
    future = scheduler.submit(item(LONG), request_id="r", deadline=clock.now_s + 5)
    gate.arrival()
    until(lambda: scheduler.stats.waiting_items == 1)
    clock.now_s += 6
    scheduler._items.expire()
    assert isinstance(ending_of(future), DeadlineExceeded)
    gate.open()
    until(lambda: scheduler.stats.running_items == scheduler.stats.waiting_items == 0)
    assert (tally["expired"], tally["completed"]) == (1, 0)


def test_steps_that_make_no_pass_meet_the_deadline(start: Start, item: MakeItem, until: Until, clock: Clock) -> None:
    class Endless(FakeChunkedRequest):
        calls = 0

        def next_passes(self) -> list[Prepared]:
            self.calls += 1
            return []

    endless = Endless(item(LONG), 2)
    scheduler = start(FakeEngine(chunked=lambda one: endless if "Name" in one.text else None))
    future = scheduler.submit(item(LONG), request_id="r", deadline=clock.now_s + 5)
    until(lambda: endless.calls > 3)
    assert names(ending_of(scheduler.submit(item("Ada"), request_id="short"))) == ["Ada"]
    clock.now_s += 6
    scheduler._items.expire()
    assert isinstance(ending_of(future), DeadlineExceeded)
    assert scheduler.drain(60), "no more steps of it"


@pytest.mark.parametrize("step", ["forward_error", "decode_error", "collate_error"])
def test_a_pass_that_fails_fails_only_its_item(start: Start, item: MakeItem, step: str, tally: Tally) -> None:
    def fails(one: Item) -> Exception | None:
        return ValueError("broken") if "Name20" in one.text else None

    scheduler = start(FakeEngine(chunked=LongTexts(), **{step: fails}))  # type: ignore[arg-type]
    good = LONG.replace("Name", "Other")
    bad, fine, short = (
        scheduler.submit(item(text), request_id=str(number)) for number, text in enumerate((LONG, good, "Ada"))
    )
    assert isinstance(ending_of(bad), InternalError)
    assert names(ending_of(fine)) == good.split()
    assert names(ending_of(short)) == ["Ada"]
    assert (tally["failed"], tally["completed"]) == (1, 2)


@pytest.mark.parametrize("where", ["next_passes", "add", "result"])
@pytest.mark.parametrize("error", [TooLarge("too many spans"), ValueError("broken")])
def test_a_chunked_request_that_fails_fails_only_its_item(
    start: Start, item: MakeItem, where: str, error: Exception
) -> None:
    class Broken(FakeChunkedRequest):
        def next_passes(self) -> list[Prepared]:
            if where == "next_passes" and self.made == 10:
                raise error
            return super().next_passes()

        def add(self, made: Prepared, result: Extraction) -> list[Entity]:
            if where == "add" and self.made >= 10:
                raise error
            return super().add(made, result)

        def result(self) -> Extraction:
            if where == "result":
                raise error
            return super().result()

    def chunked(one: Item) -> ChunkedRequest | None:
        return Broken(one, 2) if "Name" in one.text else None

    scheduler = start(FakeEngine(chunked=chunked))
    bad, short = (scheduler.submit(item(text), request_id=text) for text in (LONG, "Ada"))
    ending = ending_of(bad)
    assert ending is error if isinstance(error, TooLarge) else isinstance(ending, InternalError)
    assert names(ending_of(short)) == ["Ada"]
    assert scheduler.drain(60)


def test_a_chunked_request_without_passes_is_answered(start: Start, item: MakeItem) -> None:
    scheduler = start(FakeEngine(chunked=lambda one: FakeChunkedRequest(replace(one, text=""), 2)))
    answer = ending_of(scheduler.submit(item("no passes"), request_id="r"))
    assert isinstance(answer, Extraction)
    assert (answer.entities, answer.usage.windows) == ([], 0)


def test_close_fails_long_texts(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, chunked=LongTexts()), max_batch_tokens=3)
    future = scheduler.submit(item(LONG), request_id="r")
    gate.arrival()
    until(lambda: scheduler.stats.waiting_items == 1)
    closing = threading.Thread(target=scheduler.close)
    closing.start()
    assert isinstance(ending_of(future), NotReady)
    gate.open()
    closing.join()


def test_a_long_text_takes_one_place_of_the_queue(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    scheduler = start(FakeEngine(on_forward=gate, chunked=LongTexts()), queue_capacity=2, max_batch_tokens=3)
    long = scheduler.submit(item(LONG), request_id="long")
    gate.arrival()
    until(lambda: scheduler.stats.waiting_items == 1)
    short = scheduler.submit(item("Ada"), request_id="short")
    refused = scheduler.submit(item("Eve"), request_id="refused")
    assert isinstance(ending_of(refused), QueueFull)
    gate.open()
    assert names(ending_of(short)) == ["Ada"]
    assert len(names(ending_of(long))) == 40


def test_passes_wait_for_their_adapter_and_it_is_released_once(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    adapters = Adapters()
    texts = LongTexts()

    class Leased(FakeChunkedRequest):
        def next_passes(self) -> list[Prepared]:
            return [replace_adapter(prepared, self) for prepared in super().next_passes()]

    def replace_adapter(prepared: Prepared, chunked: FakeChunkedRequest) -> Prepared:
        leased = replace(prepared, adapter=adapters.leases[0])
        chunked._numbers[id(leased)] = chunked._numbers.pop(id(prepared))
        return leased

    engine = FakeEngine(chunked=lambda one: Leased(one, 2), lease=adapters, slot_state=SlotState(slots=1))
    scheduler = start(engine)
    future = scheduler.submit(replace(item(LONG), adapter_id="a"), request_id="r")
    until(lambda: len(adapters.leases) == 1)
    assert not engine.batches
    assert not texts.made
    adapters.load("a")
    assert len(names(ending_of(future))) == 40
    assert adapters.releases == [1]


def test_a_sink_receives_the_entities_in_order(start: Start, item: MakeItem) -> None:
    sink = ListSink()
    scheduler = start(FakeEngine(chunked=LongTexts()), inference_lanes=4, decoding_threads=4, max_batch_tokens=3)
    answer = ending_of(scheduler.submit_stream(item(LONG), sink, request_id="r"))
    assert isinstance(answer, Extraction)
    assert sink.entities == answer.entities
    assert sink.capacity <= 1000 - 2


def test_processing_pauses_while_the_sink_is_full(start: Start, item: MakeItem, until: Until) -> None:
    sink, texts = ListSink(capacity=3), LongTexts()
    scheduler = start(FakeEngine(chunked=texts), max_batch_tokens=3)
    future = scheduler.submit_stream(item(LONG), sink, request_id="r")
    until(lambda: sink.full)
    ending_of(scheduler.submit(item("Eve"), request_id="flush"))  # prepared after any pass that was being made
    until(lambda: scheduler.stats.waiting_items == scheduler.stats.running_items == 0)
    made = texts.made[0].made
    assert made < 20
    scheduler.resume("r")  # it is still full
    other = ending_of(scheduler.submit(item("Ada"), request_id="s"))
    assert names(other) == ["Ada"]
    assert texts.made[0].made == made
    sink.capacity = 1000
    scheduler.resume("r")
    assert len(names(ending_of(future))) == 40
    scheduler.resume("r")  # it has finished
    scheduler.resume("unknown")


def test_many_long_and_short_texts_finish_once_each(start: Start, item: MakeItem, tally: Tally) -> None:
    engine = FakeEngine(chunked=LongTexts(per_call=3))
    scheduler = start(engine, inference_lanes=3, tokenizer_threads=2, decoding_threads=2, queue_capacity=10_000)
    texts = [LONG.replace("Name", f"N{number}x") if number % 4 == 0 else f"Short{number}" for number in range(200)]
    futures = [scheduler.submit(item(text), request_id=f"r{number % 7}") for number, text in enumerate(texts)]
    for number in range(0, 200, 8):
        futures[number].add_done_callback(lambda _: None)
    aborts = [threading.Thread(target=partial(scheduler.abort, "r3")) for _ in range(3)]
    for abort in aborts:
        abort.start()
    endings = [ending_of(future) for future in futures]
    for abort in aborts:
        abort.join()
    for number, (text, ending) in enumerate(zip(texts, endings, strict=True)):
        if isinstance(ending, Aborted):
            assert number % 7 == 3
        else:
            assert names(ending) == text.split()
    assert scheduler.drain(60)
    assert tally["completed"] + tally["aborted"] == 200
    stats = scheduler.stats
    assert (stats.unfinished_items, stats.waiting_items, stats.running_items, stats.preparing_items) == (0, 0, 0, 0)
