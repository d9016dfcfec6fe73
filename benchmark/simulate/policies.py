"""How a replica is chosen: by the fleet's own dispatcher, and by those that it is compared with.

All keep the dispatcher's limit, its queue and its list of healthy replicas; only the choice differs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from gliner_bento.fairness.constants import ITEM_TOKENS
from gliner_bento.replicas.fleet.dispatch import Dispatcher, Ticket


class Metered(Dispatcher):
    """The fleet's own. cpu_ns: CPU time of placing and ending tickets; probe_cpu_ns: of noting resident adapters."""

    def __init__(self, replicas: int, max_outstanding_tokens: int) -> None:
        super().__init__(replicas, max_outstanding_tokens)
        self.cpu_ns = 0
        self.probe_cpu_ns = 0

    def submit(self, ticket: Ticket, *, first: bool = False) -> bool:
        """See `Dispatcher`."""
        began_ns = time.thread_time_ns()
        placed = super().submit(ticket, first=first)
        self.cpu_ns += time.thread_time_ns() - began_ns
        return placed

    def end(self, ticket: Ticket) -> None:
        """See `Dispatcher`."""
        began_ns = time.thread_time_ns()
        super().end(ticket)
        self.cpu_ns += time.thread_time_ns() - began_ns

    def set_resident(self, replica: int, adapter_ids: Iterable[str]) -> None:
        """See `Dispatcher`."""
        began_ns = time.thread_time_ns()
        super().set_resident(replica, adapter_ids)
        self.probe_cpu_ns += time.thread_time_ns() - began_ns


class LeastOutstanding(Metered):
    """The fewest outstanding tokens, without regard to adapters."""

    def _choose(self, adapter_id: str | None) -> int | None:
        return super()._choose(None)


class TokensAlone(Metered):
    """As the fleet's own, but for texts, which count nothing besides their tokens. For requests of one text."""

    def submit(self, ticket: Ticket, *, first: bool = False) -> bool:
        """See `Dispatcher`."""
        ticket.cost = max(1, ticket.cost - ITEM_TOKENS)
        return super().submit(ticket, first=first)


class RoundRobin(Metered):
    """The next replica that is not full."""

    _latest = -1

    def _choose(self, adapter_id: str | None) -> int | None:
        count = len(self.outstanding)
        for step in range(1, count + 1):
            replica = (self._latest + step) % count
            if replica in self._open and self.outstanding[replica] < self._max:
                self._latest = replica
                return replica
        return None


class Random(Metered):
    """Any replica that is not full, as a Kubernetes Service does per connection."""

    def __init__(self, replicas: int, max_outstanding_tokens: int) -> None:
        super().__init__(replicas, max_outstanding_tokens)
        self._rng = random.Random(replicas)

    def _choose(self, adapter_id: str | None) -> int | None:
        least = super()._choose(None)
        if least is None:
            return None
        outstanding, _, replica = self._rng.choice(self._order)
        return replica if outstanding < self._max else least


class PowerOfTwo(Metered):
    """Of two replicas at random, the one with fewer outstanding tokens."""

    def __init__(self, replicas: int, max_outstanding_tokens: int) -> None:
        super().__init__(replicas, max_outstanding_tokens)
        self._rng = random.Random(replicas)

    def _choose(self, adapter_id: str | None) -> int | None:
        if not self._order or self._order[0][0] >= self._max:
            return None
        pair = self._rng.choices(self._order, k=2)
        outstanding, _, replica = min(pair)
        return replica if outstanding < self._max else self._order[0][2]


POLICIES: dict[str, Callable[[int, int], Metered]] = {
    "ours": Metered,
    "tokens alone": TokensAlone,
    "without affinity": LeastOutstanding,
    "power of two": PowerOfTwo,
    "round robin": RoundRobin,
    "random": Random,
}
