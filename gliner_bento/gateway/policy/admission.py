"""What is refused before the body of a request is read: what exceeds a tenant's limits, which are the server's, and
what no model would admit. The HTTP protocol and the middleware ask; see `overload` for one model's part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from gliner_bento.errors import QueueFull
from gliner_bento.fairness.constants import SHORT_TOKENS
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.overload import OverloadPolicy
from gliner_bento.gateway.policy.rates import Rates
from gliner_bento.gateway.policy.tenants import Tenant


class Admission:
    """The limits of tenants, and `policies`: of each served model by its name, the default's first."""

    def __init__(self, options: GatewayOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.policies: Mapping[str | None, OverloadPolicy] = {}
        self._rates = Rates(options.max_tenant_concurrency, options.max_tenant_requests_per_s, clock)

    def refuse(self, tenant: Tenant, timeout_s: float, cost: float, model: str | None = None) -> None:
        """Raise what `request` would raise for a request that extracts. One that it would not refuse is not counted.

        timeout_s, cost: see `OverloadPolicy.check`. model: its name, if it is known.
        """
        self._rates.check(tenant)
        try:
            self._check(tenant, timeout_s, cost, model)
        except QueueFull:
            with self._rates.request(tenant):
                raise

    @contextmanager
    def request(self, tenant: Tenant, *, extracts: bool) -> Iterator[None]:
        """Count a request that has not been read, until it is answered. Raises `RateLimited` or `QueueFull` instead if
        it would add to what its tenant or every model has too much of."""
        with self._rates.request(tenant):
            if extracts:
                self._check(tenant)
            yield

    def quota(self, tenant: Tenant) -> Mapping[str, str]:
        """The headers with what the tenant may still send."""
        return self._rates.headers(tenant)

    def expect(self, tenant: Tenant, model: str | None = None) -> Callable[[], None]:
        """Count a request that waits to be read; see `OverloadPolicy.expect`. Without a model: as the default's."""
        policies = self._of(model)
        return policies[0].expect(tenant) if policies else lambda: None

    def _check(
        self, tenant: Tenant, timeout_s: float = math.inf, cost: float = SHORT_TOKENS, model: str | None = None
    ) -> None:
        """Raise `QueueFull` if no model that the request may be for admits it."""
        refusal: QueueFull | None = None
        for policy in self._of(model):
            try:
                policy.check(tenant, timeout_s, cost)
            except QueueFull as full:
                refusal = full
            else:
                return
        if refusal:
            raise refusal

    def _of(self, model: str | None) -> list[OverloadPolicy]:
        return [self.policies[model]] if model in self.policies else list(self.policies.values())
