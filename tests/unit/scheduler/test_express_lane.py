"""The express lane: short requests run beside lanes that are all busy, and get no more than their share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from collator import express_rests
from doubles.fake_engine import FakeEngine, extract
from stage import (
    PATIENCE_S,
    Adapters,
    Clock,
    Gate,
    ListSink,
    MakeItem,
    Start,
    Tally,
    Until,
    ending_of,
    settle,
    submit_waiting,
)

from gliner_bento.engine.base import Prepared, SlotState
from gliner_bento.errors import Aborted, DeadlineExceeded, GLiNERBentoError, InternalError, NotReady
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.scheduler.scheduler import Scheduler
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

A, B = TenantShare("a"), TenantShare("b")
MEDIUM = "flood " + "x" * 1000
"""More than 4 charged items."""
TWO_LANES = {"inference_lanes": 2, "max_batch_size": 2}


def by_lane(lanes: Callable[[Sequence[Prepared]], None], express: Callable[[Sequence[Prepared]], None]):
    """Calls `express` in the express lane's thread, `lanes` in the others."""

    def on_forward(batch: Sequence[Prepared]) -> None:
        (express if in_express_lane() else lanes)(batch)

    return on_forward


def in_express_lane() -> bool:
    return threading.current_thread().name == "express"


def nothing(batch: Sequence[Prepared]) -> None:
    """Runs without a pause."""


def fill_lanes(
    scheduler: Scheduler, gate: Gate, item: MakeItem, until: Until, lanes: int = 2, **options: object
) -> None:
    """Return when every lane stands at the gate with a text of medium size."""
    for _ in range(lanes):
        scheduler.submit(item(MEDIUM), request_id="flood", **options)  # type: ignore[arg-type]
        gate.arrival()
    until(lambda: scheduler.stats.lanes_free == 0)


def fill_all(scheduler: Scheduler, gate: Gate, express: Gate, item: MakeItem, until: Until, lanes: int = 1) -> None:
    """As `fill_lanes`, with texts of `A`; and then the express lane stands at its gate with one of `B`."""
    fill_lanes(scheduler, gate, item, until, lanes, share=A)
    scheduler.submit(item("first"), request_id="first", share=B)
    assert express.arrival() == ["first"]


@pytest.mark.parametrize("share", [A, B], ids=["of the same tenant", "of another tenant"])
@pytest.mark.parametrize("flood", ["medium", "large"])
def test_a_short_text_runs_while_all_lanes_are_busy(
    start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally, share: TenantShare, flood: str
) -> None:
    engine = FakeEngine(on_forward=by_lane(gate, nothing), packs=True)
    scheduler = start(engine, torch_threads=2, **TWO_LANES)
    until(lambda: scheduler.stats.lanes_free == 2)
    if flood == "medium":
        fill_lanes(scheduler, gate, item, until, share=A)
    else:
        scheduler.submit_many([item("flood")] * 40, request_id="large", share=A)
        assert {*gate.arrival(), *gate.arrival()} == {"flood"}
    for _ in range(3):
        assert ending_of(scheduler.submit(item("Ada"), request_id="ada", share=share)) == extract(item("Ada"))
    assert engine.lanes["express"] == 1, "one thread: all cores compute for lanes"
    assert tally["express"] == 3
    assert gate.nothing_came


def flood_batches(scheduler: Scheduler, gate: Gate, item: MakeItem, until: Until, texts: int = 1) -> list[int]:
    """How many items of a flood of A, which cost a tenth of a batch, are in each of the next three batches."""
    for number in range(0, 80, texts):
        flood = [item(f"{MEDIUM} {number + text}") for text in range(texts)]
        scheduler.submit_many(flood, request_id=f"flood {number}", share=A)
    settle(scheduler, until)
    sizes = []
    for _ in range(3):
        gate.let_through()
        sizes.append(len(gate.arrival()))
    return sizes


@pytest.mark.parametrize("share", [A, B], ids=["of the same tenant", "of another tenant"])
@pytest.mark.parametrize("texts", [1, 40], ids=["medium", "large"])
def test_lanes_batches_are_as_large_beside_what_it_runs(
    start: Start, gate: Gate, item: MakeItem, until: Until, clock: Clock, tally: Tally, share: TenantShare, texts: int
) -> None:
    engine = FakeEngine(
        on_forward=by_lane(gate, nothing), packs=True, cost=lambda one: 100 if one.text.startswith(MEDIUM) else 10
    )
    scheduler = start(engine, inference_lanes=1, max_batch_size=32)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    clock.now_s += 10  # what the lane runs was sent long ago
    for _ in range(3):
        assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="ada", share=share)), Extraction)
    assert tally["express"] == 3
    assert flood_batches(scheduler, gate, item, until, texts) == [10, 10, 10]


