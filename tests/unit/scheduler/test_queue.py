from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from doubles.fake_engine import FakeChunkedRequest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from stage import Clock, Lease
from views import view

from gliner_bento.engine.base import Prepared, SlotState
from gliner_bento.errors import DeadlineExceeded, NotReady, QueueFull, TooLarge
from gliner_bento.fairness.constants import CHARS_PER_CHARGED_ITEM, HEAD_START_ITEMS
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.scheduler.batching import BatchLimits
from gliner_bento.scheduler.entry import Entry, State
from gliner_bento.scheduler.queue import Tally, WaitingQueue
from gliner_bento.scheduler.tenants import SHORT
from gliner_bento.tasks.extraction import ExtractionItem as Item

ITEM = Item("Ada Lovelace wrote a program.", {"person": "person"})
ONE = view(BatchLimits, max_batch_size=1, max_batch_tokens=100)
MANY = view(BatchLimits, max_batch_size=8, max_batch_tokens=1000)


@pytest.fixture
def queue(clock: Clock) -> WaitingQueue:
    queue = WaitingQueue(3, clock, packs=False)
    queue.open()
    return queue


def admit(queue: WaitingQueue, request_id: str, deadline_s: float | None = None, priority: int = 0) -> Entry:
    (entry,) = queue.admit([ITEM], request_id, deadline_s, priority)
    return entry


def take(queue: WaitingQueue, limits: BatchLimits) -> list[Entry]:
    return queue.take(queue.next_batch(limits))


def wait(queue: WaitingQueue, request_id: str = "r", *, tokens: int = 10, priority: int = 0) -> Entry:
    entry = admit(queue, request_id, priority=priority)
    queue.put(entry, Prepared(ITEM, tokens, words=5))
    return entry


def test_admits_nothing_before_it_is_opened_or_after_it_is_closed(clock: Clock) -> None:
    queue = WaitingQueue(3, clock, packs=False)
    with pytest.raises(NotReady, match="starting"):
        admit(queue, "r")
    queue.open()
    admit(queue, "r")
    queue.close("closed by the test")
    with pytest.raises(NotReady, match="closed by the test"):
        admit(queue, "r")
    assert len(queue.unfinished()) == 1


def test_capacity_counts_items_in_preparation_and_waiting_but_not_running_ones(queue: WaitingQueue) -> None:
    admit(queue, "preparing")
    wait(queue)
    wait(queue)
    with pytest.raises(QueueFull):
        admit(queue, "too many")
    take(queue, ONE)
    admit(queue, "fits again")
    assert (queue.preparing_items, queue.waiting_entries, queue.tally(State.RUNNING).items) == (2, 1, 1)


def test_finishing_an_item_frees_its_place(queue: WaitingQueue) -> None:
    entries = [wait(queue) for _ in range(3)]
    queue.finish(entries[1])
    wait(queue)
    with pytest.raises(QueueFull):
        wait(queue)


def test_item_whose_deadline_has_passed_is_not_admitted(queue: WaitingQueue, clock: Clock) -> None:
    with pytest.raises(DeadlineExceeded):
        admit(queue, "r", deadline_s=clock.now_s)
    assert queue.unfinished() == []


def test_order_is_of_admission_whatever_the_order_of_preparation(queue: WaitingQueue) -> None:
    first, second = admit(queue, "first"), admit(queue, "second")
    queue.put(second, Prepared(ITEM, 10, words=5))
    queue.put(first, Prepared(ITEM, 10, words=5))
    assert take(queue, ONE) == [first]


def test_lower_priority_number_is_served_first(queue: WaitingQueue) -> None:
    later, usual, urgent = (wait(queue, priority=priority) for priority in (5, 0, -1))
    assert [take(queue, ONE) for _ in range(3)] == [[urgent], [usual], [later]]


def test_bypasses_are_counted(queue: WaitingQueue) -> None:
    wait(queue, tokens=10)
    odd = wait(queue, tokens=90)
    wait(queue, tokens=10)
    assert len(take(queue, MANY)) == 2
    assert odd.bypassed == 1
    urgent = wait(queue, tokens=10, priority=-1)
    assert take(queue, MANY) == [urgent]
    assert odd.bypassed == 1


def test_next_batch_may_be_looked_at_before_it_is_taken(queue: WaitingQueue) -> None:
    entry = wait(queue)
    assert not queue.next_batch(MANY).full
    assert queue.next_batch(ONE).full
    assert queue.waiting_entries == 1
    assert take(queue, MANY) == [entry]
    assert (queue.waiting_entries, entry.bypassed) == (0, 0)


