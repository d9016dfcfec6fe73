"""Tells a standing queue from a burst, by the idea of CoDel (RFC 8289): a burst makes the estimated wait long for a
while, and then it falls; under overload the wait stays long. No clock, no IO."""

from __future__ import annotations

from collections.abc import Callable

from gliner_bento.fairness.constants import CALM_FRACTION, ESTIMATES_PER_INTERVAL


class StandingQueue:
    """A queue stands once its estimated wait has exceeded `max_wait_s` for `interval_s`, until the wait has fallen
    below CALM_FRACTION x `max_wait_s`. So under a lasting overload, the queue is not filled again every `interval_s`.
    """

    def __init__(self, max_wait_s: float, interval_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._interval_s = interval_s
        self._since_s: float | None = None
        self._next_estimate_s = 0.0

    def stands(self, now_s: float, estimate_wait_s: Callable[[], float]) -> bool:
        """Whether the queue stands now. To be called when a request arrives. estimate_wait_s: called from time to time,
        because it may be expensive."""
        if now_s >= self._next_estimate_s:
            self._next_estimate_s = now_s + self._interval_s / ESTIMATES_PER_INTERVAL
            wait_s = estimate_wait_s()
            if wait_s < CALM_FRACTION * self._max_wait_s:
                self._since_s = None
            elif self._since_s is None and wait_s > self._max_wait_s:
                self._since_s = now_s
        return self._since_s is not None and now_s >= self._since_s + self._interval_s
