"""Limits each tenant's part of a batch, so that one tenant or large requests do not hold up other work.

A large request has more than MAX_SMALL_ITEMS charged items (many texts, or a long one), or a `priority` above 0. A
medium request has more than MAX_SHORT_ITEMS charged items. For measurements, see decision 21 (docs/decisions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from gliner_bento.fairness.constants import SENDS_S
from gliner_bento.scheduler.entry import LARGE, Entry, Size


@dataclass(frozen=True, slots=True)
class LastArrival:
    """When an item of this tenant, in a request of this size, last started to wait."""

    at_s: float
    tenant: str
    size: Size


class Senders:
    """The tenants whose items arrived within the last SENDS_S seconds: they are sending."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_arrivals: dict[tuple[str, Size], LastArrival] = {}  # by tenant and size, in order of time
        self._last_s_by_size: dict[Size, float] = {}  # the time of the last arrival of any tenant

    def arrived(self, entry: Entry) -> None:
        """An item starts to wait. Not called for passes of chunked requests."""
        tenant, size, now = entry.tenant.name, entry.size, self._clock()
        self._last_arrivals.pop((tenant, size), None)
        self._last_arrivals[tenant, size] = LastArrival(now, tenant, size)
        self._last_s_by_size[size] = now
        since_s = now - SENDS_S
        for old in list(takewhile(lambda key: self._last_arrivals[key].at_s <= since_s, self._last_arrivals)):
            del self._last_arrivals[old]

    def __iter__(self) -> Iterator[LastArrival]:
        """The last arrivals of the tenants that are sending, the latest first."""
        since_s = self._clock() - SENDS_S
        return takewhile(lambda arrival: arrival.at_s > since_s, reversed(self._last_arrivals.values()))

    def smallest(self) -> Size:
        """The size of the smallest requests that arrived within the last SENDS_S seconds; LARGE if there are none."""
        since_s = self._clock() - SENDS_S
        return min((size for size, at_s in self._last_s_by_size.items() if at_s > since_s), default=LARGE)


@dataclass(frozen=True, slots=True)
class BatchQuota:
    """Limits each tenant's part of a batch to one entry, or to several with a total cost of at most `tokens`.

    The limit holds for a tenant while another one sends, and for requests larger than `smallest`. While small requests
    arrive, a batch has either large or small requests, so that a short request does not wait for a pass of a large one.

    senders: tenants that send, at most two of them. smallest: size of the smallest requests that arrive; at least
    MEDIUM if batches are padded, because smaller padded batches cost throughput.
    """

    tokens: int
    senders: set[str]
    smallest: Size

    def admitted(self, waiting: Sequence[Entry]) -> list[Entry]:
        """The entries within the quota of their tenant; a tenant's first entry always is. While small requests arrive,
        leaves out large entries if the first of `waiting` is small, and small entries if it is large."""
        costs: Counter[str] = Counter()
        admitted = []
        for entry in waiting:
            large = entry.size is LARGE
            if self.smallest < LARGE and large != (waiting[0].size is LARGE):
                continue
            tenant = entry.tenant.name
            cost = costs[tenant] + entry.cost
            limited = entry.size > self.smallest or self.senders - {tenant}
            if tenant not in costs or cost <= self.tokens or not limited:
                costs[tenant] = cost
                admitted.append(entry)
        return admitted