def test_many_are_admitted_together_or_not_at_all(queue: WaitingQueue) -> None:
    admit(queue, "alone")
    with pytest.raises(QueueFull):
        queue.admit([ITEM] * 3, "too many now")
    with pytest.raises(TooLarge):
        queue.admit([ITEM] * 4, "too many ever")
    assert queue.preparing_items == 1
    first, second = queue.admit([ITEM] * 2, "both")
    assert first.sequence < second.sequence
    assert queue.of_request("both") == [first, second]


def test_packed_batch_takes_the_next_items_whatever_their_cost(clock: Clock) -> None:
    queue = WaitingQueue(3, clock, packs=True)
    queue.open()
    entries = [wait(queue, tokens=tokens) for tokens in (10, 900, 10)]
    assert take(queue, MANY) == entries


@pytest.mark.parametrize("packs", [False, True])
def test_batch_is_chosen_by_adapters_too(clock: Clock, packs: bool) -> None:
    queue = WaitingQueue(3, clock, packs=packs)
    queue.open()
    base, first, second = admit(queue, "r"), admit(queue, "r"), admit(queue, "r")
    first.lease, second.lease = Lease("first"), Lease("second")
    for entry in (base, first, second):
        queue.put(entry, Prepared(ITEM, 10, words=5, adapter=entry.lease))
    assert queue.next_batch(MANY, SlotState(slots=1)).entries == [base, first]
    assert queue.next_batch(MANY, SlotState(slots=2), lanes=2).entries == [base, first]
    assert queue.next_batch(MANY, SlotState(slots=2)).entries == [base, first, second]


def test_item_that_finishes_during_preparation_never_waits(queue: WaitingQueue) -> None:
    entry = admit(queue, "r")
    assert queue.finish(entry) is State.PREPARING
    queue.put(entry, Prepared(ITEM, 10, words=5))
    assert queue.waiting_entries == 0
    assert queue.waiting_cost == 0


def test_request_is_all_its_unfinished_items(queue: WaitingQueue) -> None:
    first, other, second = wait(queue, "a"), wait(queue, "b"), wait(queue, "a")
    assert queue.of_request("a") == [first, second]
    queue.finish(first)
    assert queue.of_request("a") == [second]
    assert queue.unfinished() == [other, second]
    assert queue.of_request("unknown") == []


def test_deadline_expires_at_its_second_wherever_the_item_is(queue: WaitingQueue, clock: Clock) -> None:
    running = admit(queue, "r", deadline_s=105.0)
    queue.put(running, Prepared(ITEM, 10, words=5))
    take(queue, ONE)
    preparing = admit(queue, "r", deadline_s=103.0)
    admit(queue, "r", deadline_s=106.0)
    assert queue.next_deadline_s == 103.0
    clock.now_s = 102.9
    assert queue.expired() == []
    clock.now_s = 105.0
    assert queue.expired() == [preparing, running]
    queue.finish(preparing)
    assert queue.next_deadline_s == 105.0


@pytest.mark.parametrize("before", State)
def test_finishing_says_where_the_entry_was_and_nothing_comes_after(queue: WaitingQueue, before: State) -> None:
    entry = entry_in(queue, before)
    assert entry.state is before
    assert queue.finish(entry) is (None if before is State.FINISHED else before)
    assert (entry.state, entry.finished, queue.unfinished()) == (State.FINISHED, True, [])
    assert queue.finish(entry) is None
    queue.put(entry, Prepared(ITEM, 10, words=5))
    queue.wait_for_adapter(entry, Prepared(ITEM, 10, words=5))
    assert (entry.state, queue.tally(State.FINISHED)) == (State.FINISHED, Tally(items=1, short=1, cost=entry.cost))
    assert [queue.tally(state) for state in State if state is not State.FINISHED] == [Tally()] * (len(State) - 1)


@pytest.mark.parametrize("before", [State.WAITING, State.RUNNING, State.CHUNKED])
def test_entry_is_prepared_once(queue: WaitingQueue, before: State) -> None:
    entry = entry_in(queue, before)
    for again in (queue.put, queue.wait_for_adapter):
        with pytest.raises(RuntimeError, match=f"cannot go from {before.name}"):
            again(entry, Prepared(ITEM, 99, words=5))
    assert (entry.state, queue.tally(before)) == (before, Tally(items=1, short=1, cost=entry.cost))


def entry_in(queue: WaitingQueue, state: State) -> Entry:
    """A new entry, the only one of `queue`, in this state."""
    entry = admit(queue, "r")
    prepared = Prepared(ITEM, 10, words=5)
    if state is State.LOADING_ADAPTER:
        queue.wait_for_adapter(entry, prepared)
    elif state is State.CHUNKED:
        queue.put(entry, chunked())
    elif state is not State.PREPARING:
        queue.put(entry, prepared)
    if state is State.RUNNING:
        take(queue, ONE)
    elif state is State.FINISHED:
        queue.finish(entry)
    return entry


