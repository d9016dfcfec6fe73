"""Replicas that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from serving import FleetServing, HttpServing, LocalServing, MemoryServing, RayServing, Serving

from gliner_bento.replicas import remote

PATIENCE_S = 240.0

KINDS = {
    "local": LocalServing,
    "http": HttpServing,
    "fleet": FleetServing,
    "memory": MemoryServing,
    **({"ray": RayServing} if find_spec("ray") else {}),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> type[Serving]:
    return KINDS[request.param]


@pytest.fixture
def start(kind: type[Serving], tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Serving]]:
    """Starts a replica of each kind, with the options of a `Serving`. A slow one is waited for."""
    monkeypatch.setattr(remote, "GRACE_S", PATIENCE_S)
    monkeypatch.setattr(remote, "CONTROL_TIMEOUT_S", PATIENCE_S)
    started: list[Serving] = []

    def start(**options: Any) -> Serving:
        started.append(kind(tmp_path / "uploads", **options))
        return started[-1]

    yield start
    for serving in started:
        serving.end()


@pytest.fixture
def serving(start: Callable[..., Serving]) -> Serving:
    return start()
