"""Which replica gets which work: the one with the fewest outstanding tokens. No clock or IO.

An adapter may change the choice: a replica on which it is resident is preferred while that costs little balance.
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
"""An adapter's replica may have so much more outstanding than the least loaded one: `max_outstanding_tokens` / 32."""

_LOOKS = 32
"""So many of the least loaded replicas are searched for an adapter with many homes."""


@dataclass(slots=True, eq=False)
class Ticket:
    """Work for one replica. cost: estimate, in tokens. order: of a tenant's own, priority first; set when it waits.

    replica: its number, once the ticket is placed. error: why it will never be. notify: called at either, if it waited.
    """

    cost: int
    adapter_id: str | None = None
    share: TenantShare = NO_TENANT
    priority: int = 0
    order: Order = (0, 0.0, 0)
    replica: int | None = None
    error: GLiNERBentoError | None = None
    notify: Callable[[], None] = lambda: None


class Dispatcher:
    """The load of replicas, all closed at first, and the tickets that wait for one.

    replicas: how many there are, numbered from 0; `add` and `remove` change that. max_outstanding_tokens: a replica
    with so many gets no more.
    """

    def __init__(self, replicas: int, max_outstanding_tokens: int) -> None:
        self.outstanding = dict.fromkeys(range(replicas), 0)
        self._numbers = count(replicas)
        self._max = max_outstanding_tokens
        self._turns = 0
        self._last = Counter[int]()  # turn of its latest ticket; of equal loads, the earliest is next
        self._open: set[int] = set()
        self._order: list[tuple[int, int, int]] = []  # of the open ones: outstanding tokens, last turn, number
        self._repeated: deque[Ticket] = deque()  # before all that wait
        self._waiting: FairQueue[Ticket] = FairQueue()
        self._submitted = 0
        self._residents: defaultdict[int, set[str]] = defaultdict(set)
        self._in_use: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._homes: dict[str, set[int]] = {}

    @property
    def open_replicas(self) -> int:
        """How many replicas get work."""
        return len(self._open)

    @property
    def waiting_tokens(self) -> int:
        """Cost of the tickets that wait."""
        return sum(ticket.cost for queue in (self._repeated, self._waiting) for ticket in queue)

    def add(self) -> int:
        """The number of one more replica."""
        number = next(self._numbers)
        self.outstanding[number] = 0
        return number

    def remove(self, replica: int) -> None:
        """Forget a replica. Its tickets may still be ended."""
        self.close(replica)
        self._in_use[replica].clear()
        self.set_resident(replica, ())
        for of_replicas in (self.outstanding, self._last, self._residents, self._in_use):
            del of_replicas[replica]

    def open(self, replica: int) -> None:
        """Give it work from now on."""
        if replica not in self._open:
            self._open.add(replica)
            insort(self._order, self._key(replica))
            self._place_waiting()

    def close(self, replica: int) -> None:
        """Give it no more work; its tickets stay until they are ended."""
        if replica in self._open:
            self._open.remove(replica)
            del self._order[bisect_left(self._order, self._key(replica))]

    def submit(self, ticket: Ticket, *, first: bool = False) -> bool:
        """Place the ticket now, or let it wait; returns whether it is placed. first: before all that are not."""
        if not self._repeated and (first or not self._waiting):
            replica = self._choose(ticket.adapter_id)
            if replica is not None:
                self._place(ticket, replica)
                return True
        self._submitted += 1
        ticket.order = ticket.priority, 0.0, self._submitted
        (self._repeated.append if first else self._waiting.add)(ticket)
        return False

    def end(self, ticket: Ticket) -> None:
        """The ticket's work has ended, or nobody waits for it any more."""
        if ticket.replica is None:
            if ticket.error is None:
                (self._repeated if ticket in self._repeated else self._waiting).remove(ticket)
            return
        if ticket.replica not in self.outstanding:
            return
        if ticket.adapter_id is not None:
            self._in_use[ticket.replica][ticket.adapter_id] -= 1
        self._add(ticket.replica, -ticket.cost)
        self._place_waiting()

    def refuse_waiting(self, error: GLiNERBentoError) -> None:
        """End all tickets that wait."""
        waiting = [*self._repeated, *self._waiting]
        self._repeated.clear()
        self._waiting.clear()
        for ticket in waiting:
            ticket.error = error
            ticket.notify()

    def set_resident(self, replica: int, adapter_ids: Iterable[str]) -> None:
        """The adapters in the replica's memory; those of its outstanding tickets count as well."""
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
        return self.outstanding[replica], self._last[replica], replica

    @property
    def _has_room(self) -> bool:
        """Whether not all replicas are full or closed."""
        return bool(self._order) and self._order[0][0] < self._max

    def _choose(self, adapter_id: str | None) -> int | None:
        """The replica for a ticket; None if there is no room."""
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
        """Of homes with at most `limit` outstanding tokens. Looks at few, whether there are few homes or many."""
        if len(homes) ** 2 > len(self._order):
            for outstanding, _, replica in islice(self._order, _LOOKS):
                if outstanding > limit:
                    return None
                if replica in homes:
                    return replica
            return None
        outstanding, _, replica = min((self._key(home) for home in homes & self._open), default=(limit + 1, 0, 0))
        return replica if outstanding <= limit else None

    def _place(self, ticket: Ticket, replica: int) -> None:
        ticket.replica = replica
        if ticket.adapter_id is not None:
            self._in_use[replica][ticket.adapter_id] += 1
            self._residents[replica].add(ticket.adapter_id)
            self._homes.setdefault(ticket.adapter_id, set()).add(replica)
        self._add(replica, ticket.cost)

    def _add(self, replica: int, tokens: int) -> None:
        is_open = replica in self._open
        if is_open:
            del self._order[bisect_left(self._order, self._key(replica))]
        self.outstanding[replica] += tokens
        if tokens > 0:
            self._turns += 1
            self._last[replica] = self._turns
        if is_open:
            insort(self._order, self._key(replica))

    def _place_waiting(self) -> None:
        while (self._repeated or self._waiting) and self._has_room:
            ticket = self._repeated.popleft() if self._repeated else self._waiting.serve()
            replica = self._choose(ticket.adapter_id)
            assert replica is not None
            self._place(ticket, replica)
            ticket.notify()
