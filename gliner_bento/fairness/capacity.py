"""A limit that tenants share, on waiting items or on tokens under way. No clock, no IO."""

from __future__ import annotations

from collections import Counter

from gliner_bento.fairness.constants import SHARED_OVERFLOW


class SharedCapacity:
    """How much of `capacity` each tenant holds. When it is used up, a tenant that holds less than an equal share may
    still hold more, until all tenants together hold SHARED_OVERFLOW x `capacity`. total: what all tenants hold."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.total = 0
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of tenants that hold a part of the capacity."""
        return len(self._held)

    def held(self, tenant: str) -> int:
        """What `tenant` holds."""
        return self._held.get(tenant, 0)

    def excess(self, tenant: str, amount: int, fraction: float = 1.0) -> float:
        """0 if `tenant` may hold `amount` more; else by how much this would exceed `fraction` of the capacity."""
        limit = fraction * self.capacity
        total = self.total + amount
        if total <= limit:
            return 0.0
        held = self.held(tenant)
        holders = len(self._held) if held else len(self._held) + 1
        within_share = (held + amount) * holders <= limit
        return 0.0 if within_share and total <= SHARED_OVERFLOW * limit else total - limit

    def hold(self, tenant: str, amount: int) -> None:
        """Add `amount`, which may be negative, to what `tenant` holds."""
        self.total += amount
        self._held[tenant] += amount
        if not self._held[tenant]:
            del self._held[tenant]
