"""Limits each tenant's part of a batch, so that one tenant or large requests do not hold up other work.

A large request has more than MAX_SMALL_ITEMS charged items (many texts, or a long one), or a `priority` above 0. A
medium request has more than MAX_SHORT_ITEMS charged items. For measurements, see decision 21 (docs/decisions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from gliner_bento.fairness.constants import SENDS_S
from gliner_bento.frozen import frozen
from gliner_bento.scheduler.entry import Entry
from gliner_bento.scheduler.tenants import LARGE, MEDIUM, SHORT, Size


@frozen()
class LastItem:
    """When lanes last got work of this tenant, in a request of this size."""

    at_s: float
    tenant: str
    size: Size


class Senders:
    """The tenants that sent work to the lanes within the last SENDS_S seconds. What the express lane runs does not
    count: lanes' batches need not be smaller for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_items: dict[tuple[str, Size], LastItem] = {}  # by tenant and size, in order of time
        self._last_s_by_size: dict[Size, float] = {}  # the time of the last item of any tenant

    def add(self, entry: Entry) -> None:
        """The lanes get an item: a short one when a lane takes it, because until then the express lane may run it;
        others when they start to wait. Not called for passes of chunked requests."""
        tenant, size, now = entry.tenant.name, entry.size, self._clock()
        self._last_items.pop((tenant, size), None)
        self._last_items[tenant, size] = LastItem(now, tenant, size)
        self._last_s_by_size[size] = now
        since_s = now - SENDS_S
        for old in list(takewhile(lambda key: self._last_items[key].at_s <= since_s, self._last_items)):
            del self._last_items[old]

    def __iter__(self) -> Iterator[LastItem]:
        """The last items of the tenants that are sending, the latest first."""
        since_s = self._clock() - SENDS_S
        return takewhile(lambda item: item.at_s > since_s, reversed(self._last_items.values()))

    def smallest(self) -> Size:
        """The size of the smallest requests of the last SENDS_S seconds; LARGE if there are none."""
        since_s = self._clock() - SENDS_S
        return min((size for size, at_s in self._last_s_by_size.items() if at_s > since_s), default=LARGE)


@frozen()
class BatchQuota:
    """Limits each tenant's part of a batch to one entry, or to several with a total cost of at most `tokens`.

    The limit holds for a tenant while another one sends, and for requests larger than `smallest`. While small requests
    arrive, a batch has either large or small requests, so that a short request does not wait for a pass of a large one.
    If also several tenants send, short and medium requests share no batch: a tenant that sends short ones would wait
    for the longer ones of others, and get less than its share.

    senders: tenants that send, at most two of them. smallest: size of the smallest requests that are sent; at least
    MEDIUM if batches are padded, because smaller padded batches cost throughput.
    """

    tokens: int
    senders: set[str]
    smallest: Size

    def admitted(self, waiting: Sequence[Entry]) -> list[Entry]:
        """The entries within the quota of their tenant; a tenant's first entry always is. While small requests arrive,
        leaves out entries that may not share a batch with the first of `waiting`."""
        costs: dict[str, int] = {}
        admitted = []
        together = self._group(waiting[0].size) if waiting else LARGE
        for entry in waiting:
            size, tenant = entry.size, entry.tenant.name
            if self.smallest < LARGE and self._group(size) is not together:
                continue
            before = costs.get(tenant)
            cost = entry.cost if before is None else before + entry.cost
            limited = size > self.smallest or self.senders - {tenant}
            if before is None or cost <= self.tokens or not limited:
                costs[tenant] = cost
                admitted.append(entry)
        return admitted

    def _group(self, size: Size) -> Size:
        """Only entries whose sizes are in the same group share a batch."""
        apart = self.smallest is SHORT and len(self.senders) > 1
        return size if apart else max(size, MEDIUM)
