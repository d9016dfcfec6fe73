"""Which waiting entries a batch may take, so that a tenant or a large request does not hold up others.

Pure, no clock. A large request (bulk) is one that takes more than one turn, many texts or a long one, or has a lower
priority than others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gliner_bento.scheduler.entry import Entry


@dataclass(frozen=True, slots=True)
class ItemArrival:
    """When an item started to wait, its tenant and its priority."""

    at_s: float
    tenant: str
    priority: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A lane is reserved, for so many seconds. small: for small requests. beside: for tenants but this one."""

    seconds: float
    small: bool = False
    beside: str | None = None

    def admits(self, entry: Entry) -> bool:
        """Whether the lane may run `entry`."""
        return not (self.small and entry.is_bulk) and entry.tenant.name != self.beside


@dataclass(frozen=True, slots=True)
class BatchShare:
    """What each tenant may have of a batch while another one sends: one entry, and more up to a cost of `tokens`. The
    same for a tenant's large requests, while somebody sends small ones: then no batch has both, so that a small one
    does not wait for a pass of a large one.

    senders: the tenants that send. small: somebody sends small requests.
    """

    tokens: int
    senders: set[str]
    small: bool

    def of(self, waiting: Sequence[Entry]) -> list[Entry]:
        """The entries that are in their shares, the first of each included."""
        costs: Counter[str] = Counter()
        admitted = []
        for entry in waiting:
            if self.small and entry.is_bulk != waiting[0].is_bulk:
                continue
            tenant = entry.tenant.name
            cost = costs[tenant] + entry.cost
            limited = (self.small and entry.is_bulk) or self.senders - {tenant}
            if cost == entry.cost or cost <= self.tokens or not limited:
                costs[tenant] = cost
                admitted.append(entry)
        return admitted


def admitted(order: Iterable[Entry], reservation: Reservation, count: int) -> tuple[list[Entry], list[Entry]]:
    """The entries of `order` up to the `count`-th that `reservation` admits, and those among them."""
    ahead, admitted = [], []
    for entry in order:
        ahead.append(entry)
        if reservation.admits(entry):
            admitted.append(entry)
            if len(admitted) == count:
                break
    return ahead, admitted