@pytest.mark.parametrize("text", ["costly", "z not on the device"])
def test_lanes_batches_are_small_beside_short_texts_that_it_cannot_run(
    start: Start, gate: Gate, item: MakeItem, until: Until, text: str, tally: Tally
) -> None:
    engine = FakeEngine(
        on_forward=by_lane(gate, nothing),
        packs=True,
        cost=lambda one: 251 if one.text == "costly" else 100,
        lease=lease_by_first_letter,
        slot_state=SlotState(slots=1),  # type: ignore[arg-type]
    )
    scheduler = start(engine, inference_lanes=1, max_batch_size=32)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    submit_waiting(scheduler, until, [item(text)], share=B)
    gate.let_through()
    assert gate.arrival() == [text]
    assert flood_batches(scheduler, gate, item, until) == [2, 2, 2]
    assert tally["express"] == 0


def test_it_runs_nothing_while_a_lane_is_idle(start: Start, item: MakeItem, until: Until, tally: Tally) -> None:
    engine = FakeEngine()
    scheduler = start(engine, inference_lanes=2)
    for _ in range(5):
        until(lambda: scheduler.stats.lanes_free == 2)
        assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="ada")), Extraction)
    assert tally["express"] == 0


def test_it_runs_one_batch_at_a_time(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until, tally: Tally
) -> None:
    engine = FakeEngine(on_forward=by_lane(gate, express), packs=True)  # 3 tokens per item
    scheduler = start(engine, inference_lanes=2, max_batch_size=8, max_batch_tokens=40)
    fill_all(scheduler, gate, express, item, until, lanes=2)
    submit_waiting(scheduler, until, [item(f"Ada {number}") for number in range(4)], share=B)
    express.let_through()
    assert express.arrival() == [f"Ada {number}" for number in range(3)]
    assert express.nothing_came
    express.let_through()
    assert express.arrival() == ["Ada 3"]
    assert tally["express"] == 3


def test_what_waits_while_it_runs_a_batch_is_not_collated_for_a_lane(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until
) -> None:
    """With the texts of many tenants it would be in a full batch, and wait for a lane."""
    engine = FakeEngine(on_forward=by_lane(gate, express), packs=True)
    scheduler = start(engine, inference_lanes=1, max_batch_size=8)
    fill_all(scheduler, gate, express, item, until)
    submit_waiting(scheduler, until, [item("Ada")], share=B)
    for number in range(8):
        submit_waiting(scheduler, until, [item(f"flood {number}")], share=TenantShare(f"tenant {number}"))
    settle(scheduler, until)
    express.let_through()
    assert "Ada" in express.arrival()


@pytest.mark.parametrize("expires", [False, True], ids=["aborted", "expired"])
def test_when_the_text_that_waits_for_it_ends_others_are_collated_for_a_lane(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until, clock: Clock, expires: bool
) -> None:
    collated: list[int] = []
    engine = FakeEngine(
        on_forward=by_lane(gate, express), on_collate=lambda batch: collated.append(len(batch)), packs=True
    )
    scheduler = start(engine, inference_lanes=1, max_batch_size=8)
    fill_all(scheduler, gate, express, item, until)
    submit_waiting(scheduler, until, [item("Ada")], share=B, deadline=clock.now_s + 1)
    for number in range(8):
        submit_waiting(scheduler, until, [item(f"{MEDIUM} {number}")], share=A)
    settle(scheduler, until)
    assert collated == [1, 1]
    if expires:
        clock.now_s += 2
        scheduler._items.expire()
    else:
        assert scheduler.abort("Ada")
    until(lambda: collated == [1, 1, 8])


