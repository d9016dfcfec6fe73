"""Admission by cost: a request that would wait too long is refused before anything is paid for it.

The gateway knows the requests that it has sent and not got back, and measures how many tokens are answered per second
while the replica is busy. From these it estimates how long a new request would wait. The scheduler shares the replica
fairly, so a short request does not wait for all of a long one: a request counts for no more than its turn, or than the
new request itself takes. The scheduler's `queue_capacity` limits items whatever they cost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gliner_bento.errors import QueueFull
from gliner_bento.token_estimate import TokenEstimate
from gliner_bento.types import Extraction, Item

TURN_S = 0.2
PASS_TOKENS = 512
"""What one request may take of the replica before a later one has its turn: so much time, and at least one pass."""

BURST_FACTOR = 2
BURST_S = 1.0
"""A burst may wait so many times as long as `max_queue_wait_s`, until the wait has been too long for so many seconds.
The next burst can come when the queue is half as long as it may be."""

ASSUMED_TOKENS_PER_S = 2500.0
"""The throughput before it has been measured."""

_HALF_LIFE_S = 5.0
_MEASURED_S = 0.2


@dataclass(slots=True, eq=False)
class Admitted:
    """A request that has been sent to the replica. Costs are estimates, in tokens; turn: at most that of one turn."""

    items: int
    cost: float
    turn: float


class Admission:
    """The requests under way, and whether another one may join them. For one event loop.

    max_queue_wait_s: see the setting. max_batch_size: as many items are always admitted, so that batches can be full.
    """

    def __init__(
        self, *, max_queue_wait_s: float, max_batch_size: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_wait_s = max_queue_wait_s
        self._batch = max_batch_size
        self._throughput = Throughput(clock)
        self._estimate = TokenEstimate()
        self._clock = clock
        self._admitted: set[Admitted] = set()
        self._items = 0
        self._turns = 0.0
        self._overloaded_since_s: float | None = None

    def check(self) -> None:
        """Raise `QueueFull` if a short request would wait longer than `max_queue_wait_s`, and not as part of a burst.
        Cheap."""
        if self._items < self._batch:
            if self._items < self._batch / 2:
                self._overloaded_since_s = None
            return
        wait_s = self._turns / (self._throughput.rate or ASSUMED_TOKENS_PER_S)
        if wait_s > self._max_wait_s * (1 if self._lasts(wait_s) else BURST_FACTOR):
            raise _refusal(wait_s - self._max_wait_s)

    @contextmanager
    def admit(self, items: Sequence[Item], deadline_s: float) -> Iterator[None]:
        """Count a request while it is under way. Raises `QueueFull` instead if it would miss its deadline.

        deadline_s: on the clock.
        """
        self.check()
        rate = self._throughput.rate
        cost = sum(map(self._estimate.estimate, items))
        if rate is not None and self._items >= self._batch:
            excess_s = (self._ahead_of(cost, rate) + cost) / rate - (deadline_s - self._clock())
            if excess_s > 0:
                raise _refusal(excess_s)
        request = Admitted(len(items), cost, min(cost, _turn(rate)))
        self._count(request, 1)
        try:
            yield
        finally:
            self._count(request, -1)

    def learn(self, item: Item, result: Extraction) -> None:
        """Note a result: what its item cost, and that it is done."""
        tokens = result.usage.tokens
        self._estimate.learn(item, tokens)
        self._throughput.add(tokens)

    def _lasts(self, wait_s: float) -> bool:
        """Whether the wait has been too long for more than `BURST_S`."""
        now_s = self._clock()
        if wait_s > self._max_wait_s and self._overloaded_since_s is None:
            self._overloaded_since_s = now_s
        elif wait_s < self._max_wait_s / 2:
            self._overloaded_since_s = None
        return self._overloaded_since_s is not None and now_s - self._overloaded_since_s > BURST_S

    def _ahead_of(self, cost: float, rate: float) -> float:
        """Tokens that run before a request of `cost` has finished."""
        if cost <= _turn(rate):
            return self._turns
        return sum(min(request.cost, cost) for request in self._admitted)

    def _count(self, request: Admitted, sign: int) -> None:
        (self._admitted.add if sign > 0 else self._admitted.discard)(request)
        self._items += sign * request.items
        self._turns += sign * request.turn
        self._throughput.busy(self._items >= self._batch)


class Throughput:
    """Tokens per second while there is enough to do, over the last seconds of such time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s: float | None = None
        self._tokens = 0.0
        self._elapsed_s = 0.0

    @property
    def rate(self) -> float | None:
        """Tokens per second; None until it has been measured."""
        return self._tokens / self._elapsed_s if self._elapsed_s >= _MEASURED_S and self._tokens else None

    def busy(self, busy: bool) -> None:
        """Whether there is enough to do from now on."""
        if busy and self._since_s is None:
            self._since_s = self._clock()
        elif not busy:
            self._since_s = None

    def add(self, tokens: int) -> None:
        """Tokens that have just been answered."""
        if self._since_s is None:
            return
        now_s = self._clock()
        elapsed_s, self._since_s = now_s - self._since_s, now_s
        kept = 0.5 ** (elapsed_s / _HALF_LIFE_S)
        self._tokens = self._tokens * kept + tokens
        self._elapsed_s = self._elapsed_s * kept + elapsed_s


def _turn(rate: float | None) -> float:
    """The most that one request may take in its turn, in tokens."""
    return max(PASS_TOKENS, TURN_S * (rate or 0))


def _refusal(excess_s: float) -> QueueFull:
    return QueueFull("the server is overloaded; try again later", retry_after_s=math.ceil(max(1.0, excess_s)))