def chunked() -> Prepared:
    return Prepared(ITEM, 0, words=0, chunked=FakeChunkedRequest(ITEM, 2))


def test_pass_waits_behind_short_items_that_are_admitted_later(clock: Clock) -> None:
    queue = WaitingQueue(100, clock, packs=False)
    queue.open()
    parent = admit(queue, "r")
    queue.put(parent, chunked())
    passed = queue.put_pass(parent, Prepared(ITEM, 10, words=2))
    items = [wait(queue) for _ in range(3)]
    assert [take(queue, ONE)[0] for _ in range(4)] == [*items, passed]
    assert (queue.unfinished_items, queue.tally(State.RUNNING).passes) == (len(items) + 1, 1)


def test_a_large_request_shares_its_tenants_turns_with_short_ones(clock: Clock) -> None:
    """A short one waits for one item of the large request, which is not held up for ever."""
    queue = WaitingQueue(1000, clock, packs=False)
    queue.open()
    large = queue.admit([ITEM] * 40, "large")
    for entry in large:
        queue.put(entry, Prepared(ITEM, 10, words=5))
    batches = 0
    while large[-1] not in take(queue, ONE):
        batches += 1
        assert batches < 80
        if batches % 2:
            short = wait(queue, request_id=f"short {batches}")
            assert short in take(queue, ONE) + take(queue, ONE)


def test_a_short_request_goes_before_many_longer_ones_of_its_tenant(clock: Clock) -> None:
    queue = WaitingQueue(1000, clock, packs=False)
    queue.open()
    long = replace(ITEM, text="a" * (6 * CHARS_PER_CHARGED_ITEM))
    waits = []
    for number in range(300):
        while queue.waiting_entries < 64:
            (entry,) = queue.admit([long], f"long {queue._sequences}")
            queue.put(entry, Prepared(long, 10, words=5))
        if number % 20 == 19:
            short, taken = wait(queue, request_id=f"short {number}"), 0
            while short not in take(queue, ONE):
                taken += 1
            waits.append(taken)
        take(queue, ONE)
    assert max(waits) == 0, "of 64 that wait"


def test_a_longer_request_is_not_held_up_for_ever_by_short_ones_of_its_tenant(clock: Clock) -> None:
    queue = WaitingQueue(1000, clock, packs=False)
    queue.open()
    text = replace(ITEM, text="a" * (6 * CHARS_PER_CHARGED_ITEM))
    (longer,) = queue.admit([text], "longer")
    queue.put(longer, Prepared(text, 10, words=5))
    served = 0
    while longer.state is State.WAITING:
        while queue.waiting_entries < 5:
            wait(queue, request_id=f"short {queue._sequences}")
        take(queue, ONE)
        served += 1
    assert served <= 5 * (7 + HEAD_START_ITEMS + 1)


@pytest.mark.parametrize(("packs", "together"), [(True, 1), (False, 4)])
def test_a_packed_batch_has_few_longer_items_while_short_requests_arrive(
    clock: Clock, packs: bool, together: int
) -> None:
    queue = WaitingQueue(1000, clock, packs=packs)
    queue.open()
    text = replace(ITEM, text="a" * (6 * CHARS_PER_CHARGED_ITEM))
    for number in range(3):
        (longer,) = queue.admit([text], f"longer {number}")
        queue.put(longer, Prepared(text, 300, words=5))
    limits = replace(MANY, max_batch_tokens=2048)
    assert len(queue.next_batch(limits, quota=queue.batch_quota(512)).entries) == 3, "nobody else sends"
    short = wait(queue, tokens=300)
    batch = queue.next_batch(limits, quota=queue.batch_quota(512)).entries
    assert (batch[0], len(batch)) == (short, together)


SHARES = {
    "a": TenantShare("a"),
    "b": TenantShare("b", weight=3.0),
    "operator": TenantShare("operator", crosses_tenants=True),
}


