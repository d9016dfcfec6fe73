"""How many requests per second a tenant may send, and how many may run concurrently. Of HTTP, it knows only headers.

The rate is a token bucket that holds the requests of one second, at least one: that is the largest burst.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gliner_bento.errors import RateLimited
from gliner_bento.fairness.constants import MAX_IDLE_TENANTS
from gliner_bento.gateway.policy.tenants import Tenant


@dataclass(slots=True)
class Use:
    """A tenant's use of its limits. left: requests in its bucket at `since_s`. running: requests under way."""

    left: float
    since_s: float
    running: int = 0


class Rates:
    """Limits the requests of each tenant.

    concurrency: requests under way; per_s: requests per second; 0: no limit. A tenant may have limits of its own
    instead.
    """

    def __init__(self, concurrency: int, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._concurrency = concurrency
        self._rate = per_s
        self._clock = clock
        self._running: dict[str, Use] = {}
        self._idle: OrderedDict[str, Use] = OrderedDict()

    @contextmanager
    def request(self, tenant: Tenant) -> Iterator[None]:
        """Count a request while it is under way. Raises `RateLimited` instead if it is one too many."""
        use = self.check(tenant)
        if use is None:
            yield
            return
        if self._limits_of(tenant)[1]:
            use.left -= 1
        use.running += 1
        self._running[tenant.name] = use
        self._idle.pop(tenant.name, None)
        try:
            yield
        finally:
            use.running -= 1
            if not use.running:
                self._idle[tenant.name] = self._running.pop(tenant.name)
                self._forget()

    def check(self, tenant: Tenant) -> Use | None:
        """The tenant's use; None if it has no limits. Raises `RateLimited` if another request is one too many."""
        concurrency, rate = self._limits_of(tenant)
        if not concurrency and not rate:
            return None
        use = self._use_of(tenant, rate)
        if concurrency and use.running >= concurrency:
            raise RateLimited(f"this tenant has {concurrency} concurrent requests already (max_tenant_concurrency)")
        if rate and use.left < 1:
            raise RateLimited(
                f"this tenant may send {rate:g} requests per second (max_tenant_requests_per_s)",
                retry_after_s=math.ceil((1 - use.left) / rate),
            )
        return use

    def headers(self, tenant: Tenant) -> Mapping[str, str]:
        """The headers X-RateLimit-*, for the limit that is nearest. Reset: seconds until it is unused."""
        concurrency, rate = self._limits_of(tenant)
        if not concurrency and not rate:
            return {}
        use = self._use_of(tenant, rate)
        quotas = []
        if rate:
            size = _bucket(rate)
            quotas.append((math.floor(use.left), math.floor(size), math.ceil((size - use.left) / rate)))
        if concurrency:
            quotas.append((max(0, concurrency - use.running), concurrency, 1 if use.running else 0))
        remaining, limit, reset_s = min(quotas)
        return {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(remaining),
            "X-RateLimit-Reset": str(reset_s),
        }

    def __len__(self) -> int:
        return len(self._running) + len(self._idle)

    def _limits_of(self, tenant: Tenant) -> tuple[int, float]:
        concurrency, rate = tenant.max_concurrency, tenant.max_requests_per_s
        return self._concurrency if concurrency is None else concurrency, self._rate if rate is None else rate

    def _use_of(self, tenant: Tenant, rate: float) -> Use:
        """The tenant's use now. That of a new tenant is stored by `request`."""
        now_s = self._clock()
        use = self._running.get(tenant.name) or self._idle.get(tenant.name)
        if use is None:
            return Use(_bucket(rate), now_s)
        use.left = min(_bucket(rate), use.left + (now_s - use.since_s) * rate)
        use.since_s = now_s
        return use

    def _forget(self) -> None:
        while len(self._idle) > MAX_IDLE_TENANTS:
            self._idle.popitem(last=False)


def _bucket(rate: float) -> float:
    return max(1.0, rate)