def test_its_batches_have_a_quarter_of_the_budget(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(
        on_forward=by_lane(gate, express), packs=True, cost=lambda one: 251 if one.text == "costly" else 100
    )
    scheduler = start(engine, inference_lanes=1, max_batch_size=8, max_batch_tokens=1000)
    fill_all(scheduler, gate, express, item, until)
    submit_waiting(scheduler, until, [item(text) for text in ("Ada", "Charles", "Marie", "costly", "late")], share=B)
    for expected in (["Ada", "Charles"], ["Marie", "late"]):
        express.let_through()
        assert express.arrival() == expected
    express.let_through()
    settle(scheduler, until)
    assert express.nothing_came, "what costs more waits for a lane"
    gate.let_through()
    assert gate.arrival() == ["costly"]


def test_a_short_text_does_not_wait_for_longer_ones_of_its_tenant_that_were_bypassed(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    """A text that did not fit into a batch is next of its tenant: a short one that comes then has no head start left.
    Without the express lane it would join that text's batch."""
    costs = {"first": 600, "bypassed": 450}
    engine = FakeEngine(
        on_forward=by_lane(gate, nothing), packs=True, cost=lambda one: costs.get(one.text.split()[0], 50)
    )
    scheduler = start(engine, inference_lanes=1, max_batch_size=8, max_batch_tokens=1000)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    longer = [
        f"{name} {'x' * chars}" for name, chars in (("first", 1100), ("bypassed", 1100), ("y", 7900), ("z", 7900))
    ]
    submit_waiting(scheduler, until, [item(text) for text in longer], share=A)
    gate.let_through()
    assert gate.arrival() == [longer[0], *longer[2:]]
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="ada", share=A)), Extraction)
    gate.let_through()
    assert gate.arrival() == longer[1:2]


def test_its_batches_shrink_with_the_memory(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=by_lane(gate, express), packs=True, cost=lambda one: 100)
    scheduler = start(engine, inference_lanes=1, max_batch_size=8, max_batch_tokens=1000)
    fill_all(scheduler, gate, express, item, until)
    engine.batch_tokens = 400
    submit_waiting(scheduler, until, [item("Ada"), item("Charles")], share=B)
    express.let_through()
    assert express.arrival() == ["Ada"]


@pytest.mark.parametrize(
    ("text", "options"), [(MEDIUM, {}), ("low", {"priority": 1})], ids=["medium", "of low priority"]
)
def test_other_requests_wait_for_a_lane(
    start: Start, gate: Gate, item: MakeItem, until: Until, text: str, options: dict[str, int], tally: Tally
) -> None:
    scheduler = start(FakeEngine(on_forward=by_lane(gate, nothing), packs=True), **TWO_LANES)
    fill_lanes(scheduler, gate, item, until, share=A)
    submit_waiting(scheduler, until, [item(text)], share=B, **options)
    assert tally["express"] == 0
    gate.let_through()
    assert gate.arrival() == [text]


def test_a_flood_of_short_texts_that_fills_the_lanes_stays_there(
    start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally
) -> None:
    """A lane's batch is larger, so it takes less time per text. Another tenant's short text does not wait."""
    scheduler = start(FakeEngine(on_forward=by_lane(gate, nothing), packs=True), **TWO_LANES)
    for number in range(20):
        scheduler.submit(item(f"flood {number}"), request_id=str(number), share=A)
    gate.arrival(), gate.arrival()
    settle(scheduler, until)
    assert tally["express"] == 0
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="ada", share=B)), Extraction)
    assert tally["express"] == 1


def test_a_flood_of_short_texts_gets_no_more_than_its_share(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    """A's texts of medium size run in the lane one by one, B's short ones in the express lane as fast as it can."""
    tokens = {"a": 0, "b": 0}

    def count(batch: Sequence[Prepared]) -> None:
        for prepared in batch:
            tokens["a" if prepared.item.text == MEDIUM else "b"] += prepared.cost

    def lane(batch: Sequence[Prepared]) -> None:
        count(batch)
        gate(batch)

    engine = FakeEngine(on_forward=by_lane(lane, count), packs=True, cost=lambda one: 100 if one.text == MEDIUM else 10)
    scheduler = start(engine, inference_lanes=1, max_batch_size=4, max_batch_tokens=100, queue_capacity=2000)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    for number in range(40):
        scheduler.submit(item(MEDIUM), request_id=f"a {number}", share=A)
        scheduler.submit_many([item("Ada")] * 4, request_id=f"b {number}", share=B)
        scheduler.submit_many([item("Ada")] * 4, request_id=f"c {number}", share=B)
        scheduler.submit_many([item("Ada")] * 4, request_id=f"d {number}", share=B)
    until(lambda: not scheduler.stats.preparing_items)
    for _ in range(20):
        until(lambda: express_rests(scheduler))
        gate.let_through()
        gate.arrival()
    until(lambda: express_rests(scheduler))
    assert tokens["a"] > 1000
    assert abs(tokens["b"] - tokens["a"]) <= 200, "two batches"


def test_a_tenant_is_charged_for_what_runs_there(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    engine = FakeEngine(on_forward=by_lane(gate, nothing), packs=True, cost=lambda one: 20)
    scheduler = start(engine, inference_lanes=1, max_batch_size=8, max_batch_tokens=100)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    submit_waiting(scheduler, until, [item(MEDIUM)], share=A)
    for _ in range(3):
        assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="ada", share=B)), Extraction)
    submit_waiting(scheduler, until, [item("b " + MEDIUM)], share=B)
    gate.let_through()
    assert gate.arrival()[0] == MEDIUM, "B has been served more"


