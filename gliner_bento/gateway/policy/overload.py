"""The policy of an overloaded model: refuses requests because too many others are under way.

It has two entry points: `check`, for `admission`, before the body of a request is read; and `admit`, before the items
are sent to the replica, when their cost and deadline are known.

A request is refused

- if it would exceed `max_queued_tokens`, which limits memory (the scheduler and the fleet limit the number of waiting
  items);
- if it would miss its deadline;
- if it would wait longer than `max_queue_wait_s` in a queue that stands (`StandingQueue`): its tenant's queue, or that
  of a tenant without requests under way, which many tenants together overload. A burst may wait until its deadline.

To estimate waits, the gateway counts its requests that the replica has not answered, and measures how many tokens per
second a busy replica runs. Until it has measured that, no request is refused for its wait. The estimated wait follows
the scheduler's fair order:

- a request does not wait until longer requests of its tenant have finished, so each request of the tenant counts with
  at most the cost of the new request;
- while a tenant is served, other tenants are served in proportion to their weights, but no more than they have sent.

So a tenant that sends little is not refused because another tenant sends too much. The requests of other gateway
processes count as those of one more tenant. The constants are in `gliner_bento/fairness/constants.py`.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from gliner_bento.errors import QueueFull
from gliner_bento.fairness.capacity import SharedCapacity
from gliner_bento.fairness.constants import (
    AVERAGE_WEIGHT,
    BATCH_TOKENS,
    FIRST_AVERAGE_TOKENS,
    HALF_LIFE_S,
    LARGE_FRACTION,
    MARGIN,
    MAX_EXTRAPOLATION,
    MEASURED_S,
    MEASURING_FRACTION,
    OTHER_GATEWAYS_S,
    PASS_TOKENS,
    SHORT_TOKENS,
)
from gliner_bento.fairness.token_estimate import TokenEstimate
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.standing_queue import StandingQueue
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.tasks.base import Item, Result


@dataclass(slots=True, eq=False)
class CountedRequest:
    """A request that is under way. cost: estimated, in tokens. priority: lower is served earlier."""

    items: int
    cost: int
    priority: int = 0


@dataclass(slots=True)
class CostGroup:
    """The number and the total cost of requests that have one priority and, within a factor of two, the same cost."""

    requests: int = 0
    cost: int = 0


@dataclass(slots=True)
class TenantLoad:
    """The number and the total cost of a tenant's requests that are under way, in total and by `CostGroup`. groups: by
    priority and bit length of the cost."""

    weight: float
    queue: StandingQueue
    requests: int = 0
    cost: int = 0
    groups: dict[tuple[int, int], CostGroup] = field(default_factory=lambda: defaultdict(CostGroup))

    def count(self, request: CountedRequest, sign: int) -> None:
        """Add a request (sign 1) or remove it (sign -1)."""
        self.requests += sign
        self.cost += sign * request.cost
        key = request.priority, request.cost.bit_length()
        group = self.groups[key]
        group.requests += sign
        group.cost += sign * request.cost
        if not group.requests:
            del self.groups[key]

    def tokens_ahead(self, cost: float, priority: float) -> float:
        """Tokens of these requests that run before a new request of `cost` has finished: at most `cost` per request."""
        groups = (group for (group_priority, _), group in self.groups.items() if group_priority <= priority)
        return sum(min(group.cost, group.requests * cost) for group in groups)


class OverloadPolicy:
    """Counts the requests of one model that are under way, and decides whether a new request is admitted. Used by
    one event loop.

    options: see the settings request_timeout_s, max_queue_wait_s, queue_wait_interval_s and max_queued_tokens. No
    request is refused for its wait while fewer items are under way than fill a batch of every instance.
    """

    def __init__(self, options: GatewayOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = options.request_timeout_s
        self._max_wait_s = options.max_queue_wait_s or math.inf
        self._new_queue = partial(StandingQueue, self._max_wait_s, options.queue_wait_interval_s)
        self._newcomer = TenantLoad(1.0, self._new_queue())  # a tenant without requests under way
        self._min_busy_items = options.max_batch_size * options.num_instances
        self._clock = clock
        self._throughput = MeasuredThroughput(clock)
        self._estimate = TokenEstimate()
        self._loads: dict[str, TenantLoad] = {}
        self._capacity = SharedCapacity(options.max_queued_tokens or math.inf)
        self._items = 0
        self._average_cost = FIRST_AVERAGE_TOKENS
        self._other_items = 0
        self._probed_s = -math.inf

    def check(
        self,
        tenant: Tenant,
        timeout_s: float = math.inf,
        cost: float = SHORT_TOKENS,
        priority: int = 0,
        share: float = 1.0,
    ) -> None:
        """Raise `QueueFull` if a request of `tenant` would exceed `max_queued_tokens`, wait longer than
        `max_queue_wait_s` in a queue that stands, or miss its deadline. Cheap; for a request that has not been read.
        timeout_s: the request's `timeout_ms`, if it is known. cost: estimated, in tokens. share: fraction of the
        longest allowed wait above which the request is refused."""
        self._check_tokens(tenant, 1)
        if rate := self._rate_when_busy():
            load = self._load_of(tenant)
            wait_s = self._wait_s(load, rate, cost, priority)
            max_s = _max_wait_within(min(timeout_s, self._timeout_s), rate)
            if self._stands(load, rate):
                max_s = min(max_s, self._max_wait_s)
            self._check_wait(wait_s, max_s, share)

    @contextmanager
    def admit(self, items: Sequence[Item], deadline_s: float, tenant: Tenant, priority: int = 0) -> Iterator[None]:
        """Count a request while it is under way. Raises `QueueFull` instead if it would exceed a limit or miss its
        deadline. deadline_s: a time of the clock.
        """
        left_s = deadline_s - self._clock()
        cost = math.ceil(sum(map(self._estimate.estimate, items)))
        self.check(tenant, left_s, min(cost, PASS_TOKENS), priority)
        self._check_tokens(tenant, cost)
        rate = self._rate_when_busy()
        if rate and cost > PASS_TOKENS:  # `check` has decided about cheaper requests
            load = self._load_of(tenant)
            ahead = load.tokens_ahead(cost, priority)
            wait_s = (ahead + self._tokens_of_others(load, ahead + cost) + cost) / rate
            self._check_wait(wait_s, _max_wait_within(left_s, rate))
        self._average_cost += AVERAGE_WEIGHT * (cost - self._average_cost)
        leave = self._enter(tenant, CountedRequest(len(items), cost, priority))
        try:
            yield
        finally:
            leave()

    def count_unread(self, tenant: Tenant) -> Callable[[], None]:
        """Count a request that waits to be read, with the average cost. Returns a function that stops counting it."""
        return self._enter(tenant, CountedRequest(1, math.ceil(self._average_cost)))

    def retry_after_s(self, items: int) -> int:
        """Estimated seconds until a full queue can admit `items` more items."""
        item_cost = self._capacity.total / max(1, self._items)
        return math.ceil(max(1.0, self._seconds(items * item_cost)))

    def learn(self, item: Item, result: Result) -> None:
        """Note the cost of an item."""
        self._estimate.learn(item, result.usage.tokens)

    def observe(self, tokens_run: int) -> None:
        """Note how many tokens the replica has run."""
        self._throughput.observe(tokens_run)

    def probe_other_gateways(self) -> Callable[[int], None] | None:
        """To be called while requests run. If it is time to count the items of other gateways, returns a function that
        takes the replica's current number of unfinished items, and counts those that this gateway has not sent."""
        now_s, items_before = self._clock(), self._items
        if items_before < self._min_busy_items or now_s < self._probed_s + OTHER_GATEWAYS_S:
            return None
        self._probed_s = now_s

        def set_unfinished_items(unfinished_items: int) -> None:
            self._other_items = max(0, unfinished_items - max(items_before, self._items))

        return set_unfinished_items

    @property
    def _items_of_other_gateways(self) -> int:
        """Unfinished items of other gateways, when they were last counted; 0 if that was too long ago."""
        return self._other_items if self._clock() < self._probed_s + MAX_EXTRAPOLATION * OTHER_GATEWAYS_S else 0

    def _enter(self, tenant: Tenant, request: CountedRequest) -> Callable[[], None]:
        """Count a request. Returns a function that stops counting it."""
        load = self._loads.setdefault(tenant.name, self._load_of(tenant))
        self._count(tenant.name, load, request, 1)

        def leave() -> None:
            self._count(tenant.name, load, request, -1)
            if not load.requests:
                del self._loads[tenant.name]

        return leave

    def _wait_s(self, load: TenantLoad, rate: float, cost: float, priority: float) -> float:
        """Estimated seconds until a new request of at most one pass begins to run."""
        ahead = load.tokens_ahead(cost, priority)
        return (ahead + self._tokens_of_others(load, ahead + PASS_TOKENS)) / rate

    def _stands(self, load: TenantLoad, rate: float) -> bool:
        """Whether the queue of the tenant with this load stands, or that of tenants without requests under way."""
        if self._max_wait_s == math.inf:
            return False
        loads, now_s = (load, self._newcomer), self._clock()
        # A list: both are updated by each request.
        stand = [each.queue.stands(now_s, partial(self._wait_s, each, rate, PASS_TOKENS, math.inf)) for each in loads]
        return any(stand)

    def _check_wait(self, wait_s: float, max_s: float, share: float = 1.0) -> None:
        """Raise `QueueFull` for a wait above `share` x `max_s`, unless the measured time is too short to predict it."""
        if wait_s > share * max_s and max_s <= MAX_EXTRAPOLATION * self._throughput.measured_s:
            raise _refusal(wait_s - max_s)

    def _rate_when_busy(self) -> float | None:
        """Tokens per second. None if a new request would not wait, or if there is no measurement."""
        return self._throughput.rate if self._items >= self._min_busy_items else None

    def _seconds(self, tokens: float) -> float:
        """How long the replica takes for `tokens`; 0 until there is a measurement."""
        return tokens / (self._throughput.rate or math.inf)

    def _load_of(self, tenant: Tenant) -> TenantLoad:
        load = self._loads.get(tenant.name)
        if load is None:
            return TenantLoad(tenant.weight, self._new_queue())
        load.weight = tenant.weight
        return load

    def _tokens_of_others(self, own: TenantLoad, tokens: float) -> float:
        """Tokens that run for other tenants and gateways while the tenant with the load `own` is served `tokens`."""
        per_weight = tokens / own.weight
        of_tenants = sum(min(load.cost, per_weight * load.weight) for load in self._loads.values() if load is not own)
        return of_tenants + min(self._items_of_other_gateways * self._average_cost, per_weight)

    def _check_tokens(self, tenant: Tenant, cost: int) -> None:
        """Raise `QueueFull` if the tokens under way would be too many."""
        excess = self._capacity.excess(tenant.name, cost, fraction=1 if cost <= PASS_TOKENS else LARGE_FRACTION)
        if excess and self._capacity.total:  # 0: no request is under way, so one of any size is admitted
            raise _refusal(self._seconds(excess))

    def _count(self, tenant: str, load: TenantLoad, request: CountedRequest, sign: int) -> None:
        load.count(request, sign)
        self._items += sign * request.items
        self._capacity.hold(tenant, sign * request.cost)
        self._throughput.set_busy(self._items >= MEASURING_FRACTION * self._min_busy_items)


