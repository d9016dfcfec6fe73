"""The scheduler's hooks for metrics. Knows no metrics library."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

logger = logging.getLogger(__name__)

Outcome = Literal["completed", "failed", "aborted", "expired", "refused"]
Stage = Literal["prepare", "collate", "forward", "decode"]


class Observer(Protocol):
    """Hooks, called concurrently from the scheduler's threads. They must not block."""

    def on_stage(self, stage: Stage, seconds: float) -> None:
        """A stage has done its work: `prepare` on one item, the others on a batch."""

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        """A batch was forwarded; `wait_s` is its oldest item's time from admission to the device."""

    def on_split(self, size: int) -> None:
        """A batch of `size` items failed, or no longer fits the device, and is run in halves."""

    def on_not_finite(self) -> None:
        """An item has failed because its scores are not numbers."""

    def on_finish(self, outcome: Outcome) -> None:
        """An item has finished, or was refused at admission."""


class SilentObserver(Observer):
    """Hooks that do nothing, for observers that need only some."""

    def on_stage(self, stage: Stage, seconds: float) -> None:
        """See `Observer`."""

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        """See `Observer`."""

    def on_split(self, size: int) -> None:
        """See `Observer`."""

    def on_not_finite(self) -> None:
        """See `Observer`."""

    def on_finish(self, outcome: Outcome) -> None:
        """See `Observer`."""


class GuardedObserver(Observer):
    """Calls all `observers`; their exceptions are logged, because measuring must never fail a request."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def on_stage(self, stage: Stage, seconds: float) -> None:
        self._call(lambda observer: observer.on_stage(stage, seconds))

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        self._call(lambda observer: observer.on_batch(size, padded_tokens, real_tokens, wait_s))

    def on_split(self, size: int) -> None:
        self._call(lambda observer: observer.on_split(size))

    def on_not_finite(self) -> None:
        self._call(lambda observer: observer.on_not_finite())

    def on_finish(self, outcome: Outcome) -> None:
        self._call(lambda observer: observer.on_finish(outcome))

    def _call(self, hook: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                hook(observer)
            except Exception:
                logger.exception("an observer failed")
