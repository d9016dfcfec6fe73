"""How many texts a client sends to one server concurrently, and when it repeats a refused request. Does no IO."""

from __future__ import annotations

import random
from dataclasses import dataclass

_FIRST_DELAY_S, _MAX_DELAY_S = 0.25, 8.0


@dataclass(eq=False)
class SendWindow:
    """Limits the number of unanswered texts to `size`: additive increase, multiplicative decrease (AIMD), as in TCP.

    Each time `size` texts have been accepted, `size` doubles or, after the first refusal, grows by `step`. A refusal
    halves `size`, but not below `step`; `size` never exceeds `max_size`. under_way: number of texts sent and not yet
    answered. decreases: how often a refusal has reduced `size`.
    """

    max_size: int
    step: int
    size: float = 0
    under_way: int = 0
    decreases: int = 0

    def __post_init__(self) -> None:
        self.size = self.size or min(2 * self.step, self.max_size)

    def has_room(self, texts: int) -> bool:
        """Whether a request with `texts` texts may be sent; always true if no text is under way."""
        return not self.under_way or self.under_way + texts <= self.size

    def accepted(self, texts: int) -> None:
        """Note that the server has answered `texts` texts."""
        growth = texts * self.step / self.size if self.decreases else texts
        self.size = min(self.max_size, self.size + growth)

    def refused(self, decreases: int) -> None:
        """Note a refusal. decreases: `self.decreases` when the request was sent. If it has changed since, `size` was
        already halved for this overload."""
        if decreases == self.decreases:
            self.size = max(min(self.step, self.max_size), self.size / 2)
            self.decreases += 1


def delay_s(attempt: int, retry_after_s: float) -> float:
    """Seconds until the next attempt: `retry_after_s` and a random part of an exponential backoff. attempt: from 0."""
    backoff_s = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2**attempt)
    return retry_after_s + random.uniform(0, backoff_s)
