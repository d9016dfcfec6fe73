"""Admission by cost: a request that would miss its deadline is refused before it costs anything.

The gateway knows the requests that it has sent and not got back, and measures how many tokens the replica runs per
second while it is busy. From these it estimates how long a new request would wait; until it has measured, it refuses
none for its wait. The scheduler shares the replica fairly: a short request does not wait for all of a long one of its
tenant, which counts for no more than the new request itself takes; and while a tenant is served,
another one is served in proportion to its weight, but no more than it has. So a tenant that asks for little is not
refused because another one asks for too much.

Memory is limited by `max_queued_tokens` here and by the scheduler's `queue_capacity`, whatever the items cost.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gliner_bento.errors import QueueFull
from gliner_bento.gateway.tenants import Tenant
from gliner_bento.tasks.base import Item, Result
from gliner_bento.token_estimate import TokenEstimate

SHORT_TOKENS, PASS_TOKENS = 64, 512
"""The cost of a request that has not been read: between that of a short one and that of a pass."""

LARGE_FRACTION = 7 / 8
"""Of `max_queued_tokens`: what requests of more than a pass may fill, so that there is room for short ones."""

MARGIN = 1.5
BATCH_TOKENS = 1024
"""A request is refused if MARGIN x its estimated time is more than it has, or if less than the time of a batch of
BATCH_TOKENS is left then, because it ends with its batch. Else all requests that are admitted under overload would miss
their deadlines by the error of the estimate."""

_FIRST_AVERAGE_TOKENS = 64.0
_WEIGHT = 0.1
"""The average cost of a request before there was one, and the weight of each."""

MEASURED_S = 1.0
REACH = 2
"""There is a throughput after so much busy time, and a request is refused for a wait of at most REACH x that time: the
first seconds of a server, in which the gateway reads a burst, predict little."""

_HALF_LIFE_S = 5.0


@dataclass(slots=True, eq=False)
class Admitted:
    """A request that has been sent to the replica. cost: an estimate, in tokens; priority: lower is served earlier."""

    items: int
    cost: float
    priority: int = 0


@dataclass(slots=True)
class Group:
    """Requests of one priority whose costs differ by a factor of two at most, and their cost."""

    requests: int = 0
    cost: float = 0.0


@dataclass(slots=True)
class TenantLoad:
    """The requests of a tenant that are under way, and their sums."""

    weight: float
    requests: int = 0
    cost: float = 0.0
    groups: dict[tuple[int, int], Group] = field(default_factory=lambda: defaultdict(Group))

    def count(self, request: Admitted, sign: int) -> None:
        """Add a request; sign -1: remove it."""
        self.requests += sign
        self.cost += sign * request.cost
        key = request.priority, int(request.cost).bit_length()
        group = self.groups[key]
        group.requests += sign
        group.cost += sign * request.cost
        if not group.requests:
            del self.groups[key]

    def ahead_of(self, cost: float, priority: int) -> float:
        """Tokens of these requests that run before another one of `cost` has finished: of each no more than that."""
        groups = (group for (other, _), group in self.groups.items() if other <= priority)
        return sum(min(group.cost, group.requests * cost) for group in groups)


class Admission:
    """The requests under way, and whether another one may join them. For one event loop.

    request_timeout_s, max_queue_wait_s, max_queued_tokens: see the settings.
    max_batch_size: of all instances together; as many items are always admitted, so that batches can be full.
    """

    def __init__(
        self,
        *,
        request_timeout_s: float,
        max_queue_wait_s: float,
        max_queued_tokens: int,
        max_batch_size: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout_s = request_timeout_s
        self._max_wait_s = max_queue_wait_s or math.inf
        self._max_tokens = max_queued_tokens or math.inf
        self._batch = max_batch_size
        self._throughput = Throughput(clock)
        self._estimate = TokenEstimate()
        self._clock = clock
        self._loads: dict[str, TenantLoad] = {}
        self._items = 0
        self._tokens = 0.0
        self._average = _FIRST_AVERAGE_TOKENS

    def check(self, tenant: Tenant, timeout_s: float = math.inf, cost: float = SHORT_TOKENS, priority: int = 0) -> None:
        """Raise `QueueFull` if a request of `tenant` would wait longer than `max_queue_wait_s`, or miss its deadline.
        Cheap; for a request that has not been read. timeout_s: its own, if it is known."""
        load = self._load_of(tenant)
        self._check_tokens(load, 1)
        if rate := self._rate_when_busy():
            ahead = load.ahead_of(cost, priority)
            wait_s = (ahead + self._of_others(load, ahead + PASS_TOKENS)) / rate
            self._check_wait(wait_s, min(self._max_wait_s, _max_wait_s(min(timeout_s, self._timeout_s), rate)))

    @contextmanager
    def admit(self, items: Sequence[Item], deadline_s: float, tenant: Tenant, priority: int = 0) -> Iterator[None]:
        """Count a request while it is under way. Raises `QueueFull` instead if it would miss its deadline.

        deadline_s: on the clock.
        """
        left_s = deadline_s - self._clock()
        cost = sum(map(self._estimate.estimate, items))
        self.check(tenant, left_s, min(cost, PASS_TOKENS), priority)
        load = self._load_of(tenant)
        self._check_tokens(load, cost)
        rate = self._rate_when_busy()
        if rate and cost > PASS_TOKENS:  # else it is short: `check` has decided
            ahead = load.ahead_of(cost, priority)
            wait_s = (ahead + self._of_others(load, ahead + cost) + cost) / rate
            self._check_wait(wait_s, _max_wait_s(left_s, rate))
        self._average += _WEIGHT * (cost - self._average)
        leave = self._enter(tenant, Admitted(len(items), cost, priority))
        try:
            yield
        finally:
            leave()

    def expect(self, tenant: Tenant) -> Callable[[], None]:
        """Count a request that waits to be read, as if its cost were the average; returns what ends this."""
        return self._enter(tenant, Admitted(1, self._average))

    def retry_after_s(self, items: int) -> int:
        """When so many items may find a place in a queue that is full of items."""
        cost = self._tokens / max(1, self._items)
        return math.ceil(max(1.0, self._seconds(items * cost)))

    def learn(self, item: Item, result: Result) -> None:
        """Note what an item cost."""
        self._estimate.learn(item, result.usage.tokens)

    def observe(self, tokens_run: int) -> None:
        """Note how many tokens the replica has run."""
        self._throughput.observe(tokens_run)

    def _enter(self, tenant: Tenant, request: Admitted) -> Callable[[], None]:
        """Count a request; returns what ends this."""
        load = self._loads.setdefault(tenant.name, self._load_of(tenant))
        self._count(load, request, 1)

        def leave() -> None:
            self._count(load, request, -1)
            if not load.requests:
                del self._loads[tenant.name]

        return leave

    def _check_wait(self, wait_s: float, max_s: float) -> None:
        if wait_s > max_s and max_s <= REACH * self._throughput.measured_s:
            raise _refusal(wait_s - max_s)

    def _rate_when_busy(self) -> float | None:
        """Tokens per second; None if a new request would not wait, or if it has not been measured."""
        return self._throughput.rate if self._items >= self._batch else None

    def _seconds(self, tokens: float) -> float:
        """How long the replica takes for so many tokens; 0 until that has been measured."""
        return tokens / (self._throughput.rate or math.inf)

    def _load_of(self, tenant: Tenant) -> TenantLoad:
        load = self._loads.get(tenant.name)
        if load is None:
            return TenantLoad(tenant.weight)
        load.weight = tenant.weight
        return load

    def _of_others(self, own: TenantLoad, tokens: float) -> float:
        """Tokens of the other tenants that run while a tenant is served so many."""
        share = tokens / own.weight
        return sum(min(load.cost, share * load.weight) for load in self._loads.values() if load is not own)

    def _check_tokens(self, own: TenantLoad, cost: float) -> None:
        """Raise `QueueFull` if the tokens under way would be too many. As in the scheduler's queue, a tenant that has
        less than an equal share of them is still admitted, up to twice the limit."""
        limit = self._max_tokens * (1 if cost <= PASS_TOKENS else LARGE_FRACTION)
        excess = self._tokens + cost - limit
        if excess <= 0 or not self._tokens:
            return
        tenants = len(self._loads) + (not own.requests)
        if excess > limit or (own.cost + cost) * tenants > limit:
            raise _refusal(self._seconds(excess))

    def _count(self, load: TenantLoad, request: Admitted, sign: int) -> None:
        load.count(request, sign)
        self._items += sign * request.items
        self._tokens = self._tokens + sign * request.cost if self._items else 0.0
        self._throughput.busy(self._items >= self._batch)


class Throughput:
    """Tokens per second while there is enough to do, over the last seconds of such time. measured_s: all of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._busy = False
        self._observed: tuple[float, int] | None = None  # when, and how many tokens the replica had run
        self._tokens = 0.0
        self._elapsed_s = 0.0
        self.measured_s = 0.0

    @property
    def rate(self) -> float | None:
        """Tokens per second; None until it has been measured."""
        return self._tokens / self._elapsed_s if self.measured_s >= MEASURED_S and self._tokens else None

    def busy(self, busy: bool) -> None:
        """Whether there is enough to do from now on."""
        self._busy = busy
        if not busy:
            self._observed = None

    def observe(self, tokens_run: int) -> None:
        """How many tokens the replica has run since its start."""
        if not self._busy:
            return
        now_s = self._clock()
        if self._observed and self._observed[1] <= tokens_run:  # else it has restarted
            since_s, before = self._observed
            kept = 0.5 ** ((now_s - since_s) / _HALF_LIFE_S)
            self._tokens = self._tokens * kept + tokens_run - before
            self._elapsed_s = self._elapsed_s * kept + now_s - since_s
            self.measured_s += now_s - since_s
        self._observed = now_s, tokens_run


def _max_wait_s(timeout_s: float, rate: float) -> float:
    """The longest estimated wait of a request that can be answered within `timeout_s`."""
    return timeout_s / MARGIN - BATCH_TOKENS / rate


def _refusal(excess_s: float) -> QueueFull:
    return QueueFull("the server is overloaded; try again later", retry_after_s=math.ceil(max(1.0, excess_s)))
