"""Refuses requests before their bodies are read: if the tenant exceeds its limits (`rates`), or if no model would admit
the request (`overload`). `EarlyRefusal` calls `refuse`; `GatewayMiddleware` keeps `request` open while a request runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress

from gliner_bento.errors import QueueFull
from gliner_bento.fairness.constants import SHORT_TOKENS
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.overload import OverloadPolicy
from gliner_bento.gateway.policy.rates import Rates
from gliner_bento.gateway.policy.tenants import Tenant


class Admission:
    """Applies the limits of tenants and of models. policies: one per served model, by name, the default's first."""

    def __init__(self, options: GatewayOptions) -> None:
        self.policies: Mapping[str | None, OverloadPolicy] = {}
        self._rates = Rates(options.max_tenant_concurrency, options.max_tenant_requests_per_s)

    def refuse(
        self, tenant: Tenant, timeout_s: float, cost: float, model: str | None = None, share: float = 1.0
    ) -> None:
        """Raise what `request` would raise for an extraction. Counts the request only if it is refused.

        timeout_s, cost, share: see `OverloadPolicy.check`. model: name of the request's model; None: not known.
        """
        self._rates.check(tenant)
        try:
            self._check(tenant, timeout_s, cost, model, share)
        except QueueFull:
            with self._rates.request(tenant):  # refused requests use up the tenant's rate too
                raise

    def request(self, tenant: Tenant, *, extracts: bool) -> AbstractContextManager[None]:
        """Count a request that has not been read, until it is answered. Raises `RateLimited` or `QueueFull` instead if
        its tenant or every model is over a limit. extracts: whether the request runs a model."""
        if extracts:
            self.refuse(tenant, math.inf, SHORT_TOKENS)
        return self._rates.request(tenant)

    def quota(self, tenant: Tenant) -> Mapping[str, str]:
        """The response headers that say how many requests the tenant may still send."""
        return self._rates.headers(tenant)

    def count_unread(self, tenant: Tenant, model: str | None = None) -> Callable[[], None]:
        """See `OverloadPolicy.count_unread`. A request without a model counts for the default."""
        policies = self._policies_for(model)
        return policies[0].count_unread(tenant) if policies else lambda: None

    def _check(self, tenant: Tenant, timeout_s: float, cost: float, model: str | None, share: float) -> None:
        """Raise `QueueFull` if the request's model refuses it or, while the model is not known, if every model does."""
        policies = self._policies_for(model)
        for policy in policies[:-1]:
            with suppress(QueueFull):
                policy.check(tenant, timeout_s, cost, share=share)
                return
        if policies:  # not in the loop: to keep an error there and raise it later would make a reference cycle
            policies[-1].check(tenant, timeout_s, cost, share=share)

    def _policies_for(self, model: str | None) -> list[OverloadPolicy]:
        return [self.policies[model]] if model in self.policies else list(self.policies.values())
