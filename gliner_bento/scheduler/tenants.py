"""Fair order among the requests of one tenant: each waiting request gets the same service.

A tenant's virtual time is the number of items that each of its waiting requests has been served. Items are ordered by
the virtual time at which they finish. So a short request does not wait for all of a large one, or for all of many
requests, and no request waits for ever. A long text is charged as several items. A short request has a head start:
without one, it would wait until many other requests have each been served as many items as the short one has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from itertools import accumulate

from gliner_bento.fairness.constants import CHARS_PER_CHARGED_ITEM, HEAD_START_ITEMS, MAX_SHORT_ITEMS, MAX_SMALL_ITEMS
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.tasks.base import Item


class Size(IntEnum):
    """The size of a request; see `size_of`."""

    SHORT = 0
    MEDIUM = auto()
    LARGE = auto()


SHORT, MEDIUM, LARGE = Size


def charged_items(items: Sequence[Item]) -> list[int]:
    """For each item, the number of items that it is charged as. One item with `is_large` makes its request large."""
    return [1 + len(item.text) // CHARS_PER_CHARGED_ITEM + (MAX_SMALL_ITEMS if item.is_large else 0) for item in items]


def size_of(charged_items: int, priority: int) -> Size:
    """The size of a request. charged_items: the sum over its items."""
    if charged_items > MAX_SMALL_ITEMS or priority > 0:
        return LARGE
    return MEDIUM if charged_items > MAX_SHORT_ITEMS else SHORT


@dataclass(slots=True, eq=False)
class TenantState:
    """virtual_time: number of charged items that each waiting request has been served. waiting_by_request: number of
    waiting entries of each request. unfinished: number of unfinished entries."""

    share: TenantShare
    virtual_time: float = 0.0
    waiting_by_request: Counter[str] = field(default_factory=Counter)
    unfinished: int = 0

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.share.tenant

    def virtual_finishes(self, charged: Sequence[int], size: Size) -> Iterator[float]:
        """The virtual finish time of each item of a new request, or of a pass. charged: see `charged_items`."""
        start = self.virtual_time - (HEAD_START_ITEMS if size is SHORT else 0)
        return (start + total for total in accumulate(charged))

    def serve(self, charged_items: int) -> None:
        """An entry is in a batch. Called for all entries of the batch before `leave` is called for any, because `leave`
        changes the number of waiting requests."""
        self.virtual_time += charged_items / len(self.waiting_by_request)

    def leave(self, request_id: str) -> None:
        """An entry of the request no longer waits."""
        self.waiting_by_request[request_id] -= 1
        if not self.waiting_by_request[request_id]:
            del self.waiting_by_request[request_id]