@settings(max_examples=60, stateful_step_count=40)
class AnyHistory(RuleBasedStateMachine):
    """Whatever happens in whatever order, the tallies equal a recount and each entry is finished once."""

    CAPACITY = 6

    def __init__(self) -> None:
        super().__init__()
        self.queue = WaitingQueue(self.CAPACITY, lambda: 0.0, packs=False)
        self.queue.open()
        self.everything: list[Entry] = []

    def entries(self, *states: State) -> list[Entry]:
        return [entry for entry in self.everything if entry.state in states]

    def draw(self, data: st.DataObject, *states: State) -> Entry | None:
        entries = self.entries(*states)
        return data.draw(st.sampled_from(entries)) if entries else None

    @rule(
        request_id=st.sampled_from("ab"),
        priority=st.integers(-1, 1),
        deadline_s=st.none() | st.integers(1, 3),
        count=st.integers(0, 2),
        share=st.sampled_from(list(SHARES.values())),
    )
    def admit(self, request_id: str, priority: int, deadline_s: int | None, count: int, share: TenantShare) -> None:
        queued = self.entries(State.PREPARING, State.LOADING_ADAPTER, State.WAITING, State.CHUNKED)
        holders = Counter(entry.tenant.name for entry in queued if not entry.is_pass)
        total, own = holders.total() + count, holders[share.tenant] + count
        fair = own * len(holders | {share.tenant: 1}) <= self.CAPACITY and total <= 2 * self.CAPACITY
        if total > self.CAPACITY and not fair:
            with pytest.raises(QueueFull):
                self.queue.admit([ITEM] * count, request_id, deadline_s, priority, share=share)
        else:
            self.everything += self.queue.admit([ITEM] * count, request_id, deadline_s, priority, share=share)

    @rule(data=st.data(), tokens=st.integers(1, 120))
    def wait_for_adapter(self, data: st.DataObject, tokens: int) -> None:
        if entry := self.draw(data, State.PREPARING, State.FINISHED):
            finished = entry.finished
            self.queue.wait_for_adapter(entry, Prepared(ITEM, tokens, words=5))
            assert entry.state is (State.FINISHED if finished else State.LOADING_ADAPTER)

    @rule(data=st.data(), tokens=st.integers(1, 120))
    def put(self, data: st.DataObject, tokens: int) -> None:
        if entry := self.draw(data, State.PREPARING, State.LOADING_ADAPTER, State.FINISHED):
            finished = entry.finished
            prepared = data.draw(st.sampled_from([chunked(), Prepared(ITEM, tokens, words=5)]))
            self.queue.put(entry, prepared)
            assert entry.state is (State.FINISHED if finished else State.CHUNKED if prepared.chunked else State.WAITING)

    @rule(data=st.data(), tokens=st.integers(1, 120))
    def put_pass(self, data: st.DataObject, tokens: int) -> None:
        if parent := self.draw(data, State.CHUNKED):
            self.everything.append(self.queue.put_pass(parent, Prepared(ITEM, tokens, words=5)))

    @rule(size=st.integers(1, 4))
    def take(self, size: int) -> None:
        waiting = self.entries(State.WAITING)
        if waiting:
            limits = view(BatchLimits, max_batch_size=size, max_batch_tokens=200)
            batch = self.queue.take(self.queue.next_batch(limits))
            first = batch[0]
            assert first is min((e for e in waiting if e.tenant is first.tenant), key=lambda entry: entry.order)
            assert set(batch) <= set(waiting)
            assert {entry.state for entry in batch} == {State.RUNNING}

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if entry := self.draw(data, *(state for state in State if state is not State.FINISHED)):
            before = entry.state
            assert self.queue.finish(entry) is before
            assert entry.finished

    @invariant()
    def tallies_equal_a_recount(self) -> None:
        for state in State:
            entries = self.entries(state)
            passes = sum(entry.is_pass for entry in entries)
            short = sum(entry.size is SHORT for entry in entries)
            cost = sum(entry.cost for entry in entries)
            assert self.queue.tally(state) == Tally(len(entries) - passes, passes, short, cost)

    @invariant()
    def counters_and_look_ups_are_right(self) -> None:
        unfinished = [entry for entry in self.everything if not entry.finished]
        waiting = self.entries(State.WAITING)
        assert self.queue.unfinished() == unfinished
        assert self.queue.unfinished_items == sum(not entry.is_pass for entry in unfinished)
        assert self.queue.preparing_items == len(self.entries(State.PREPARING, State.LOADING_ADAPTER))
        assert self.queue.waiting_entries == len(waiting)
        assert self.queue.waiting_cost == sum(entry.cost for entry in waiting)
        assert self.queue.next_deadline_s == min((e.deadline_s for e in unfinished if e.deadline_s), default=None)
        for request_id in "ab":
            assert self.queue.of_request(request_id) == [e for e in unfinished if e.request_id == request_id]
        assert all((self.queue.find(entry.sequence) is entry) != entry.finished for entry in self.everything)

    @invariant()
    def order_of_service_is_of_all_that_wait(self) -> None:
        waiting = list(self.queue._waiting)
        assert sorted(entry.sequence for entry in waiting) == sorted(e.sequence for e in self.entries(State.WAITING))
        for share in SHARES.values():
            own = [entry.order for entry in waiting if entry.tenant.name == share.tenant]
            assert own == sorted(own)
        assert len(self.queue._tenants) <= len(SHARES)

    @invariant()
    def no_entry_is_finished_twice(self) -> None:
        assert all(self.queue.finish(entry) is None for entry in self.entries(State.FINISHED))


TestAnyHistory = AnyHistory.TestCase
