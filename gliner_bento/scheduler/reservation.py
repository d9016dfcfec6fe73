"""Who may have the last lane and how much of a batch, so that one tenant or large requests do not hold up others.

A large request (bulk) is one that takes more than one turn, many texts or a long one, or has a lower priority than
others. Docs: decision 18 has the measurement that shows who needs this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from gliner_bento.fairness.constants import SENDS_S
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.scheduler.entry import Entry


@dataclass(frozen=True, slots=True)
class Crowd:
    """What may fill all lanes: large requests of anybody, or all of one tenant."""

    tenant: str | None = None

    def has(self, tenant: str, *, is_bulk: bool) -> bool:
        """Whether work of this kind is of the crowd."""
        return is_bulk if self.tenant is None else tenant == self.tenant


@dataclass(frozen=True, slots=True)
class Reservation:
    """A lane is kept from `crowds`, for so many seconds."""

    crowds: Sequence[Crowd]
    seconds: float

    def admits(self, entry: Entry) -> bool:
        """Whether the lane may run `entry`."""
        return not any(crowd.has(entry.tenant.name, is_bulk=entry.is_bulk) for crowd in self.crowds)

    def first_of(self, order: Iterable[Entry], count: int) -> tuple[list[Entry], list[Entry]]:
        """The entries of `order` up to the `count`-th that the lane may run, and those among them."""
        ahead, admitted = [], []
        for entry in order:
            ahead.append(entry)
            if self.admits(entry):
                admitted.append(entry)
                if len(admitted) == count:
                    break
        return ahead, admitted


@dataclass(frozen=True, slots=True)
class Arrival:
    """The latest item of one pass of a tenant's small, or of its large requests, that started to wait."""

    at_s: float
    share: TenantShare
    is_bulk: bool
    priority: int


class Senders:
    """Who has sent items within the last SENDS_S."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._latest: dict[tuple[str, bool], Arrival] = {}  # the earliest first

    def arrived(self, entry: Entry) -> None:
        """An item of one pass starts to wait."""
        key = entry.tenant.name, entry.is_bulk
        self._latest.pop(key, None)
        self._latest[key] = Arrival(self._clock(), entry.share, entry.is_bulk, entry.priority)
        for old in list(takewhile(self._is_old, self._latest)):
            del self._latest[old]

    def __iter__(self) -> Iterator[Arrival]:
        """The latest first."""
        since_s = self._clock() - SENDS_S
        return takewhile(lambda arrival: arrival.at_s > since_s, reversed(self._latest.values()))

    def left_s(self, arrival: Arrival) -> float:
        """For how long its sender still counts."""
        return arrival.at_s + SENDS_S - self._clock()

    def _is_old(self, key: tuple[str, bool]) -> bool:
        return self.left_s(self._latest[key]) <= 0


@dataclass(frozen=True, slots=True)
class BatchShare:
    """What each tenant may have of a batch while another one sends: one entry, and more up to a cost of `tokens`. The
    same for a tenant's large requests, while somebody sends small ones: then no batch has both, so that a small one
    does not wait for a pass of a large one.

    senders: the tenants that send; two of them, if there are more. small: somebody sends small requests.
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
