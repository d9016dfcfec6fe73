"""How many replicas there should be: the autoscaling policy of the deployment. No Ray, no IO."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

WAITING_TOKENS = "waiting_tokens"
BUSY_LANES = "busy_lanes"
"""Names of the metrics that each replica reports: waiting tokens, and the fraction of its lanes that run a batch."""

_SATURATED = 0.8
"""From this mean fraction of busy lanes, all replicas count as busy, because lanes are idle between batches."""

_SLACK = 0.05
"""Subtracted from the sum of all fractions of busy lanes, so that no replica is kept for a few short batches."""


class Context(Protocol):
    """The part of Ray's `AutoscalingContext` that is used. aggregated_metrics: means by metric and replica."""

    target_num_replicas: int
    aggregated_metrics: Mapping[str, Mapping[Any, float]] | None


class WaitingTokensPolicy:
    """One replica per `target_waiting_tokens` waiting tokens, and at least as many as are busy. While all are busy, the
    number is not lowered, because replicas that are still starting are needed too.

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
        for_waiting = math.ceil(sum(waiting.values()) / self._target)
        for_running = math.ceil(sum(busy.values()) - _SLACK)
        if sum(busy.values()) >= _SATURATED * len(busy):
            for_running = max(for_running, context.target_num_replicas)
        return max(1, for_waiting, for_running), {}
