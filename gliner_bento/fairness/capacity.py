"""A limit that tenants share: the places of a waiting queue, the tokens under way. No clock, no IO."""

from __future__ import annotations

from collections import Counter

from gliner_bento.fairness.constants import SHARED_OVERFLOW


class SharedCapacity:
    """What tenants hold of `capacity`. When it is reached, a tenant with less than an equal share of it may still hold
    more, up to SHARED_OVERFLOW x the capacity in all. total: held by all tenants."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.total = 0
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many tenants hold some of it."""
        return len(self._held)

    def excess(self, tenant: str, amount: int, fraction: float = 1.0) -> float:
        """By how much `amount` more of `tenant` exceeds this fraction of the capacity; 0: there is room."""
        capacity = fraction * self.capacity
        total, held = self.total + amount, self._held.get(tenant, 0)
        holders = len(self._held) + (not held)
        if total <= capacity or (total <= SHARED_OVERFLOW * capacity and (held + amount) * holders <= capacity):
            return 0.0
        return total - capacity

    def hold(self, tenant: str, amount: int) -> None:
        """`tenant` holds so much more; less, if it is negative."""
        self.total += amount
        self._held[tenant] += amount
        if not self._held[tenant]:
            del self._held[tenant]
