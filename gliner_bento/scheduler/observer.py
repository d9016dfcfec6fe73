"""What the scheduler tells whoever measures it. Knows no metrics library."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Literal, Protocol

logger = logging.getLogger(__name__)

Outcome = Literal["completed", "failed", "aborted", "expired", "refused"]


class Observer(Protocol):
    """Hooks for metrics, called from the scheduler's threads, several at once. They must not block."""

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float, forward_s: float) -> None:
        """A batch has run; `wait_s` is its oldest item's time from admission to the device."""

    def on_split(self, size: int) -> None:
        """A batch of `size` items failed and is run again in halves."""

    def on_finish(self, outcome: Outcome) -> None:
        """An item has ended, or was refused at admission."""


class Tally(Observer):
    """Counts everything since it was made, under the names of `Stats`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float, forward_s: float) -> None:
        self._add(batches=1, batched_items=size, padded_tokens=padded_tokens, real_tokens=real_tokens)

    def on_split(self, size: int) -> None:
        self._add(splits=1)

    def on_finish(self, outcome: Outcome) -> None:
        self._add(**{outcome: 1})

    def counts(self) -> Counter[str]:
        """A copy; what has not happened counts 0."""
        with self._lock:
            return self._counts.copy()

    def _add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)


class GuardedObserver(Observer):
    """Passes on to `observers` in turn; what one raises is logged, because measuring must never fail a request."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float, forward_s: float) -> None:
        self._each(lambda observer: observer.on_batch(size, padded_tokens, real_tokens, wait_s, forward_s))

    def on_split(self, size: int) -> None:
        self._each(lambda observer: observer.on_split(size))

    def on_finish(self, outcome: Outcome) -> None:
        self._each(lambda observer: observer.on_finish(outcome))

    def _each(self, tell: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception:
                logger.exception("an observer failed")
