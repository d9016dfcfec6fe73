"""The order of service of waiting entries: fair among tenants and, within a tenant, among requests.

Among tenants: start-time fair queueing of tokens. Each tenant has a virtual time, the tokens that it was served divided
by its weight, and the one with the lowest is next. A tenant that begins to wait starts no earlier than the tenant that
is served then: time in which it did not wait earns it nothing.

Among the requests of a tenant: priority (lower first, as in vLLM), then turn, then admission. The turn of an item is
when it is served if all waiting requests of the tenant are served alike: a short request does not wait for all of
large or many ones, and none waits for ever. A long text counts as several items.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate

from gliner_bento.scheduler.entry import WAITING, Entry
from gliner_bento.tasks.base import Item

ITEMS_PER_TURN = 32
"""A request of more items is large (bulk)."""
PLACES_OF_PASS = 8
CHARS_PER_PLACE = 250
"""A longer text counts as one item more for each of so many characters."""

_MAX_IDLE = 1024  # tenants without entries whose virtual time is kept

Rank = tuple[int, float, int]
"""The order among tenants: priority of the first entry, if it counts there; virtual time; sequence of that entry."""


def places_of(items: Sequence[Item]) -> list[int]:
    """How many items each of them counts as."""
    return [1 + len(item.text) // CHARS_PER_PLACE + (ITEMS_PER_TURN if item.is_large else 0) for item in items]


@dataclass(frozen=True, slots=True)
class TenantShare:
    """Whose a request is.

    weight: the tenant's share of the tokens, relative to other tenants; more than 0.
    crosses_tenants: a request's priority also orders it among tenants, not only among the tenant's own requests.
    """

    tenant: str = ""
    weight: float = 1.0
    crosses_tenants: bool = False


NO_TENANT = TenantShare()


@dataclass(slots=True, eq=False)
class TenantQueue:
    """The entries of one tenant.

    waiting: in the order of service. virtual_time: tokens served, divided by the weight.
    progress: how many places each waiting request was served. requests: of the waiting entries.
    items: that are in no batch yet. unfinished: entries.
    """

    share: TenantShare
    waiting: list[Entry] = field(default_factory=list)
    rank: Rank = (0, 0.0, 0)
    virtual_time: float = 0.0
    progress: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    items: int = 0
    unfinished: int = 0

    @property
    def name(self) -> str:
        """The tenant."""
        return self.share.tenant

    def next_turns(self, places: Sequence[int]) -> Iterator[float]:
        """The turn of each item of a new request, or of a pass. places: of each item."""
        return (self.progress + until for until in accumulate(places))

    def leave(self, entry: Entry) -> None:
        """`entry` no longer waits."""
        self.requests[entry.request_id] -= 1
        if not self.requests[entry.request_id]:
            del self.requests[entry.request_id]

    def rank_at(self, place: int, virtual_time: float) -> Rank:
        """Its rank when the waiting entry at `place` is its first."""
        entry = self.waiting[place]
        return entry.priority if self.share.crosses_tenants else 0, virtual_time, entry.sequence

    def drop_served(self, count: int) -> int:
        """Remove the first `count` entries of `waiting` that no longer wait; returns their cost."""
        kept, cost = [], 0
        requests = len(self.requests)
        for place, entry in enumerate(self.waiting, 1):
            if entry.state is WAITING:
                kept.append(entry)
                continue
            cost += entry.cost
            self.progress += entry.places / requests
            self.leave(entry)
            count -= 1
            if not count:
                self.waiting[:place] = kept
                break
        return cost


class TenantQueues:
    """The waiting entries of all tenants. A tenant is forgotten when nothing of it is left to remember.

    holders: number of tenants with items that are in no batch yet.
    """

    def __init__(self) -> None:
        self.holders = 0
        self._tenants: dict[str, TenantQueue] = {}
        self._active: list[TenantQueue] = []  # those with waiting entries, by rank
        self._idle: dict[str, None] = {}  # those without entries, the longest idle first
        self._virtual_time = 0.0  # of the tenant that was served last, when it was

    def __len__(self) -> int:
        return len(self._tenants)

    def of(self, share: TenantShare) -> TenantQueue:
        """The queue of a tenant, from now on with this share. An entry must be registered next."""
        tenant = self._tenants.get(share.tenant)
        if tenant is None:
            tenant = self._tenants[share.tenant] = TenantQueue(share)
        elif tenant.share is not share and tenant.share != share:
            self._deactivate(tenant)
            tenant.share = share
            self._activate(tenant)
        return tenant

    def items_of(self, tenant: str) -> int:
        """Its items that are in no batch yet."""
        known = self._tenants.get(tenant)
        return known.items if known else 0

    def register(self, entry: Entry) -> None:
        """Count a new entry."""
        tenant = entry.tenant
        if not tenant.unfinished:
            self._idle.pop(tenant.name, None)
        tenant.unfinished += 1
        if entry.parent is None:
            tenant.items += 1
            self.holders += tenant.items == 1

    def leave_queue(self, entry: Entry) -> None:
        """An item is in a batch from now on, or has finished before."""
        entry.tenant.items -= 1
        self.holders -= not entry.tenant.items

    def forget(self, entry: Entry) -> None:
        """An entry has finished. Its tenant is forgotten with it, if its virtual time no longer matters."""
        tenant = entry.tenant
        tenant.unfinished -= 1
        if tenant.unfinished:
            return
        self._idle[tenant.name] = None
        if tenant.virtual_time <= self._virtual_time:
            self._drop(tenant.name)
        elif len(self._idle) > _MAX_IDLE:
            self._drop(next(iter(self._idle)))

    # The order of service

    def add(self, entry: Entry) -> None:
        """`entry` waits from now on."""
        tenant = entry.tenant
        waiting = tenant.waiting
        tenant.requests[entry.request_id] += 1
        if not waiting:
            tenant.virtual_time = max(tenant.virtual_time, self._virtual_time)
            waiting.append(entry)
            self._activate(tenant)
        elif entry.order > waiting[-1].order:
            waiting.append(entry)
        elif entry.order > waiting[0].order:
            insort(waiting, entry, key=_order)
        else:
            self._deactivate(tenant)
            waiting.insert(0, entry)
            self._activate(tenant)

    def remove(self, entry: Entry) -> None:
        """`entry` no longer waits, and is not served."""
        tenant = entry.tenant
        self._deactivate(tenant)
        tenant.leave(entry)
        del tenant.waiting[bisect_left(tenant.waiting, entry.order, key=_order)]
        self._activate(tenant)

    def take(self, entries: Sequence[Entry]) -> None:
        """`entries` are served and no longer in the state WAITING. Charges their cost to their tenants."""
        self._virtual_time = max(self._virtual_time, self._lowest_virtual_time())
        alone = len(self._active) == 1
        served = {entries[0].tenant: len(entries)} if alone else Counter(entry.tenant for entry in entries)
        for tenant, count in served.items():
            self._deactivate(tenant)
            tenant.virtual_time += tenant.drop_served(count) / tenant.share.weight
            self._activate(tenant)
        if not self._active:  # no tenant is behind: what was served no longer matters
            self._virtual_time = max(tenant.virtual_time for tenant in served)

    def in_order(self) -> Iterator[Entry]:
        """The waiting entries in the order of service, as if each was served alone."""
        if len(self._active) == 1:
            return iter(self._active[0].waiting)
        return self._merged()

    def only_waits(self, tenant: str) -> bool:
        """Whether no entry of another tenant waits."""
        return all(active.name == tenant for active in self._active[:2])

    def more_urgent_waits(self, tenant: str, priority: int) -> bool:
        """Whether the priority of a waiting entry puts it before an entry of `tenant` with this priority."""
        own = self._tenants.get(tenant)
        among_tenants = priority if own and own.share.crosses_tenants else 0
        return bool(
            (self._active and self._active[0].rank[0] < among_tenants)
            or (own and own.waiting and own.waiting[0].priority < priority)
        )

    def _merged(self) -> Iterator[Entry]:
        active = iter(self._active)
        unseen = next(active, None)
        seen: list[tuple[Rank, int, TenantQueue]] = []  # a heap: rank and place of the next entry of a tenant
        while seen or unseen:
            if unseen and not (seen and seen[0][0] < unseen.rank):
                rank, place, tenant = unseen.rank, 0, unseen
                unseen = next(active, None)
            else:
                rank, place, tenant = heappop(seen)
            entry = tenant.waiting[place]
            yield entry
            if place + 1 < len(tenant.waiting):
                following = tenant.rank_at(place + 1, rank[1] + entry.cost / tenant.share.weight)
                heappush(seen, (following, place + 1, tenant))

    def _lowest_virtual_time(self) -> float:
        if self._active[0].rank[0] == self._active[-1].rank[0]:
            return self._active[0].virtual_time
        return min(tenant.virtual_time for tenant in self._active)

    def _deactivate(self, tenant: TenantQueue) -> None:
        """Before the rank of a tenant changes."""
        if tenant.waiting:
            del self._active[bisect_left(self._active, tenant.rank, key=_rank)]

    def _activate(self, tenant: TenantQueue) -> None:
        """The tenant has a new rank, if it has waiting entries."""
        if tenant.waiting:
            tenant.rank = tenant.rank_at(0, tenant.virtual_time)
            insort(self._active, tenant, key=_rank)

    def _drop(self, tenant: str) -> None:
        del self._tenants[tenant], self._idle[tenant]


def _order(entry: Entry) -> tuple[int, float, int]:
    return entry.order


def _rank(tenant: TenantQueue) -> Rank:
    return tenant.rank
