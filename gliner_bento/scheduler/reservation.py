"""Which waiting entries a batch may take, so that a tenant or a long text does not hold up others: pure, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gliner_bento.scheduler.entry import Entry


@dataclass(frozen=True, slots=True)
class ItemArrival:
    """When an item of one pass started to wait, its tenant and its priority."""

    at_s: float
    tenant: str
    priority: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A lane is reserved, for so many seconds. items: for items of one pass. beside: for tenants but this one."""

    seconds: float
    items: bool = False
    beside: str | None = None

    def admits(self, entry: Entry) -> bool:
        """Whether the lane may run `entry`."""
        return not (self.items and entry.is_pass) and entry.tenant.name != self.beside


@dataclass(frozen=True, slots=True)
class BatchShare:
    """What each tenant may have of a batch while another one sends: one entry, and more up to a cost of `tokens`.

    senders: the tenants that send.
    """

    tokens: int
    senders: set[str]

    def of(self, waiting: Iterable[Entry]) -> list[Entry]:
        """The entries that are in the shares of their tenants, the first of each included."""
        costs: Counter[str] = Counter()
        admitted = []
        for entry in waiting:
            tenant = entry.tenant.name
            before = costs[tenant]
            if not before or before + entry.cost <= self.tokens or self.senders == {tenant}:
                costs[tenant] += entry.cost
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
