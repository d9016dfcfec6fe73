"""A replica that works on its requests in turns, on a clock of its own, and the admission in front of it."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import count

from views import view

from gliner_bento.errors import QueueFull
from gliner_bento.fairness.constants import MAX_EXTRAPOLATION, PASS_TOKENS
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.overload import OverloadPolicy
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.tasks.base import Usage
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

BATCH = 32
TOKENS_PER_S = 5000
TIMEOUT_S = 30.0
SOMEONE = Tenant("someone")


@cache
def item(words: int = 60) -> Item:
    return Item("word " * words, {"name": "name"})


def tokens(one: Item) -> int:
    return one.text.count(" ") + 3


@dataclass
class Request:
    items: list[Item]
    arrived_s: float
    left: float
    counted: ExitStack
    tenant: Tenant
    priority: int = 0
    policy: OverloadPolicy | None = None


@dataclass
class Simulated:
    """Tenants take turns by what they were served. So do the requests of a tenant, pass by pass, those of a lower
    priority last, as in the scheduler.

    count: of gateways; each sees what it has sent, and asks the replica for the rest.
    waits_s: of the answered requests.
    """

    now_s: float = 0.0
    tokens_run: float = 0.0
    rate: float = TOKENS_PER_S
    max_queue_wait_s: float = 0.0
    queue_wait_interval_s: float = 0.0
    max_queued_tokens: int = 0
    count: int = 1
    waits_s: list[float] = field(default_factory=list)
    waits_of: dict[str, list[float]] = field(default_factory=dict)
    refusals: list[QueueFull] = field(default_factory=list)
    served: dict[str, float] = field(default_factory=dict)
    progress: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        options = view(
            GatewayOptions,
            request_timeout_s=TIMEOUT_S,
            max_queue_wait_s=self.max_queue_wait_s,
            queue_wait_interval_s=self.queue_wait_interval_s,
            max_queued_tokens=self.max_queued_tokens,
            max_batch_size=BATCH,
        )
        self._numbers = count()
        self._running: dict[int, Request] = {}
        self._queues: dict[str, list[tuple[int, float, int]]] = {}
        """Of each tenant with requests under way: priority, progress at the end of the pass, and number."""
        self.gateways = [OverloadPolicy(options, lambda: self.now_s) for _ in range(self.count)]
        self.admission = self.gateways[0]

    @property
    def running(self) -> Collection[Request]:
        """Requests under way."""
        return self._running.values()

    def measured(self) -> Simulated:
        """Runs until its throughput has been measured for long and it is idle."""
        while self.admission._throughput.measured_s < TIMEOUT_S / MAX_EXTRAPOLATION:
            while len(self.running) < 2 * BATCH:
                assert self.ask(item())
            self.run(0.1)
        while self.running:
            self.run(0.1)
        for recorded in (self.waits_s, self.waits_of):
            recorded.clear()
        return self

    def ask(
        self, *items: Item, timeout_s: float = TIMEOUT_S, tenant: Tenant = SOMEONE, priority: int = 0, gateway: int = 0
    ) -> bool:
        counted = ExitStack()
        policy = self.gateways[gateway]
        try:
            policy.check(tenant, timeout_s)
            counted.enter_context(policy.admit(items, self.now_s + timeout_s, tenant, priority))
        except QueueFull as refusal:
            self.refusals.append(refusal)
            return False
        if tenant.name not in self._queues:
            behind = min((self.served[name] for name in self._queues), default=0.0)
            self.served[tenant.name] = max(self.served.get(tenant.name, 0.0), behind)
        self._wait(Request(list(items), self.now_s, sum(map(tokens, items)), counted, tenant, priority, policy=policy))
        return True

    def run(self, seconds: float) -> None:
        """Work: each request in its turn, for at most a pass."""
        end_s = self.now_s + seconds
        while self._queues and self.now_s < end_s:
            name = min(self._queues, key=lambda tenant: (self.served[tenant], self._queues[tenant][0]))
            sharing = len(self._queues[name])
            request = self._running.pop(heapq.heappop(self._queues[name])[-1])
            if sharing == 1:
                del self._queues[name]
            done = min(request.left, PASS_TOKENS)
            self.progress[name] += done / sharing
            self.tokens_run += done
            self.now_s += done / self.rate
            request.left -= done
            self.served[name] += done / request.tenant.weight
            if request.left:
                self._wait(request)
            else:
                self._finish(request)
        self.now_s = max(self.now_s, end_s)

    def _wait(self, request: Request) -> None:
        number, name = next(self._numbers), request.tenant.name
        end_of_pass = self.progress[name] + min(request.left, PASS_TOKENS)
        self._running[number] = request
        heapq.heappush(self._queues.setdefault(name, []), (request.priority, end_of_pass, number))

    def _finish(self, request: Request) -> None:
        policy = request.policy
        policy.observe(int(self.tokens_run))
        if note := policy.probe_other_gateways():
            note(sum(len(other.items) for other in self.running))
        for one in request.items:
            policy.learn(one, Extraction((), usage=Usage(1, tokens(one), 1, 1, 1)))
        request.counted.close()
        self.waits_s.append(self.now_s - request.arrived_s)
        self.waits_of.setdefault(request.tenant.name, []).append(self.waits_s[-1])