def test_a_short_text_waits_for_more_urgent_work(
    start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally
) -> None:
    operator = TenantShare("operator", crosses_tenants=True)
    scheduler = start(FakeEngine(on_forward=by_lane(gate, nothing), packs=True), inference_lanes=2)
    fill_lanes(scheduler, gate, item, until, share=A)
    submit_waiting(scheduler, until, [item(MEDIUM)], share=operator, priority=-1)
    submit_waiting(scheduler, until, [item("Ada")], share=B)
    assert tally["express"] == 0
    gate.let_through()
    assert gate.arrival() == [MEDIUM, "Ada"]


def test_a_short_text_waits_for_more_urgent_work_of_its_tenant(
    start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally
) -> None:
    scheduler = start(FakeEngine(on_forward=by_lane(gate, nothing), packs=True), inference_lanes=2)
    fill_lanes(scheduler, gate, item, until, share=A)
    submit_waiting(scheduler, until, [item(MEDIUM)], share=B, priority=-1)
    submit_waiting(scheduler, until, [item("Ada")], share=B)
    assert tally["express"] == 0
    gate.let_through()
    assert gate.arrival() == [MEDIUM, "Ada"]


def lease_by_first_letter(item: Item) -> object:
    return Adapters(item.text[0])(replace(item, adapter_id=item.text[0])) if item.text[0] in "xyz" else None


def test_it_uses_only_adapters_that_are_on_the_device(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until
) -> None:
    """Loading one would wait for the slots, or for the device."""
    slots = SlotState(slots=2, resident=frozenset("xy"), in_use=frozenset("y"))
    engine = FakeEngine(
        on_forward=by_lane(gate, express),
        packs=True,
        lease=lease_by_first_letter,
        slot_state=slots,  # type: ignore[arg-type]
    )
    scheduler = start(engine, inference_lanes=1, max_batch_size=8)
    fill_all(scheduler, gate, express, item, until)
    submit_waiting(scheduler, until, [item(text) for text in ("z not on it", "x free", "y in use", "base")], share=B)
    express.let_through()
    assert express.arrival() == ["x free", "y in use", "base"]


# How its batches end


def test_an_item_that_fails_there_fails_alone(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(
        on_forward=by_lane(gate, express),
        packs=True,
        forward_error=lambda one: ValueError("bad") if one.text == "bad" else None,
    )
    scheduler = start(engine, inference_lanes=1, max_batch_size=8)
    fill_all(scheduler, gate, express, item, until)
    futures = submit_waiting(scheduler, until, [item(text) for text in ("Ada", "bad", "Marie")], share=B)
    express.let_through(2)
    until(lambda: scheduler.stats.waiting_items == 0)
    gate.open()
    endings = [ending_of(future) for future in futures]
    assert [type(ending) for ending in endings] == [Extraction, InternalError, Extraction]
    assert scheduler.ready


@pytest.mark.parametrize("stage", ["collate", "forward", "decode"])
def test_a_batch_that_hangs_fails_all_items_and_readiness(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until, stage: str
) -> None:
    def hang(work: object) -> None:
        if in_express_lane():
            express.hold([])

    steps: dict[str, Callable[..., None]] = {"on_forward": by_lane(gate, nothing)}
    steps[f"on_{stage}"] = by_lane(gate, hang) if stage == "forward" else hang
    scheduler = start(FakeEngine(packs=True, **steps), hang_timeout_s=0.2, inference_lanes=1)
    until(lambda: scheduler.stats.lanes_free == 1)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    hung = scheduler.submit(item("Ada"), request_id="ada", share=B)
    express.arrival()
    gate.let_through()
    until(lambda: scheduler.stats.lanes_free == 1)  # only the express lane hangs
    reasons: list[str] = []
    ended = threading.Event()
    scheduler.watch_for_hangs(lambda reason: (reasons.append(reason), ended.set()))  # type: ignore[arg-type, func-returns-value]
    assert isinstance(ending_of(hung), InternalError)
    assert ended.wait(PATIENCE_S)
    assert reasons[0].startswith(f"{stage} of 1 items has not ended within 0.2 s")
    assert not scheduler.ready


def test_a_dead_express_lane_fails_its_batch_and_readiness_while_lanes_continue(
    start: Start, gate: Gate, item: MakeItem, until: Until
) -> None:
    class Fatal(BaseException):
        """An error that kills the thread."""

    def die(batch: Sequence[Prepared]) -> None:
        raise Fatal

    scheduler = start(FakeEngine(on_forward=by_lane(gate, die), packs=True), inference_lanes=1)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="ada", share=B)), InternalError)
    until(lambda: not scheduler.ready)
    (next_one,) = submit_waiting(scheduler, until, [item("Ada")], share=B)
    gate.open()
    assert isinstance(ending_of(next_one), Extraction)
    assert scheduler.drain(PATIENCE_S)


