"""What the scheduler's tests stand on: a clock that stands still, and a gate in front of the device."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Protocol

from hypothesis import HealthCheck, settings

from gliner_bento.engine.base import Engine, Prepared
from gliner_bento.scheduler.observer import Observer
from gliner_bento.scheduler.scheduler import Scheduler

PATIENCE_S = 60.0  # a safety net: no test passes or fails by waiting, unless something hangs

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine fails no property


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Gate:
    """Stands in front of `forward`: tells which batch has come, and holds it until it is let through."""

    def __init__(self) -> None:
        self._arrivals: queue.Queue[list[str]] = queue.Queue()
        self._passes = threading.Semaphore(0)

    def __call__(self, batch: Sequence[Prepared]) -> None:
        self._arrivals.put([prepared.item.text for prepared in batch])
        if not self._passes.acquire(timeout=PATIENCE_S):
            raise TimeoutError("nobody opened the gate")

    def arrival(self) -> list[str]:
        """The texts of the next batch that comes to the gate."""
        return self._arrivals.get(timeout=PATIENCE_S)

    @property
    def nobody_came(self) -> bool:
        return self._arrivals.empty()

    def let_through(self, batches: int = 1) -> None:
        self._passes.release(batches)

    def open(self) -> None:
        self.let_through(10_000)


class Start(Protocol):
    """Start a scheduler with these settings changed."""

    def __call__(self, engine: Engine, *, observer: Observer | None = None, **changes: int) -> Scheduler: ...
