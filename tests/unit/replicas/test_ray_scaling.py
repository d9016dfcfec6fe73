"""How many replicas a Ray cluster should have. Needs no Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from gliner_bento.replicas.ray.scaling import BUSY_LANES, WAITING_TOKENS, WaitingTokensPolicy


@dataclass
class Context:
    target_num_replicas: int
    aggregated_metrics: dict[str, dict[Any, float]] | None


def wanted(waiting: list[float], busy: list[float], target: int | None = None) -> int:
    metrics = {WAITING_TOKENS: dict(enumerate(waiting)), BUSY_LANES: dict(enumerate(busy))}
    number, state = WaitingTokensPolicy(1000)(Context(target or len(waiting), metrics))
    assert state == {}
    return number


@pytest.mark.parametrize(
    ("waiting", "busy", "expected"),
    [
        ([0], [0.0], 1),
        ([1000], [1.0], 1),
        ([1001], [1.0], 2),
        ([4500], [1.0], 5),
        ([900, 1200], [1.0, 1.0], 3),
        ([0, 0], [1.0, 0.9], 2),
        ([0, 0], [0.5, 0.4], 1),
        ([0, 0, 0, 0], [0.5, 0.5, 0.5, 0.5], 2),
    ],
)
def test_a_replica_per_target_that_waits_and_not_fewer_than_are_busy(waiting, busy, expected):
    assert wanted(waiting, busy) == expected


def test_replicas_that_start_are_kept_while_all_others_are_busy():
    assert wanted([0], [1.0], target=3) == 3
    assert wanted([0, 0], [1.0, 0.99], target=3) == 3
    assert wanted([0], [0.5], target=3) == 1
    assert wanted([0, 0, 0], [1.0, 0.2, 0.1], target=4) == 2


@pytest.mark.parametrize("metrics", [None, {}, {WAITING_TOKENS: {}, BUSY_LANES: {}}])
def test_without_reports_nothing_changes(metrics):
    assert WaitingTokensPolicy(1000)(Context(3, metrics)) == (3, {})
