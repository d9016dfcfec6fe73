"""How many replicas there should be: the autoscaling policy of the deployment. No Ray, no IO."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

WAITING_TOKENS = "waiting_tokens"
BUSY_LANES = "busy_lanes"
"""Names of the metrics that each replica reports: waiting tokens, and the fraction of its lanes that run a batch."""

_SATURATED = 0.8
"""Above this fraction of busy lanes a replica counts as fully busy: between batches, it decodes or awaits a request."""

_SLACK = 0.05
"""Busy lanes, in replicas, that are ignored: a replica is not kept for them."""


class Context(Protocol):
    """The part of Ray's `AutoscalingContext` that is used. aggregated_metrics: means by name and replica."""

    target_num_replicas: int
    aggregated_metrics: Mapping[str, Mapping[Any, float]] | None


class WaitingTokensPolicy:
    """One replica per `target_waiting_tokens` waiting tokens, and at least as many as are busy. While all are busy, the
    number is not lowered: replicas that are still starting are needed too.

    Ray keeps the result between `min_replicas` and `max_replicas`, and applies the delays of the configuration.
    """

    def __init__(self, target_waiting_tokens: int) -> None:
        self._target = target_waiting_tokens

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """The number of replicas, and the policy's state, which is empty."""
        metrics = context.aggregated_metrics or {}
        waiting, busy = metrics.get(WAITING_TOKENS), metrics.get(BUSY_LANES)
        if not waiting or not busy:  # nothing has been reported
            return context.target_num_replicas, {}
        waited_for = math.ceil(sum(waiting.values()) / self._target)
        kept = math.ceil(sum(busy.values()) - _SLACK)
        if sum(busy.values()) >= _SATURATED * len(busy):
            kept = max(kept, context.target_num_replicas)
        return max(1, waited_for, kept), {}
