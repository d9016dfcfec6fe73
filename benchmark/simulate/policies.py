"""How a replica is chosen: by the fleet's own dispatcher, and by those that it is compared with.

All keep the dispatcher's limit, its queue and its list of healthy replicas; only the choice differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from gliner_bento.replicas.fleet.dispatch import Dispatcher


class RoundRobin(Dispatcher):
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


class Random(Dispatcher):
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


class PowerOfTwo(Dispatcher):
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


POLICIES: dict[str, Callable[[int, int], Dispatcher]] = {
    "ours": Dispatcher,
    "power of two": PowerOfTwo,
    "round robin": RoundRobin,
    "random": Random,
}
