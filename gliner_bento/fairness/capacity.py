"""A limit that tenants share, on waiting items or on tokens under way. No clock, no IO."""

from __future__ import annotations

from collections import Counter

from gliner_bento.fairness.constants import SHARED_OVERFLOW


class SharedCapacity:
    """How much of `capacity` each tenant holds. When it is used up, a tenant that holds less than an equal share of it
    may still hold more, until all hold SHARED_OVERFLOW x the capacity. total: held by all tenants."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.total = 0
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many tenants hold some of it."""
        return len(self._held)

    def excess(self, tenant: str, amount: int, fraction: float = 1.0) -> float:
        """By how much `amount` more for `tenant` would exceed this fraction of the capacity; 0: it may hold that."""
        capacity = fraction * self.capacity
        total, held = self.total + amount, self._held.get(tenant, 0)
        holders = len(self._held) + (not held)
        if total <= capacity or (total <= SHARED_OVERFLOW * capacity and (held + amount) * holders <= capacity):
            return 0.0
        return total - capacity

    def hold(self, tenant: str, amount: int) -> None:
        """Add `amount`, which may be negative, to what `tenant` holds."""
        self.total += amount
        self._held[tenant] += amount
        if not self._held[tenant]:
            del self._held[tenant]
