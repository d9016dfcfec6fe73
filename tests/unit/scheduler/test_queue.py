from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stage import UNHURRIED, Clock, Lease
from views import view

from gliner_bento.engine.base import Prepared, SlotState
from gliner_bento.errors import DeadlineExceeded, NotReady, QueueFull, TooLarge
from gliner_bento.scheduler.batching import BatchLimits
from gliner_bento.scheduler.queue import Entry, WaitingQueue
from gliner_bento.types import Item

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
    queue.close("closed for a walk")
    with pytest.raises(NotReady, match="closed for a walk"):
        admit(queue, "r")
    assert len(queue.unfinished()) == 1


def test_capacity_counts_items_in_preparation_and_waiting_but_not_taken_ones(queue: WaitingQueue) -> None:
    admit(queue, "preparing")
    wait(queue)
    wait(queue)
    with pytest.raises(QueueFull):
        admit(queue, "too many")
    take(queue, ONE)
    admit(queue, "fits again")
    assert (queue.preparing_items, queue.waiting_items, queue.running_items) == (2, 1, 1)


def test_ending_an_item_frees_its_place(queue: WaitingQueue) -> None:
    entries = [wait(queue) for _ in range(3)]
    queue.end(entries[1].sequence)
    wait(queue)
    with pytest.raises(QueueFull):
        wait(queue)


def test_item_that_is_late_already_is_not_admitted(queue: WaitingQueue, clock: Clock) -> None:
    with pytest.raises(DeadlineExceeded):
        admit(queue, "r", deadline_s=clock.now_s)
    assert queue.unfinished() == []


def test_order_is_of_admission_even_if_preparation_ends_in_another(queue: WaitingQueue) -> None:
    first, second = admit(queue, "first"), admit(queue, "second")
    queue.put(second, Prepared(ITEM, 10, words=5))
    queue.put(first, Prepared(ITEM, 10, words=5))
    assert take(queue, ONE) == [first]


def test_lower_priority_number_is_served_first(queue: WaitingQueue) -> None:
    later, usual, urgent = (wait(queue, priority=priority) for priority in (5, 0, -1))
    assert [take(queue, ONE) for _ in range(3)] == [[urgent], [usual], [later]]


def test_being_passed_by_a_later_item_is_counted(queue: WaitingQueue) -> None:
    wait(queue, tokens=10)
    odd = wait(queue, tokens=90)
    wait(queue, tokens=10)
    assert len(take(queue, MANY)) == 2
    assert odd.overtaken == 1
    urgent = wait(queue, tokens=10, priority=-1)
    assert take(queue, MANY) == [urgent]
    assert odd.overtaken == 1


def test_next_batch_may_be_looked_at_before_it_is_taken(queue: WaitingQueue) -> None:
    entry = wait(queue)
    assert not queue.next_batch(MANY).full
    assert queue.next_batch(ONE).full
    assert queue.waiting_items == 1
    assert take(queue, MANY) == [entry]
    assert (queue.waiting_items, entry.overtaken) == (0, 0)


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


def test_packed_batch_takes_what_comes_next_whatever_its_cost(clock: Clock) -> None:
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


def test_item_that_ends_during_preparation_never_waits(queue: WaitingQueue) -> None:
    entry = admit(queue, "r")
    assert queue.end(entry.sequence) is entry
    queue.put(entry, Prepared(ITEM, 10, words=5))
    assert queue.waiting_items == 0
    assert queue.waiting_cost == 0


def test_request_is_all_its_unfinished_items(queue: WaitingQueue) -> None:
    first, other, second = wait(queue, "a"), wait(queue, "b"), wait(queue, "a")
    assert queue.of_request("a") == [first, second]
    queue.end(first.sequence)
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
    queue.end(preparing.sequence)
    assert queue.next_deadline_s == 105.0


@settings(UNHURRIED, max_examples=60, stateful_step_count=40)
class AnyHistory(RuleBasedStateMachine):
    """Whatever happens in whatever order, the counters tell the truth and each item is given away once."""

    CAPACITY = 6

    def __init__(self) -> None:
        super().__init__()
        self.queue = WaitingQueue(self.CAPACITY, lambda: 0.0, packs=False)
        self.queue.open()
        self.preparing: list[Entry] = []
        self.waiting: list[Entry] = []
        self.taken: list[Entry] = []
        self.ended: list[Entry] = []

    @rule(request_id=st.sampled_from("ab"), priority=st.integers(-1, 1), deadline_s=st.none() | st.integers(1, 3))
    def admit(self, request_id: str, priority: int, deadline_s: int | None) -> None:
        if len(self.preparing) + len(self.waiting) == self.CAPACITY:
            with pytest.raises(QueueFull):
                self.queue.admit([ITEM], request_id, deadline_s, priority)
        else:
            self.preparing += self.queue.admit([ITEM], request_id, deadline_s, priority)

    @precondition(lambda self: self.preparing)
    @rule(data=st.data(), tokens=st.integers(1, 120))
    def prepared(self, data: st.DataObject, tokens: int) -> None:
        entry = self.preparing.pop(data.draw(st.integers(0, len(self.preparing) - 1)))
        self.queue.put(entry, Prepared(ITEM, tokens, words=5))
        self.waiting.append(entry)

    @precondition(lambda self: self.waiting)
    @rule(size=st.integers(1, 4))
    def take(self, size: int) -> None:
        oldest = min(self.waiting, key=lambda entry: (entry.priority, entry.sequence))
        batch = take(self.queue, view(BatchLimits, max_batch_size=size, max_batch_tokens=200))
        assert batch[0] is oldest
        for entry in batch:
            self.waiting.remove(entry)
        self.taken += batch

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        places = [place for place in (self.preparing, self.waiting, self.taken) if place]
        if places:
            place = data.draw(st.sampled_from(places))
            entry = place.pop(data.draw(st.integers(0, len(place) - 1)))
            assert self.queue.end(entry.sequence) is entry
            assert entry.ended
            self.ended.append(entry)

    @invariant()
    def counters_tell_the_truth(self) -> None:
        unfinished = sorted(self.preparing + self.waiting + self.taken, key=lambda entry: entry.sequence)
        assert self.queue.unfinished() == unfinished
        assert self.queue.preparing_items == len(self.preparing)
        assert self.queue.waiting_items == len(self.waiting)
        assert self.queue.waiting_cost == sum(entry.cost for entry in self.waiting)
        assert self.queue.running_items == len(self.taken)
        assert self.queue.next_deadline_s == min((e.deadline_s for e in unfinished if e.deadline_s), default=None)
        for request_id in "ab":
            assert self.queue.of_request(request_id) == [e for e in unfinished if e.request_id == request_id]

    @invariant()
    def nobody_is_given_away_twice(self) -> None:
        assert all(self.queue.end(entry.sequence) is None for entry in self.ended)


TestAnyHistory = AnyHistory.TestCase
