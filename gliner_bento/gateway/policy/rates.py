"""Limits how many requests per second a tenant may send, and how many may run concurrently.

The rate limit is a token bucket. It holds as many requests as one second allows, but at least one; no burst is larger.
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
class Usage:
    """A tenant's use of its limits. available: requests in its bucket at `updated_s`. running: requests under way."""

    available: float
    updated_s: float
    running: int = 0


class Rates:
    """Limits the requests of each tenant.

    concurrency: maximum number of requests under way. per_s: maximum number of requests per second. 0: no limit. A
    tenant's own limits replace these.
    """

    def __init__(self, concurrency: int, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._concurrency = concurrency
        self._rate = per_s
        self._clock = clock
        self._active: dict[str, Usage] = {}
        self._idle: OrderedDict[str, Usage] = OrderedDict()

    @contextmanager
    def request(self, tenant: Tenant) -> Iterator[None]:
        """Count a request while it is under way. Raises `RateLimited` instead if it exceeds a limit."""
        usage = self.check(tenant)
        if usage is None:
            yield
            return
        _, rate = self._limits_of(tenant)
        if rate:
            usage.available -= 1
        usage.running += 1
        self._active[tenant.name] = usage
        self._idle.pop(tenant.name, None)
        try:
            yield
        finally:
            usage.running -= 1
            if not usage.running:
                self._idle[tenant.name] = self._active.pop(tenant.name)
                self._limit_idle()

    def check(self, tenant: Tenant) -> Usage | None:
        """The tenant's usage; None if it has no limits. Raises `RateLimited` if another request exceeds a limit."""
        concurrency, rate = self._limits_of(tenant)
        if not concurrency and not rate:
            return None
        usage = self._usage_of(tenant, rate)
        if concurrency and usage.running >= concurrency:
            setting = "max_tenant_concurrency" if tenant.max_concurrency is None else "max_concurrency of its key"
            raise RateLimited(f"this tenant has {concurrency} concurrent requests already ({setting})")
        if rate and usage.available < 1:
            own = tenant.max_requests_per_s is not None
            setting = "max_requests_per_s of its key" if own else "max_tenant_requests_per_s"
            raise RateLimited(
                f"requests per second of this tenant: {rate:g} ({setting})",
                retry_after_s=math.ceil((1 - usage.available) / rate),
            )
        return usage

    def headers(self, tenant: Tenant) -> Mapping[str, str]:
        """The headers X-RateLimit-* of the limit with the fewest requests left. Reset: seconds until that is unused."""
        concurrency, rate = self._limits_of(tenant)
        if not concurrency and not rate:
            return {}
        usage = self._usage_of(tenant, rate)
        quotas = []  # (remaining, limit, seconds until the reset)
        if rate:
            size = _bucket_size(rate)
            quotas.append((math.floor(usage.available), math.floor(size), math.ceil((size - usage.available) / rate)))
        if concurrency:
            quotas.append((max(0, concurrency - usage.running), concurrency, 1 if usage.running else 0))
        remaining, limit, reset_s = min(quotas)
        return {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(remaining),
            "X-RateLimit-Reset": str(reset_s),
        }

    def __len__(self) -> int:
        return len(self._active) + len(self._idle)

    def _limits_of(self, tenant: Tenant) -> tuple[int, float]:
        concurrency, rate = tenant.max_concurrency, tenant.max_requests_per_s
        return (self._concurrency if concurrency is None else concurrency, self._rate if rate is None else rate)

    def _usage_of(self, tenant: Tenant, rate: float) -> Usage:
        """The tenant's usage, updated to now. The usage of a new tenant is stored only by `request`."""
        now_s = self._clock()
        usage = self._active.get(tenant.name) or self._idle.get(tenant.name)
        if usage is None:
            return Usage(_bucket_size(rate), now_s)
        usage.available = min(_bucket_size(rate), usage.available + (now_s - usage.updated_s) * rate)
        usage.updated_s = now_s
        return usage

    def _limit_idle(self) -> None:
        while len(self._idle) > MAX_IDLE_TENANTS:
            self._idle.popitem(last=False)


def _bucket_size(rate: float) -> float:
    return max(1.0, rate)
