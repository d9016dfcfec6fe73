"""An item with an adapter waits until that is in memory, and releases its lease exactly once, however it finishes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import pytest
from doubles.fake_engine import FakeEngine, extract
from stage import (
    PATIENCE_S,
    Adapters,
    Clock,
    Gate,
    MakeItem,
    Start,
    Tally,
    Until,
    ending_of,
    hold_lane,
    submit_waiting,
)

from gliner_bento.engine.base import Prepared, SlotState
from gliner_bento.errors import Aborted, AdapterInvalid, DeadlineExceeded, InternalError, NotReady, QueueFull
from gliner_bento.scheduler.scheduler import Scheduler
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

SLOTS = SlotState(slots=4)


def with_adapter(adapter_id: str | None, text: str) -> Item:
    return Item(text, {"person": "person"}, adapter_id=adapter_id)


def batches_of(engine: FakeEngine) -> list[list[str]]:
    return [[item.text for item in batch] for batch in engine.batches]


# Waiting for an adapter


def test_adapter_that_is_not_in_memory_keeps_only_its_own_items_waiting(start: Start, item: MakeItem) -> None:
    adapters = Adapters("loaded")
    engine = FakeEngine(lease=adapters, slot_state=SLOTS)
    scheduler = start(engine)
    late = [scheduler.submit(with_adapter("late", text), request_id=text) for text in ("Ada", "Charles")]
    others = [with_adapter("loaded", "Marie"), item("Pierre"), with_adapter("loaded", "Irène")]
    answers = [ending_of(scheduler.submit(other, request_id="r")) for other in others]
    assert answers == [extract(other) for other in others]
    assert not any(future.done() for future in late)
    assert (scheduler.stats.preparing_items, scheduler.stats.waiting_items) == (2, 0)
    adapters.load("late")
    assert [ending_of(future) for future in late] == [extract(item(text)) for text in ("Ada", "Charles")]
    assert batches_of(engine)[:3] == [["Marie"], ["Pierre"], ["Irène"]]
    assert adapters.releases == [1] * 4


def test_item_whose_adapter_loads_late_keeps_its_place(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    adapters = Adapters()
    scheduler = start(FakeEngine(on_forward=gate, lease=adapters, slot_state=SLOTS))
    hold_lane(scheduler, gate, item)
    scheduler.submit(with_adapter("late", "first"), request_id="r")
    submit_waiting(scheduler, until, [item("second")])
    adapters.load("late")
    submit_waiting(scheduler, until, [item("third")])
    gate.let_through()
    assert gate.arrival() == ["first", "second", "third"]


def test_item_counts_towards_the_capacity_while_its_adapter_loads(start: Start, item: MakeItem) -> None:
    adapters = Adapters()
    scheduler = start(FakeEngine(lease=adapters, slot_state=SLOTS), queue_capacity=1)
    late = scheduler.submit(with_adapter("late", "Ada"), request_id="r")
    assert isinstance(scheduler.submit(item("Charles"), request_id="r").exception(0), QueueFull)
    adapters.load("late")
    assert isinstance(ending_of(late), Extraction)
    assert isinstance(ending_of(scheduler.submit(item("Charles"), request_id="r")), Extraction)


def test_items_of_one_request_wait_each_for_its_own_adapter(start: Start, item: MakeItem) -> None:
    adapters = Adapters()
    engine = FakeEngine(lease=adapters, slot_state=SLOTS)
    scheduler = start(engine)
    first, second = scheduler.submit_many(
        [with_adapter("later", "Ada"), with_adapter("sooner", "Charles")], request_id="both"
    )
    adapters.load("sooner")
    assert ending_of(second) == extract(item("Charles"))
    assert not first.done()
    adapters.load("later")
    assert ending_of(first) == extract(item("Ada"))
    assert batches_of(engine) == [["Charles"], ["Ada"]]
    assert adapters.releases == [1, 1]


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("lanes", [1, 2])
def test_every_item_is_answered_where_many_adapters_share_one_slot(
    start: Start, item: MakeItem, tally: Tally, lanes: int, packs: bool
) -> None:
    names = [f"adapter {number}" for number in range(12)]
    adapters = Adapters(*names[:6])
    slot_state = SlotState(slots=1, resident=frozenset(names[:1]))
    scheduler = start(
        FakeEngine(lease=adapters, slot_state=slot_state, packs=packs), inference_lanes=lanes, tokenizer_threads=2
    )
    items = [with_adapter(name, f"Ada {number}") for number in range(3) for name in [*names, None]]
    futures = scheduler.submit_many(items, request_id="r")
    for name in names[6:]:
        adapters.load(name)
    assert [ending_of(future) for future in futures] == [extract(one) for one in items]
    assert tally["splits"] == 0  # no batch had two adapters, or one that was not in memory
    assert adapters.releases == [1] * 36


def test_blank_item_waits_for_no_adapter(start: Start) -> None:
    adapters = Adapters()
    scheduler = start(FakeEngine(lease=adapters, slot_state=SLOTS))
    assert ending_of(scheduler.submit(with_adapter("late", " \n"), request_id="r")) == Extraction(())
    assert adapters.releases == [1]


# Adapters that never load


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    "error", [AdapterInvalid("layer 7 is not in the model"), ValueError("/secret/path"), SystemExit(), None]
)
def test_adapter_that_cannot_be_loaded_fails_its_own_items(
    start: Start,
    item: MakeItem,
    tally: Tally,
    caplog: pytest.LogCaptureFixture,
    error: BaseException | None,
    early: bool,
) -> None:
    adapters = Adapters("loaded")
    engine = FakeEngine(lease=adapters, slot_state=SLOTS)
    scheduler = start(engine)
    if early:
        adapters.fail("broken", error)
    items = [with_adapter("broken", "a"), with_adapter("loaded", "b"), item("c"), with_adapter("broken", "d")]
    first, *others, last = scheduler.submit_many(items, request_id="mine")
    assert [ending_of(future) for future in others] == [extract(one) for one in items[1:3]]
    if not early:
        assert not first.done()
        assert not last.done()
        adapters.fail("broken", error)
    endings = [ending_of(first), ending_of(last)]
    if isinstance(error, AdapterInvalid):
        assert endings == [error, error]
        assert not caplog.records
    else:
        assert [type(ending) for ending in endings] == [InternalError] * 2
        assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
        assert all("mine" in record.getMessage() and record.exc_info for record in caplog.records)
    assert not any("a" in texts or "d" in texts for texts in batches_of(engine))
    assert adapters.releases == [1] * 3
    assert (tally["completed"], tally["failed"], tally["splits"]) == (2, 2, 0)


@pytest.mark.parametrize("never", ["fails", "is aborted", "is cancelled"])
def test_batch_is_not_held_for_an_item_whose_adapter_never_loads(start: Start, until: Until, never: str) -> None:
    looked = threading.Event()

    class Observed(FakeEngine):
        def slot_state(self) -> SlotState:
            looked.set()  # under the scheduler's lock: nothing ends before the lane waits
            return super().slot_state()

    adapters = Adapters()
    engine = Observed(lease=adapters, slot_state=SLOTS)
    scheduler = start(engine, batch_wait_timeout_ms=1e7)
    until(lambda: scheduler.stats.lanes_free == 1)
    late = scheduler.submit(with_adapter("late", "b"), request_id="late")
    waiting = scheduler.submit(with_adapter(None, "a"), request_id="waiting")
    assert looked.wait(PATIENCE_S)
    assert not waiting.done()
    if never == "fails":
        adapters.fail("late", AdapterInvalid("broken"))
    elif never == "is aborted":
        scheduler.abort("late")
    else:
        late.cancel()
    assert isinstance(ending_of(waiting), Extraction)
    assert batches_of(engine) == [["a"]]


# Every lease is released once

DEADLINE_S = 1000.0  # so long that the scheduler's own thread does not look meanwhile
PLACES = ["preparing", "loading", "waiting", "ahead", "running", "decoding"]


class Halfway:
    """A scheduler with an item that has reached `place` and is held there until `release`."""

    def __init__(self, place: str, start: Start, gate: Gate, clock: Clock, item: MakeItem, until: Until) -> None:
        self.unlocked: list[bool] = []
        self.adapters = Adapters(on_release=lambda: self.unlocked.append(lock_is_free(self.scheduler)))
        self.engine = FakeEngine(
            lease=self.adapters,
            slot_state=SLOTS,
            on_prepare=lambda item: gate.hold([item]) if place == "preparing" else None,
            on_forward=gate if place in {"waiting", "ahead", "running"} else lambda batch: None,
            on_decode=lambda items: gate.hold(items) if place == "decoding" else None,
        )
        self._gate = gate
        self._loaded = place not in {"preparing", "loading"}
        if self._loaded:
            self.adapters.load("adapter")
        self.scheduler = start(self.engine, max_batch_size=1 if place == "ahead" else 8, decoding_threads=0)
        if place in {"waiting", "ahead"}:
            hold_lane(self.scheduler, gate, item)
        deadline_s = clock() + DEADLINE_S
        self.future = self.scheduler.submit(with_adapter("adapter", "Ada"), request_id="mine", deadline=deadline_s)
        self.seen: list[list[int]] = []
        self.future.add_done_callback(lambda _: self.seen.append(self.adapters.releases))
        if place in {"preparing", "running", "decoding"}:
            assert gate.arrival() == ["Ada"]
        elif place == "loading":  # it is loading when one that is prepared after it has been answered
            assert isinstance(ending_of(self.scheduler.submit(item("after"), request_id="after")), Extraction)
        else:
            stats = {"waiting": (1, 1), "ahead": (0, 2)}[place]
            until(lambda: (self.scheduler.stats.waiting_items, self.scheduler.stats.running_items) == stats)

    def release(self) -> None:
        """Return when no thread can touch the item any more."""
        if not self._loaded:
            self.adapters.load("adapter")
        self._gate.open()
        assert self.scheduler.drain(PATIENCE_S)
        self.scheduler._pool.shutdown(wait=True)
        self.scheduler.close(PATIENCE_S)


def lock_is_free(scheduler: Scheduler) -> bool:
    if free := scheduler._lock.acquire(timeout=PATIENCE_S):
        scheduler._lock.release()
    return free


@pytest.fixture(params=PLACES)
def halfway(
    request: pytest.FixtureRequest, start: Start, gate: Gate, clock: Clock, item: MakeItem, until: Until
) -> Halfway:
    return Halfway(request.param, start, gate, clock, item, until)


def test_lease_of_an_answered_item_is_released_before_the_answer_is_seen(halfway: Halfway) -> None:
    assert 1 not in halfway.adapters.releases
    halfway.release()
    assert halfway.future.result(0) == extract(with_adapter("adapter", "Ada"))
    assert halfway.seen == [[1]]
    assert halfway.adapters.releases == [1]
    assert halfway.unlocked == [True]


def expire(halfway: Halfway, clock: Clock) -> None:
    clock.now_s += DEADLINE_S
    halfway.scheduler._items.expire()


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda halfway, _: halfway.scheduler.abort("mine"), Aborted),
        (expire, DeadlineExceeded),
        (lambda halfway, _: halfway.future.cancel(), None),
        (lambda halfway, _: halfway.scheduler.close(timeout=0), NotReady),
    ],
    ids=["aborted", "expired", "cancelled", "closed"],
)
def test_lease_of_an_item_that_finishes_early_is_released_immediately_and_once(
    halfway: Halfway,
    clock: Clock,
    request: pytest.FixtureRequest,
    end: Callable[[Halfway, Clock], object],
    error: type[Exception] | None,
) -> None:
    end(halfway, clock)
    assert halfway.future.cancelled() if error is None else type(halfway.future.exception(0)) is error
    place = request.node.callspec.params["halfway"]
    assert halfway.seen == [[] if place == "preparing" else [1]]
    halfway.release()
    assert halfway.adapters.releases == [1]
    assert halfway.unlocked == [True]
    assert (["Ada"] in batches_of(halfway.engine)) == (place in {"running", "decoding"})


@pytest.mark.parametrize("decoding_threads", [0, 1])
@pytest.mark.parametrize("stage", ["collate", "forward", "decode"])
def test_leases_of_a_batch_that_fails_are_released_once(
    start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally, stage: str, decoding_threads: int
) -> None:
    def error(item: Item) -> Exception | None:
        return ValueError(stage) if item.text == "c" else None

    adapters = Adapters("x", "y")
    engine = FakeEngine(on_forward=gate, lease=adapters, slot_state=SLOTS, **{f"{stage}_error": error})
    scheduler = start(engine, decoding_threads=decoding_threads)
    hold_lane(scheduler, gate, item)
    items = [with_adapter(adapter_id, text) for adapter_id, text in zip("xyyx", "abcd", strict=True)]
    futures = submit_waiting(scheduler, until, items)
    gate.open()
    endings = [ending_of(future) for future in futures]
    assert [isinstance(ending, InternalError) for ending in endings] == [False, False, True, False]
    assert tally["splits"] == 2
    assert adapters.releases == [1] * 4


def test_drain_waits_for_items_whose_adapters_are_loading(start: Start) -> None:
    adapters = Adapters()
    scheduler = start(FakeEngine(lease=adapters, slot_state=SLOTS))
    late = scheduler.submit(with_adapter("late", "Ada"), request_id="r")
    assert not scheduler.drain(timeout=0)
    assert isinstance(scheduler.submit(with_adapter("late", "Charles"), request_id="r").exception(0), NotReady)
    adapters.load("late")
    assert scheduler.drain(PATIENCE_S)
    assert isinstance(late.result(0), Extraction)
    assert adapters.releases == [1]


def test_abort_fails_all_items_of_a_request_in_different_states(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    adapters = Adapters("loaded")
    engine = FakeEngine(on_forward=gate, lease=adapters, slot_state=SLOTS)
    scheduler = start(engine)
    hold_lane(scheduler, gate, item)
    futures = scheduler.submit_many(
        [with_adapter("late", "a"), with_adapter("loaded", "b"), item("c")], request_id="mine"
    )
    until(lambda: scheduler.stats.waiting_items == 2)
    assert scheduler.abort("mine")
    assert [type(future.exception(0)) for future in futures] == [Aborted] * 3
    assert adapters.releases == [1, 1]
    adapters.load("late")
    gate.open()
    assert scheduler.drain(PATIENCE_S)
    assert batches_of(engine) == [["holds the lane"]]
    assert adapters.releases == [1, 1]


def test_lane_that_dies_releases_its_leases_and_the_last_one_all(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    class Fatal(BaseException):
        """An error that kills the thread."""

    def gate_then_die(batch: Sequence[Prepared]) -> None:
        gate(batch)
        raise Fatal

    adapters = Adapters("loaded")
    scheduler = start(FakeEngine(on_forward=gate_then_die, lease=adapters, slot_state=SLOTS))
    running = scheduler.submit(with_adapter("loaded", "runs"), request_id="r")
    assert gate.arrival() == ["runs"]
    late = scheduler.submit(with_adapter("late", "loads"), request_id="r")
    (waiting,) = submit_waiting(scheduler, until, [with_adapter("loaded", "waits")])
    gate.open()
    assert [type(ending_of(future)) for future in (running, late, waiting)] == [InternalError, NotReady, NotReady]
    assert adapters.releases == [1] * 3
    adapters.load("late")
    assert scheduler.drain(PATIENCE_S)
    assert adapters.releases == [1] * 3


def test_refused_item_asks_for_no_adapter(start: Start) -> None:
    adapters = Adapters("loaded")
    scheduler = start(FakeEngine(lease=adapters, slot_state=SLOTS))
    scheduler.drain()
    assert isinstance(scheduler.submit(with_adapter("loaded", "Ada"), request_id="r").exception(0), NotReady)
    assert adapters.leases == []


def test_release_that_raises_is_logged_and_the_item_answered(
    start: Start, gate: Gate, item: MakeItem, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("the device is broken")

    adapters = Adapters("loaded", on_release=fail)
    scheduler = start(FakeEngine(on_forward=gate, lease=adapters, slot_state=SLOTS))
    hold_lane(scheduler, gate, item)
    futures = submit_waiting(scheduler, until, [with_adapter("loaded", text) for text in "ab"])
    with caplog.at_level(logging.ERROR, "gliner_bento.scheduler"):
        gate.open()
        assert [ending_of(future) for future in futures] == [extract(item(text)) for text in "ab"]
    assert scheduler.drain(PATIENCE_S)
    assert adapters.releases == [1, 1]
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
