"""The scheduler's hooks for metrics and traces. Knows no library for either."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

logger = logging.getLogger(__name__)

Outcome = Literal["completed", "failed", "aborted", "expired", "refused"]
Stage = Literal["prepare", "collate", "forward", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTiming:
    """The timing of an item or pass that was decoded. Times are in seconds of the scheduler's clock.

    trace: as submitted with the item. stages: name, start and end of each stage of its batch, in order.
    """

    trace: str
    request_id: str
    admitted_s: float
    stages: Sequence[tuple[Stage, float, float]]
    batch_items: int
    batch_tokens: int


class Observer(Protocol):
    """Hooks, called concurrently from the scheduler's threads. They must not block. A subclass may define only some
    hooks; the others do nothing. Their `return` is for mypy, which otherwise takes them as abstract."""

    def on_stage(self, stage: Stage, seconds: float) -> None:
        """A stage has done its work: `prepare` on one item, the others on a batch."""
        return

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        """The model has run on a batch. wait_s: time from the admission of its oldest item to the start of this run."""
        return

    def on_express(self) -> None:
        """The express lane takes a batch."""
        return

    def on_split(self, size: int) -> None:
        """A batch of `size` items failed, or no longer fits the device, and is run in halves."""
        return

    def on_not_finite(self) -> None:
        """An item has failed because its scores are not finite."""
        return

    def on_finish(self, outcome: Outcome, items: int = 1) -> None:
        """Items have finished, or were refused at admission."""
        return

    def on_traced(self, timing: ItemTiming) -> None:
        """An item or pass that was submitted with a trace has been decoded."""
        return


class GuardedObserver(Observer):
    """Calls all `observers`; their exceptions are logged, because measuring must never fail a request."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def on_stage(self, stage: Stage, seconds: float) -> None:
        self._call(lambda observer: observer.on_stage(stage, seconds))

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        self._call(lambda observer: observer.on_batch(size, padded_tokens, real_tokens, wait_s))

    def on_express(self) -> None:
        self._call(lambda observer: observer.on_express())

    def on_split(self, size: int) -> None:
        self._call(lambda observer: observer.on_split(size))

    def on_not_finite(self) -> None:
        self._call(lambda observer: observer.on_not_finite())

    def on_finish(self, outcome: Outcome, items: int = 1) -> None:
        self._call(lambda observer: observer.on_finish(outcome, items))

    def on_traced(self, timing: ItemTiming) -> None:
        self._call(lambda observer: observer.on_traced(timing))

    def _call(self, hook: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                hook(observer)
            except Exception:
                logger.exception("an observer failed")
