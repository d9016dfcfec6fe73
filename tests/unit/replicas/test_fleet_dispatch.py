"""The dispatcher of a fleet: placing, waiting, affinity. Pure, so every case is exact."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.errors import NotReady
from gliner_bento.replicas.fleet.dispatch import AFFINITY_SHARE, Dispatcher, Ticket

MAX = 1000 * AFFINITY_SHARE
BOUND = MAX // AFFINITY_SHARE


def dispatcher_of(replicas: int, max_tokens: int = MAX) -> Dispatcher:
    dispatcher = Dispatcher(replicas, max_tokens)
    for replica in range(replicas):
        dispatcher.open(replica)
    return dispatcher


def submitted(dispatcher: Dispatcher, cost: int, adapter_id: str | None = None, *, first: bool = False) -> Ticket:
    ticket = Ticket(cost, adapter_id)
    dispatcher.submit(ticket, first=first)
    return ticket


def test_the_replica_with_the_fewest_outstanding_tokens_is_next():
    dispatcher = dispatcher_of(3)
    assert [submitted(dispatcher, cost).replica for cost in (100, 30, 50, 10, 15, 20)] == [0, 1, 2, 1, 1, 2]
    assert list(dispatcher.outstanding.values()) == [100, 55, 70]


def test_idle_replicas_take_turns():
    dispatcher = dispatcher_of(3)
    places = []
    for _ in range(6):
        ticket = submitted(dispatcher, 10)
        places.append(ticket.replica)
        dispatcher.end(ticket)
    assert places == [0, 1, 2, 0, 1, 2]


def test_no_replica_is_open_at_first():
    dispatcher = Dispatcher(2, MAX)
    ticket = submitted(dispatcher, 10)
    assert ticket.replica is None
    dispatcher.open(1)
    assert ticket.replica == 1


def test_work_waits_first_in_first_out_while_all_are_full():
    dispatcher = dispatcher_of(2, max_tokens=10)
    running = [submitted(dispatcher, 10) for _ in range(2)]
    placed: list[int] = []
    waiting = []
    for number, cost in enumerate((1, 99, 1)):
        ticket = Ticket(cost, notify=lambda number=number: placed.append(number))
        assert not dispatcher.submit(ticket)
        waiting.append(ticket)
    assert dispatcher.waiting_tokens == 101
    dispatcher.end(running[1])
    assert placed == [0, 1]
    assert [ticket.replica for ticket in waiting] == [1, 1, None]
    late = submitted(dispatcher, 1)
    dispatcher.end(running[0])
    assert placed == [0, 1, 2]
    assert late.replica == 0


def test_a_repeated_ticket_is_before_all_that_wait():
    dispatcher = dispatcher_of(1, max_tokens=1)
    running = submitted(dispatcher, 1)
    waiting = submitted(dispatcher, 1)
    repeated = submitted(dispatcher, 1, first=True)
    dispatcher.end(running)
    assert (repeated.replica, waiting.replica) == (0, None)


def test_repeated_tickets_keep_their_order():
    dispatcher = dispatcher_of(1, max_tokens=1)
    running = submitted(dispatcher, 1)
    waiting = submitted(dispatcher, 1)
    repeated = [submitted(dispatcher, 1, first=True) for _ in range(3)]
    dispatcher.end(repeated.pop(1))
    assert dispatcher.waiting_tokens == 3
    order = []
    for ticket in (running, *repeated, waiting):
        order.append([one.replica for one in (*repeated, waiting)])
        dispatcher.end(ticket)
    assert order == [[None, None, None], [0, None, None], [0, 0, None], [0, 0, 0]]


def test_a_ticket_that_nobody_waits_for_any_more_is_forgotten():
    dispatcher = dispatcher_of(1, max_tokens=1)
    running, left, next_one = (submitted(dispatcher, 1) for _ in range(3))
    dispatcher.end(left)
    dispatcher.end(running)
    assert (left.replica, next_one.replica) == (None, 0)


def test_a_closed_replica_gets_nothing_and_keeps_its_load():
    dispatcher = dispatcher_of(2)
    ticket = submitted(dispatcher, 50)
    dispatcher.close(0)
    assert [submitted(dispatcher, 500).replica for _ in range(3)] == [1, 1, 1]
    dispatcher.open(0)
    assert submitted(dispatcher, 1).replica == 0
    dispatcher.end(ticket)
    assert list(dispatcher.outstanding.values()) == [1, 1500]


def test_refused_tickets_have_the_error():
    dispatcher = Dispatcher(1, MAX)
    ticket, error = submitted(dispatcher, 1), NotReady("none")
    dispatcher.refuse_waiting(error)
    assert ticket.error is error
    dispatcher.end(ticket)
    dispatcher.open(0)
    assert list(dispatcher.outstanding.values()) == [0]


def test_an_adapters_replica_is_preferred_within_the_bound():
    dispatcher = dispatcher_of(3)
    dispatcher.set_resident(2, ["a"])
    places = [submitted(dispatcher, BOUND // 2, "a").replica for _ in range(4)]
    assert places == [2, 2, 2, 0], "the fourth would have waited behind more than the bound"
    assert submitted(dispatcher, 1, "b").replica == 1


def test_an_adapter_stays_where_it_was_used_until_its_replica_says_otherwise():
    dispatcher = dispatcher_of(4)
    first = submitted(dispatcher, 10, "a")
    dispatcher.set_resident(first.replica, [])  # answered before the adapter was loaded
    again = submitted(dispatcher, 10, "a")
    assert again.replica == first.replica
    for ticket in (first, again):
        dispatcher.end(ticket)
    dispatcher.set_resident(first.replica, [])
    assert submitted(dispatcher, 10, "a").replica != first.replica


def test_many_homes_are_found_as_well():
    dispatcher = dispatcher_of(9)
    for replica in range(2, 9):
        dispatcher.set_resident(replica, ["a"])
    assert submitted(dispatcher, 10, "a").replica == 2
    for replica in range(2, 9):
        dispatcher.close(replica)
    assert submitted(dispatcher, 10, "a").replica in (0, 1)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "first", "end", "open", "close", "add", "remove"]),
        st.integers(0, 50),
        st.integers(0, 30),
    ),
    max_size=80,
)


@given(OPERATIONS)
def test_whatever_happens_the_loads_are_those_of_the_placed_tickets(operations):
    dispatcher, live, is_open = Dispatcher(4, 40), [], set()
    replicas = [*range(4)]
    for kind, number, cost in operations:
        replica = replicas[number % len(replicas)] if replicas else None
        if kind in ("submit", "first"):
            adapter = f"adapter-{number % 3}" if number % 2 else None
            live.append(submitted(dispatcher, 1 + cost, adapter, first=kind == "first"))
        elif kind == "end" and live:
            dispatcher.end(live.pop(number % len(live)))
        elif kind == "add":
            replicas.append(dispatcher.add())
        elif kind == "open" and replicas:
            dispatcher.open(replica)
            is_open.add(replica)
        elif kind in ("close", "remove") and replicas:
            getattr(dispatcher, kind)(replica)
            is_open.discard(replica)
            if kind == "remove":
                replicas.remove(replica)
        loads = {replica: sum(ticket.cost for ticket in live if ticket.replica == replica) for replica in replicas}
        assert dispatcher.outstanding == loads
        assert dispatcher.open_replicas == len(is_open)
        assert set().union(*dispatcher._homes.values()) <= set(replicas)
        waiting = [ticket for ticket in live if ticket.replica is None]
        assert dispatcher.waiting_tokens == sum(ticket.cost for ticket in waiting)
        assert not waiting or all(loads[replica] >= 40 for replica in is_open), "nothing waits while a replica is free"


def test_placing_among_a_thousand_replicas_is_cheap():
    """A tenth of the target: a full scan would take longer than all of this."""
    dispatcher = dispatcher_of(1000)
    for replica in range(0, 1000, 3):
        dispatcher.set_resident(replica, [f"adapter-{number}" for number in range(replica % 50)])
    tickets = []
    began_s = time.thread_time()
    for number in range(4000):
        tickets.append(submitted(dispatcher, number % 97 + 1, f"adapter-{number % 60}" if number % 2 else None))
        if number % 4:
            dispatcher.end(tickets.pop(number % len(tickets)))
    per_request_s = (time.thread_time() - began_s) / 4000
    assert per_request_s < 1e-3, "timing decides nothing finer than a mistake in the order of growth"
