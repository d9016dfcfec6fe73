from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import pytest
from doubles.fake_engine import FakeEngine
from stage import PATIENCE_S, Gate, MakeItem, Start, Until, ending_of, hold_lane

from gliner_bento.engine.base import Prepared
from gliner_bento.fairness.pool import FairPool
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.scheduler.scheduler import Scheduler
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

A, B = TenantShare("a"), TenantShare("b")


@pytest.fixture
def pool() -> Iterator[FairPool]:
    pool = FairPool(1, "work")
    yield pool
    pool.shutdown()


@pytest.fixture
def ended(pool: FairPool) -> Iterator[threading.Event]:
    """The only thread of `pool` is busy until this is set."""
    begun, ended = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        ended.wait(PATIENCE_S)

    pool.submit(TenantShare("first"), hold)
    assert begun.wait(PATIENCE_S)
    yield ended
    ended.set()


def test_tenants_take_turns_and_the_work_of_one_is_in_order(pool: FairPool, ended: threading.Event) -> None:
    done = threading.Event()
    ran: list[str] = []
    for number in range(5):
        pool.submit(A, partial(ran.append, f"a{number}"))
    assert pool.others_wait("b")
    assert not pool.others_wait("a")
    for number in range(2):
        pool.submit(B, partial(ran.append, f"b{number}"))
    assert pool.others_wait("a")
    pool.submit(A, done.set)
    ended.set()
    assert done.wait(PATIENCE_S)
    assert ran == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]
    assert not pool.others_wait("c")


def test_work_takes_the_next_work_only_if_it_is_its_tenants_and_of_the_same_kind(
    pool: FairPool, ended: threading.Event
) -> None:
    ran: list[int] = []
    assert pool.take("a", ran.append) == ()
    for number in range(3):
        pool.submit(A, ran.append, number)
    assert pool.take("b", ran.append) == ()
    assert pool.take("a", ended.set) == ()
    assert pool.take("a", ran.append) == (0,)
    pool.submit(B, ran.append, 10)
    assert pool.take("a", ran.append) == ()  # another tenant is next
    assert pool.take("b", ran.append) == (10,)
    done = threading.Event()
    pool.submit(A, done.set)
    ended.set()
    assert done.wait(PATIENCE_S)
    assert ran == [1, 2]


def test_work_that_has_not_begun_is_dropped_at_the_end(pool: FairPool, ended: threading.Event) -> None:
    dropped = threading.Event()
    pool.submit(A, dropped.set)
    pool.shutdown()
    ended.set()
    pool.shutdown(wait=True)
    assert not dropped.is_set()
    with pytest.raises(RuntimeError):
        pool.submit(A, dropped.set)


def test_work_that_raises_is_logged_and_the_thread_goes_on(
    pool: FairPool, ended: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()
    pool.submit(A, partial(int, "no number"))
    pool.submit(A, done.set)
    ended.set()
    assert done.wait(PATIENCE_S)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "invalid literal for int() with base 10: 'no number'"
    ]


def test_large_request_of_one_tenant_does_not_hold_the_preparation_of_another(
    start: Start, gate: Gate, item: MakeItem
) -> None:
    engine = FakeEngine(on_prepare=lambda item: gate([Prepared(item, 1, 1)]))
    scheduler = start(engine, tokenizer_threads=1)
    flood = [item(f"Ada {number}") for number in range(40)]
    large = scheduler.submit_many(flood, request_id="large", share=TenantShare("a"))
    assert gate.arrival() == ["Ada 0"]
    short = scheduler.submit(item("Charles"), request_id="short", share=TenantShare("b"))
    gate.let_through(3)
    assert isinstance(ending_of(short), Extraction)
    assert len(engine.prepared) <= 4
    gate.open()
    assert all(isinstance(ending_of(future), Extraction) for future in large)
    assert sorted(one.text for one in engine.prepared) == sorted([one.text for one in flood] + ["Charles"])


LONG = [f"Ada{number} " * 200 for number in range(4)]  # too long for the express lane
Busy = tuple[Scheduler, Future[Extraction]]


@pytest.fixture
def busy(start: Start, gate: Gate, express: Gate, item: MakeItem) -> Busy:
    """A scheduler and what holds its only lane at `gate`. Its preparations stop at `express`."""

    def on_prepare(one: Item) -> None:
        if one.text != "holds the lane":
            express([Prepared(one, 1, 1)])

    scheduler = start(FakeEngine(on_prepare=on_prepare, on_forward=gate), inference_lanes=1, tokenizer_threads=1)
    return scheduler, hold_lane(scheduler, gate, item)


def test_texts_that_wait_for_a_busy_lane_are_put_into_the_queue_together(
    busy: Busy, gate: Gate, express: Gate, item: MakeItem, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, held = busy
    futures = [scheduler.submit(item(text), request_id=text) for text in LONG]
    assert express.arrival() == LONG[:1]
    waiting: list[int] = []
    monkeypatch.setattr(scheduler._queue, "wake", lambda: waiting.append(scheduler._queue.waiting_entries))
    express.open()
    until(lambda: bool(waiting))
    assert waiting == [4]
    gate.open()
    assert all(isinstance(ending_of(future), Extraction) for future in (held, *futures))


def test_texts_measured_for_a_busy_lane_are_put_once_it_is_free(
    busy: Busy, gate: Gate, express: Gate, item: MakeItem, until: Until
) -> None:
    """Those of a taken burst that are measured already do not wait for the rest of it."""
    scheduler, held = busy
    first, *rest = LONG
    futures = [scheduler.submit(item(first), request_id="first")]
    futures += scheduler.submit_many([item(text) for text in rest], request_id="rest")
    assert express.arrival() == [first]
    express.let_through()
    assert express.arrival() == rest[:1]  # of the taken burst
    gate.let_through()
    assert isinstance(ending_of(held), Extraction)
    until(scheduler._queue.awaited)
    express.let_through()
    assert express.arrival() == rest[1:2]
    assert gate.arrival() == [first, *rest[:1]]
    express.open()
    gate.open()
    assert all(isinstance(ending_of(future), Extraction) for future in futures)
