"""How many texts a client sends to one server concurrently, and when it repeats a refused request. Without IO."""

from __future__ import annotations

import random
from dataclasses import dataclass

_FIRST_DELAY_S, _MAX_DELAY_S = 0.25, 8.0


@dataclass(eq=False)
class SendWindow:
    """The maximum number of unanswered texts: additive increase, multiplicative decrease (AIMD), as in TCP.

    It doubles until the first refusal, and then grows by `step` per window of accepted texts. most, step: its largest
    and smallest size. under_way: texts that are sent and not answered. round: number of decreases.
    """

    most: int
    step: int
    size: float = 0
    under_way: int = 0
    round: int = 0

    def __post_init__(self) -> None:
        self.size = self.size or min(2 * self.step, self.most)

    def has_room(self, texts: int) -> bool:
        """Whether `texts` more texts may be sent; always true if none is under way."""
        return not self.under_way or self.under_way + texts <= self.size

    def accepted(self, texts: int) -> None:
        """The server has answered `texts` texts."""
        growth = texts if not self.round else texts * self.step / self.size
        self.size = min(self.most, self.size + growth)

    def refused(self, sent_in: int) -> None:
        """The server has refused a request. sent_in: `round` when it was sent: one overload halves the window once."""
        if sent_in == self.round:
            self.size = max(min(self.step, self.most), self.size / 2)
            self.round += 1


def delay_s(attempt: int, retry_after_s: float) -> float:
    """Seconds until the next attempt: exponential with jitter, not before `Retry-After`. attempt: from 0."""
    backoff_s = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2**attempt)
    return retry_after_s + random.uniform(0, backoff_s)
