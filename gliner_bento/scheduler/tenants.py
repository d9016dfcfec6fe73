"""What the waiting queue knows of a tenant: its turns among its own requests, which are served alike.

The turn of an item is when it is served if all waiting requests of the tenant are served alike: a short request does
not wait for all of large or many ones, and none waits for ever. A long text counts as several items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from gliner_bento.fairness.constants import CHARS_PER_PLACE, ITEMS_PER_TURN
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.tasks.base import Item

if TYPE_CHECKING:
    from gliner_bento.scheduler.entry import Entry


def places_of(items: Sequence[Item]) -> list[int]:
    """How many items each of them counts as."""
    return [1 + len(item.text) // CHARS_PER_PLACE + (ITEMS_PER_TURN if item.is_large else 0) for item in items]


@dataclass(slots=True, eq=False)
class Tenant:
    """progress: how many places each waiting request was served. requests: number of waiting entries of each.
    unfinished: entries."""

    share: TenantShare
    progress: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    unfinished: int = 0

    @property
    def name(self) -> str:
        """The tenant."""
        return self.share.tenant

    def next_turns(self, places: Sequence[int]) -> Iterator[float]:
        """The turn of each item of a new request, or of a pass. places: of each item."""
        return (self.progress + until for until in accumulate(places))

    def serve(self, entry: Entry) -> None:
        """`entry` is in a batch. All of the batch are served before one of them leaves."""
        self.progress += entry.places / len(self.requests)

    def leave(self, entry: Entry) -> None:
        """`entry` no longer waits."""
        self.requests[entry.request_id] -= 1
        if not self.requests[entry.request_id]:
            del self.requests[entry.request_id]
