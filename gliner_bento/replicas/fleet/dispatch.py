"""Assigns work to the replica with the fewest outstanding tokens. No clock or IO.

Work with an adapter goes to a replica that has the adapter in memory (a *home* of the adapter), if that replica has
only a few more tokens outstanding than the least loaded one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, islice

from gliner_bento.errors import GLiNERBentoError
from gliner_bento.fairness.queue import NO_TENANT, FairQueue, Order, TenantShare

AFFINITY_SHARE = 32
"""A home may have `max_outstanding_tokens` / AFFINITY_SHARE more tokens outstanding than the least loaded replica."""

_SEARCHED_REPLICAS = 32
"""For an adapter with many homes, a home is sought among only this number of the least loaded replicas."""


@dataclass(slots=True, eq=False)
class Ticket:
    """Work for one replica. cost: estimate, in tokens. order: see `fairness.queue`; set when the ticket waits.
    alone: its replica gets nothing else meanwhile.

    replica: number of the assigned replica. error: why it will get no replica. notify: called when a waiting
    ticket gets a replica or an error.
    """

    cost: int
    adapter_id: str | None = None
    share: TenantShare = NO_TENANT
    priority: int = 0
    alone: bool = False
    order: Order = (0, 0.0, 0)
    replica: int | None = None
    error: GLiNERBentoError | None = None
    notify: Callable[[], None] = lambda: None


class Dispatcher:
    """Assigns tickets to open replicas; keeps the load of each replica, and the tickets that wait for one.

    replicas: initial number of replicas, which are numbered from 0 and get no work until `open` is called.
    max_outstanding_tokens: a replica with at least this number of outstanding tokens gets no more work.
    """

    def __init__(self, replicas: int, max_outstanding_tokens: int) -> None:
        self.outstanding = dict.fromkeys(range(replicas), 0)
        self._numbers = count(replicas)
        self._max = max_outstanding_tokens
        self._assignments = 0
        self._last_assignment = Counter[int]()  # by replica: number of its last assignment; breaks ties
        self._open: set[int] = set()
        self._reserved: set[int] = set()  # each for a ticket that is to be alone
        self._order: list[tuple[int, int, int]] = []  # `_key` of the open replicas, sorted
        self._repeated: deque[Ticket] = deque()  # submitted with `first`; served before `_waiting`
        self._waiting: FairQueue[Ticket] = FairQueue()
        self._submitted = 0
        self._residents: defaultdict[int, set[str]] = defaultdict(set)  # by replica: adapters in memory
        self._in_use: defaultdict[int, Counter[str]] = defaultdict(Counter)  # by replica and adapter: number of tickets
        self._homes: dict[str, set[int]] = {}  # by adapter

    @property
    def open_replicas(self) -> int:
        """How many replicas get work."""
        return len(self._open)

    @property
    def waiting_tokens(self) -> int:
        """Cost of the tickets that wait."""
        return sum(ticket.cost for queue in (self._repeated, self._waiting) for ticket in queue)

    def add(self) -> int:
        """Add a replica; returns its number."""
        number = next(self._numbers)
        self.outstanding[number] = 0
        return number

    def remove(self, replica: int) -> None:
        """Forget a replica. Its tickets may still be ended."""
        self.close(replica)
        self._in_use[replica].clear()
        self.set_resident(replica, ())
        self._reserved.discard(replica)
        for by_replica in (self.outstanding, self._last_assignment, self._residents, self._in_use):
            del by_replica[replica]

    def open(self, replica: int) -> None:
        """Assign work to the replica from now on."""
        if replica not in self._open:
            self._open.add(replica)
            insort(self._order, self._key(replica))
            self._assign_waiting()

    def close(self, replica: int) -> None:
        """Assign no more work to the replica; its tickets count until they are ended."""
        if replica in self._open:
            self._open.remove(replica)
            del self._order[bisect_left(self._order, self._key(replica))]

    def submit(self, ticket: Ticket, *, first: bool = False) -> bool:
        """Assign the ticket, or let it wait; returns whether it is assigned. first: before tickets without `first`."""
        if not self._repeated and (first or not self._waiting):
            replica = self._choose(ticket.adapter_id)
            if replica is not None:
                self._assign(ticket, replica)
                return True
        self._submitted += 1
        ticket.order = ticket.priority, 0.0, self._submitted
        if first:
            self._repeated.append(ticket)
        else:
            self._waiting.add(ticket)
        return False

    def end(self, ticket: Ticket) -> None:
        """The ticket's work has ended, or nobody waits for it any more."""
        if ticket.replica is None:
            if ticket.error is None:
                (self._repeated if ticket in self._repeated else self._waiting).remove(ticket)
            return
        if ticket.replica not in self.outstanding:
            return  # the replica was removed
        if ticket.adapter_id is not None:
            self._in_use[ticket.replica][ticket.adapter_id] -= 1
        self._add(ticket.replica, -ticket.cost, reserved=False if ticket.alone else None)
        self._assign_waiting()

    def share(self, ticket: Ticket) -> None:
        """The replica of an assigned ticket may get other work from now on, although the ticket was to be alone."""
        if ticket.alone and ticket.replica in self.outstanding:
            self._add(ticket.replica, 0, reserved=False)
            self._assign_waiting()
        ticket.alone = False

    def refuse_waiting(self, error: GLiNERBentoError) -> None:
        """End all waiting tickets with `error`."""
        waiting = [*self._repeated, *self._waiting]
        self._repeated.clear()
        self._waiting.clear()
        for ticket in waiting:
            ticket.error = error
            ticket.notify()

    def set_resident(self, replica: int, adapter_ids: Iterable[str]) -> None:
        """Set which adapters are in the replica's memory, in addition to those of its outstanding tickets."""
        in_use = self._in_use[replica]
        for adapter_id in [adapter_id for adapter_id, tickets in in_use.items() if not tickets]:
            del in_use[adapter_id]
        now, before = {*adapter_ids, *in_use}, self._residents[replica]
        for adapter_id in now - before:
            self._homes.setdefault(adapter_id, set()).add(replica)
        for adapter_id in before - now:
            homes = self._homes[adapter_id]
            homes.discard(replica)
            if not homes:
                del self._homes[adapter_id]
        self._residents[replica] = now

    def _key(self, replica: int) -> tuple[int, int, int]:
        """Sort key; the first replica is the next to get work: outstanding tokens, latest assignment, number."""
        load = self.outstanding[replica] + (self._max if replica in self._reserved else 0)
        return load, self._last_assignment[replica], replica

    @property
    def _has_room(self) -> bool:
        """Whether a replica is open and may get more work."""
        return bool(self._order) and self._order[0][0] < self._max

    def _choose(self, adapter_id: str | None) -> int | None:
        """The replica for a ticket; None if no replica has room."""
        if not self._has_room:
            return None
        least, _, replica = self._order[0]
        homes = self._homes.get(adapter_id) if adapter_id is not None else None
        if homes:
            limit = min(least + self._max // AFFINITY_SHARE, self._max - 1)
            home = self._least_loaded_of(homes, limit)
            return replica if home is None else home
        return replica

    def _least_loaded_of(self, homes: set[int], limit: int) -> int | None:
        """The least loaded home with at most `limit` outstanding tokens, or None. Fast for few and for many homes."""
        # A search of the order reads about len(order) / len(homes) replicas; the alternative reads all homes.
        if len(homes) ** 2 > len(self._order):
            for outstanding, _, replica in islice(self._order, _SEARCHED_REPLICAS):
                if outstanding > limit:
                    return None
                if replica in homes:
                    return replica
            return None
        least = min((self._key(home) for home in homes & self._open), default=None)
        return least[-1] if least and least[0] <= limit else None

    def _assign(self, ticket: Ticket, replica: int) -> None:
        ticket.replica = replica
        if ticket.adapter_id is not None:
            self._in_use[replica][ticket.adapter_id] += 1
            self._residents[replica].add(ticket.adapter_id)
            self._homes.setdefault(ticket.adapter_id, set()).add(replica)
        self._add(replica, ticket.cost, reserved=ticket.alone)

    def _add(self, replica: int, tokens: int, *, reserved: bool | None = None) -> None:
        """Add to the replica's outstanding tokens. reserved: whether it is full from now on, whatever its tokens."""
        is_open = replica in self._open
        if is_open:
            del self._order[bisect_left(self._order, self._key(replica))]
        self.outstanding[replica] += tokens
        if reserved is not None:
            (self._reserved.add if reserved else self._reserved.discard)(replica)
        if tokens > 0:
            self._assignments += 1
            self._last_assignment[replica] = self._assignments
        if is_open:
            insort(self._order, self._key(replica))

    def _assign_waiting(self) -> None:
        while (self._repeated or self._waiting) and self._has_room:
            ticket = self._repeated.popleft() if self._repeated else self._waiting.serve()
            replica = self._choose(ticket.adapter_id)
            assert replica is not None
            self._assign(ticket, replica)
            ticket.notify()
