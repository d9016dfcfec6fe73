"""Start-time fair queueing: the order of service of waiting work, fair among tenants by their weights. No clock, no IO.

Each tenant has a virtual time: the cost that it was served, divided by its weight. The tenant with the lowest virtual
time is next. A tenant that begins to wait gets at least the virtual time of the tenant that is served then, so that it
earns nothing by not waiting. A tenant's own work is served by `order`, which begins with the priority (lower first, as
in vLLM). The scheduler's waiting items, the fleet's tickets and the work of preparation threads wait in such queues.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from gliner_bento.fairness.constants import MAX_REMEMBERED_TENANTS


class TenantShare(NamedTuple):
    """The tenant of a request, and its weight.

    weight: the tenant's share of the tokens, relative to other tenants; more than 0.
    crosses_tenants: a request's priority also orders it among tenants, not only among the tenant's own requests.
    """

    tenant: str = ""
    weight: float = 1.0
    crosses_tenants: bool = False


NO_TENANT = TenantShare()

Order = tuple[int, float, int]
"""Key of the order within a tenant: priority, virtual finish time among the tenant's requests, unique number."""


class Waiting(Protocol):
    """Work that waits in a `FairQueue`."""

    @property
    def share(self) -> TenantShare:
        """The tenant and its weight. The weight of the work that was added last applies to the tenant."""

    @property
    def order(self) -> Order:
        """Key of the order among the work of its tenant."""

    @property
    def cost(self) -> float:
        """What the work's tenant is charged for it."""


W = TypeVar("W", bound=Waiting)

Rank = tuple[int, float, int]
"""Key of the order among tenants: priority (0 unless `crosses_tenants`), virtual time, number of the first work."""


@dataclass(slots=True, eq=False)
class _Tenant(Generic[W]):
    """waiting: sorted by `order`. rank: valid while work waits."""

    share: TenantShare
    waiting: list[W] = field(default_factory=list)
    virtual_time: float = 0.0
    rank: Rank = (0, 0.0, 0)

    def rank_of(self, work: W, virtual_time: float) -> Rank:
        """The tenant's rank if `work` is its first."""
        order = work.order
        return order[0] if self.share.crosses_tenants else 0, virtual_time, order[-1]


