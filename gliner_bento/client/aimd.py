"""How many requests one server is sent concurrently, and when a refused request is sent again. Without IO."""

from __future__ import annotations

import random
from dataclasses import dataclass

_FIRST_DELAY_S, _MAX_DELAY_S = 0.25, 8.0


@dataclass(eq=False)
class SendWindow:
    """The number of texts that a server may have: additive increase, multiplicative decrease (AIMD), as in TCP.

    It doubles until the first refusal. step: what it then grows by, per window of accepted texts; its least size.
    under_way: texts that are sent and not answered.
    """

    most: int
    step: int
    size: float = 0
    under_way: int = 0
    round: int = 0

    def __post_init__(self) -> None:
        self.size = self.size or min(2 * self.step, self.most)

    def has_room(self, texts: int) -> bool:
        """Whether so many more may be sent; always if there are none."""
        return not self.under_way or self.under_way + texts <= self.size

    def accepted(self, texts: int) -> None:
        """The server has answered so many."""
        growth = texts if not self.round else texts * self.step / self.size
        self.size = min(self.most, self.size + growth)

    def refused(self, sent_in: int) -> None:
        """The server has refused a request. sent_in: `round` at that time: one overload shrinks the window once."""
        if sent_in == self.round:
            self.size = max(min(self.step, self.most), self.size / 2)
            self.round += 1


def delay_s(attempt: int, retry_after_s: float) -> float:
    """Seconds until the next attempt: exponential with jitter, not before `Retry-After`. attempt: from 0."""
    backoff_s = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2**attempt)
    return retry_after_s + random.uniform(0, backoff_s)
