"""The tickets that wait for a replica, in the order of service: fair among tenants, by their weights. No clock, no IO.

Start-time fair queueing, as in the scheduler (`scheduler/tenant_queues.py`): a tenant's virtual time is the cost that
it was served, divided by its weight, and the tenant with the lowest is next. One that begins to wait starts no earlier
than the one that was served last. Of one tenant: priority (lower first), then first in, first out.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gliner_bento.errors import GLiNERBentoError

_MAX_REMEMBERED = 1024  # tenants without tickets whose virtual time is kept


@dataclass(slots=True, eq=False)
class Ticket:
    """Work for one replica. cost: estimate, in tokens. tenant, weight, priority, crosses_tenants: see `Call`.

    replica: its number, once the ticket is placed. error: why it will never be. notify: called at either, if it waited.
    """

    cost: int
    adapter_id: str | None = None
    tenant: str = ""
    weight: float = 1.0
    priority: int = 0
    crosses_tenants: bool = False
    replica: int | None = None
    error: GLiNERBentoError | None = None
    notify: Callable[[], None] = lambda: None


@dataclass(slots=True)
class _Tenant:
    """tickets: by priority and turn."""

    virtual_time: float = 0.0
    tickets: list[tuple[int, int, Ticket]] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, float, int]:
        """The lowest is next: priority, if it counts among tenants; virtual time; turn."""
        priority, turn, ticket = self.tickets[0]
        return priority if ticket.crosses_tenants else 0, self.virtual_time, turn


class Line:
    """Iterates over its tickets; true if there are any."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._waiting: dict[str, _Tenant] = {}  # those with tickets
        self._virtual_time = 0.0  # of the tenant that was served last, when it was
        self._turns = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Ticket]:
        return (ticket for tenant in self._waiting.values() for _, _, ticket in tenant.tickets)

    def add(self, ticket: Ticket) -> None:
        """`ticket` waits from now on."""
        tenant = self._tenants.setdefault(ticket.tenant, _Tenant())
        if not tenant.tickets:
            tenant.virtual_time = max(tenant.virtual_time, self._virtual_time)
            self._waiting[ticket.tenant] = tenant
        self._turns += 1
        insort(tenant.tickets, (ticket.priority, self._turns, ticket))

    def serve(self) -> Ticket:
        """The next ticket, which no longer waits. Its tenant is charged. There must be one."""
        tenant = min(self._waiting.values(), key=lambda tenant: tenant.rank)
        ticket = tenant.tickets[0][2]
        self._virtual_time = max(self._virtual_time, tenant.virtual_time)
        tenant.virtual_time += ticket.cost / ticket.weight
        self.remove(ticket)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """`ticket` no longer waits."""
        tickets = self._waiting[ticket.tenant].tickets
        del tickets[next(place for place, (_, _, one) in enumerate(tickets) if one is ticket)]
        if not tickets:
            del self._waiting[ticket.tenant]
            self._forget()

    def clear(self) -> None:
        """Nothing waits."""
        self._waiting.clear()
        self._forget()

    def _forget(self) -> None:
        """Tenants that are no longer behind another one; all, if nobody waits, or if there are too many."""
        if not self._waiting:
            self._tenants.clear()
            self._virtual_time = 0.0
        elif len(self._tenants) - len(self._waiting) > _MAX_REMEMBERED:
            self._tenants = dict(self._waiting)