def test_one_that_cannot_start_ends_readiness(start: Start, item: MakeItem, until: Until) -> None:
    class NoStream(FakeEngine):
        def start_express_lane(self) -> None:
            raise RuntimeError("no stream left")

    scheduler = start(NoStream())
    assert isinstance(ending_of(scheduler.submit(item("Ada"), request_id="r")), Extraction)
    until(lambda: not scheduler.ready)


def test_an_aborted_item_does_not_run_there(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until
) -> None:
    engine = FakeEngine(on_forward=by_lane(gate, express), packs=True)
    scheduler = start(engine, inference_lanes=1, max_batch_size=8)
    fill_all(scheduler, gate, express, item, until)
    aborted, other = submit_waiting(scheduler, until, [item("aborted"), item("Ada")], share=B)
    assert scheduler.abort("aborted")
    express.let_through()
    assert express.arrival() == ["Ada"]
    express.let_through()
    assert isinstance(ending_of(aborted), Aborted)
    assert isinstance(ending_of(other), Extraction)


def test_an_expired_item_does_not_run_there(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until, clock: Clock
) -> None:
    engine = FakeEngine(on_forward=by_lane(gate, express), packs=True)
    scheduler = start(engine, inference_lanes=1, max_batch_size=8)
    fill_all(scheduler, gate, express, item, until)
    (late,) = submit_waiting(scheduler, until, [item("late")], share=B, deadline=clock.now_s + 1)
    (other,) = submit_waiting(scheduler, until, [item("Ada")], share=B)
    clock.now_s += 2
    express.let_through()
    assert express.arrival() == ["Ada"]
    express.let_through()
    assert isinstance(ending_of(late), DeadlineExceeded)
    assert isinstance(ending_of(other), Extraction)


def test_drain_waits_for_it_and_close_does_not(
    start: Start, gate: Gate, express: Gate, item: MakeItem, until: Until
) -> None:
    scheduler = start(FakeEngine(on_forward=by_lane(gate, express), packs=True), inference_lanes=1)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    running = scheduler.submit(item("Ada"), request_id="ada", share=B)
    express.arrival()
    gate.open()
    assert not scheduler.drain(timeout=0.01)
    scheduler.close(timeout=0)
    assert isinstance(ending_of(running), NotReady)
    express.open()
    for thread in scheduler._threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_short_stream_runs_there(start: Start, gate: Gate, item: MakeItem, until: Until, tally: Tally) -> None:
    scheduler = start(FakeEngine(on_forward=by_lane(gate, nothing), packs=True), inference_lanes=1)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    streamed = scheduler.submit_stream(item("Ada"), ListSink(), request_id="stream", share=B)
    assert ending_of(streamed) == extract(item("Ada"))
    assert tally["express"] == 1


def test_every_error_of_it_is_public(start: Start, gate: Gate, item: MakeItem, until: Until) -> None:
    engine = FakeEngine(on_forward=by_lane(gate, nothing), packs=True, decode_error=lambda one: ValueError("/secret"))
    scheduler = start(engine, inference_lanes=1)
    fill_lanes(scheduler, gate, item, until, lanes=1, share=A)
    ending = ending_of(scheduler.submit(item("Ada"), request_id="ada", share=B))
    assert isinstance(ending, GLiNERBentoError)
    assert "secret" not in str(ending)