class FairQueue(Generic[W]):
    """A queue; true if work waits. Iterates over its work in the order in which `serve` would take it."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant[W]] = {}  # those with work, and recent ones
        self._active: list[_Tenant[W]] = []  # those with work, by rank
        self._virtual_time = 0.0  # the lowest of all tenants with work, before work was last taken

    def __bool__(self) -> bool:
        return bool(self._active)

    def __iter__(self) -> Iterator[W]:
        return iter(self._active[0].waiting) if len(self._active) == 1 else self._merged()

    @property
    def first(self) -> W | None:
        """The work that `serve` would take; None if nothing waits."""
        return self._active[0].waiting[0] if self._active else None

    def add(self, work: W) -> None:
        """`work` waits from now on."""
        share = work.share
        tenant = self._tenants.get(share.tenant)
        if tenant is None:
            tenant = self._tenants[share.tenant] = _Tenant(share)
        if tenant.waiting and tenant.share == share and work.order > tenant.waiting[0].order:
            insort(tenant.waiting, work, key=_order)
            return
        self._deactivate(tenant)
        if not tenant.waiting:
            tenant.virtual_time = max(tenant.virtual_time, self._virtual_time)
        tenant.share = share
        insort(tenant.waiting, work, key=_order)
        self._activate(tenant)

    def remove(self, work: W) -> None:
        """`work` no longer waits, and is not served."""
        self._drop(self._tenants[work.share.tenant], [work])
        self._forget()

    def take(self, works: Sequence[W]) -> None:
        """`works` are served. Charges their cost to their tenants."""
        by_tenant: dict[str, list[W]] = {}
        for work in works:
            by_tenant.setdefault(work.share.tenant, []).append(work)
        self._virtual_time = max(self._virtual_time, self._lowest_virtual_time())
        for name, own in by_tenant.items():
            tenant = self._tenants[name]
            self._drop(tenant, own, sum(work.cost for work in own) / tenant.share.weight)
        self._forget()

    def serve(self) -> W:
        """Take the first work of the order. The queue must not be empty."""
        tenant = self._active[0]
        work = tenant.waiting[0]
        self._virtual_time = max(self._virtual_time, self._lowest_virtual_time())
        self._drop(tenant, [work], work.cost / tenant.share.weight)
        self._forget()
        return work

    def charge(self, tenant: str, cost: float) -> None:
        """Charge a tenant more, for work that was taken at less than its cost. Ignores a tenant that was forgotten."""
        if known := self._tenants.get(tenant):
            self._drop(known, [], cost / known.share.weight)

    def clear(self) -> None:
        """Remove all work."""
        self._active.clear()
        self._forget()

    def others_wait(self, tenant: str) -> bool:
        """Whether work of another tenant waits."""
        return any(active.share.tenant != tenant for active in self._active[:2])  # `tenant` is at most one of two

    def lead(self, tenant: str) -> float:
        """The virtual time of a tenant, less that of the tenant whose work is next; 0 if nothing waits."""
        known = self._tenants.get(tenant)
        return max(0.0, known.virtual_time - self._active[0].virtual_time) if known and self._active else 0.0

    def near_turn(self, max_lead: float) -> Iterator[Sequence[W]]:
        """The waiting work of each tenant whose lead is at most `max_lead`: tenants in the order of service, and the
        work of each in its order. Leaves out tenants whose work waits for more urgent work of another tenant."""
        for tenant in self._active:
            first = self._active[0].rank
            if tenant.rank[0] > first[0] or tenant.rank[1] > first[1] + max_lead:
                return
            yield tenant.waiting

    def _merged(self) -> Iterator[W]:
        """The work of all tenants in the order of service: tenants' ranks change as if the work were served."""
        active = iter(self._active)
        unseen = next(active, None)
        seen: list[tuple[Rank, int, _Tenant[W]]] = []  # a heap: rank and index of the next work of a tenant
        while seen or unseen:
            if unseen and not (seen and seen[0][0] < unseen.rank):
                rank, index, tenant = unseen.rank, 0, unseen
                unseen = next(active, None)
            else:
                rank, index, tenant = heappop(seen)
            work = tenant.waiting[index]
            yield work
            if index + 1 < len(tenant.waiting):
                following = tenant.rank_of(tenant.waiting[index + 1], rank[1] + work.cost / tenant.share.weight)
                heappush(seen, (following, index + 1, tenant))

    def _lowest_virtual_time(self) -> float:
        if self._active[0].rank[0] == self._active[-1].rank[0]:  # only one priority: sorted by virtual time
            return self._active[0].virtual_time
        return min(tenant.virtual_time for tenant in self._active)

    def _drop(self, tenant: _Tenant[W], works: list[W], charge: float = 0.0) -> None:
        """Remove `works` of a tenant, and add `charge` to its virtual time."""
        self._deactivate(tenant)
        if tenant.waiting[: len(works)] == works:  # mostly, the first ones are removed
            del tenant.waiting[: len(works)]
        else:
            for work in works:
                del tenant.waiting[bisect_left(tenant.waiting, work.order, key=_order)]
        tenant.virtual_time += charge
        self._activate(tenant)

    def _deactivate(self, tenant: _Tenant[W]) -> None:
        """Remove a tenant from `_active`, before its rank changes."""
        if tenant.waiting:
            del self._active[bisect_left(self._active, tenant.rank, key=_rank)]

    def _activate(self, tenant: _Tenant[W]) -> None:
        """Set the tenant's rank and add it to `_active`, if it has waiting work."""
        if tenant.waiting:
            tenant.rank = tenant.rank_of(tenant.waiting[0], tenant.virtual_time)
            insort(self._active, tenant, key=_rank)

    def _forget(self) -> None:
        """Forget tenants without work if there are too many, or if nothing waits: virtual times then start at 0."""
        if not self._active:
            self._tenants.clear()
            self._virtual_time = 0.0
        elif len(self._tenants) - len(self._active) > MAX_REMEMBERED_TENANTS:
            self._tenants = {tenant.share.tenant: tenant for tenant in self._active}


# In C, because a search calls them several times for each work.
_order: Callable[[Waiting], Order] = attrgetter("order")
_rank: Callable[[_Tenant[Any]], Rank] = attrgetter("rank")
