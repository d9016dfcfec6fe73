from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from doubles.fake_engine import FakeEngine
from stage import PATIENCE_S, Gate, MakeItem, Start, ending_of

from gliner_bento.engine.base import Prepared
from gliner_bento.fairness.pool import FairPool
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.tasks.extraction import Extraction

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