class MeasuredThroughput:
    """Tokens per second of a busy replica. Recent busy time weighs most. measured_s: the total busy time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._busy = False
        self._observed: tuple[float, int] | None = None  # time of the last observation, and `tokens_run` then
        self._tokens = 0.0
        self._elapsed_s = 0.0
        self.measured_s = 0.0

    @property
    def rate(self) -> float | None:
        """Tokens per second; None until there is a measurement."""
        return self._tokens / self._elapsed_s if self.measured_s >= MEASURED_S and self._tokens else None

    def set_busy(self, busy: bool) -> None:
        """Set whether the replica has enough items for full batches from now on."""
        self._busy = busy
        if not busy:
            self._observed = None

    def observe(self, tokens_run: int) -> None:
        """Note how many tokens the replica has run since its start."""
        if not self._busy:
            return
        now_s = self._clock()
        if self._observed and self._observed[1] <= tokens_run:  # else the replica has restarted
            since_s, tokens_before = self._observed
            kept = 0.5 ** ((now_s - since_s) / HALF_LIFE_S)
            self._tokens = self._tokens * kept + tokens_run - tokens_before
            self._elapsed_s = self._elapsed_s * kept + now_s - since_s
            self.measured_s += now_s - since_s
        self._observed = now_s, tokens_run


def _max_wait_within(timeout_s: float, rate: float) -> float:
    """The longest estimated wait, in seconds, with which a request can be answered within `timeout_s`."""
    return timeout_s / MARGIN - BATCH_TOKENS / rate


def _refusal(excess_s: float) -> QueueFull:
    return QueueFull("the server is overloaded; try again later", retry_after_s=math.ceil(max(1.0, excess_s)))
