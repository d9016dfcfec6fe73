"""One scene: replicas, arrivals and events, and what came of it. Deterministic for a seed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from benchmark.simulate import curves
from benchmark.simulate.curves import Text
from benchmark.simulate.fake_time import run_fast
from benchmark.simulate.policies import POLICIES
from benchmark.simulate.replica import SimulatedReplica
from gliner_bento.loadtest.load import percentile_ms
from gliner_bento.replicas.base import Call
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.scheduler.batching import BatchLimits
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

_SLOW = 4.0
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Death:
    """A replica's process dies, and answers again `down_s` later."""

    replica: int
    at_s: float
    down_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """load: offered requests over what the replicas can do, adapters included. after: another load from a time on.
    rate: requests/s instead. concurrency: instead, so many clients that each send their next request after an answer.

    warm_up: share of the requests, the first to end, whose latencies do not count. adapters: one per tenant, drawn by
    Zipf's law; 0: none. slow: so many replicas take four times as long. late, late_s: so many more replicas answer from
    then on.
    """

    replicas: int
    policy: str = "ours"
    load: float = 0.7
    requests: int = 20_000
    warm_up: float = 0.1
    concurrency: int = 0
    rate: float = 0.0
    after: tuple[float, float] | None = None
    adapters: int = 0
    adapter_capacity: int = 128
    slow: int = 0
    deaths: Sequence[Death] = ()
    late: int = 0
    late_s: float = 0.0
    max_outstanding_tokens: int = 65_536
    queue_capacity: int = 4096
    timeout_s: float = 30.0
    seed: int = 0


@dataclass(slots=True)
class Result:
    """latencies_s: of requests with a result, in the order of their ends. outcomes: how many of each kind. received:
    request ids in the order in which replicas received them. loads: adapters loaded from disk.
    """

    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    received: list[str] = field(default_factory=list)
    repeated: int = 0
    loads: int = 0


def run(scene: Scene) -> Result:
    """Run the scene on simulated time."""
    logging.getLogger("gliner_bento.replicas.fleet").setLevel(logging.ERROR)
    return run_fast(lambda: _World(scene).run(), give_up_s=1e6)


def summary(scene: Scene, result: Result) -> dict[str, Any]:
    """Plain values of a result."""
    latencies = sorted(result.latencies_s[int(scene.warm_up * len(result.latencies_s)) :])
    return {
        "outcomes": dict(result.outcomes),
        "requests_per_s": len(result.latencies_s) / result.seconds,
        **{f"p{share}_ms": percentile_ms(latencies, share) for share in (50, 95, 99)},
        "repeated": result.repeated,
        "adapter_loads": result.loads,
    }


class _World:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.result = Result()
        self.curves = curves.measured()
        self.texts = curves.texts()
        self.items: dict[tuple[int, str | None], Item] = {}
        settings = Settings.model_validate({}).decided_for("cpu", cores=2)
        by_text = {text.text: text for text in self.texts}
        self.replicas = [
            SimulatedReplica(
                self.curves,
                by_text,
                settings.view(BatchLimits),
                adapter_capacity=scene.adapter_capacity,
                slowdown=_SLOW if number < scene.slow else 1.0,
                reachable=number < scene.replicas,
                received=self.result.received.append,
            )
            for number in range(scene.replicas + scene.late)
        ]
        options = FleetOptions(scene.max_outstanding_tokens, scene.queue_capacity)
        self.fleet = Fleet(
            {str(number): replica for number, replica in enumerate(self.replicas)},
            options,
            on_repeat=self._repeat,
            clock=self._now,
            dispatcher=POLICIES[scene.policy],
        )

    async def run(self) -> Result:
        """Until every request has ended."""
        scene, loop = self.scene, asyncio.get_running_loop()
        self.fleet.start()
        await asyncio.sleep(0.01)  # the first probes are answered
        self.begin_s = loop.time()
        for death in scene.deaths:
            replica = self.replicas[death.replica]
            loop.call_at(self.begin_s + death.at_s, replica.die)
            loop.call_at(self.begin_s + death.at_s + death.down_s, replica.start)
        for replica in self.replicas[scene.replicas :]:
            loop.call_at(self.begin_s + scene.late_s, replica.start)
        work = iter(self._work())
        if scene.concurrency:
            await asyncio.gather(*(self._client(work) for _ in range(scene.concurrency)))
        else:
            await self._arrive(work)
        self.result.seconds = loop.time() - self.begin_s
        self.result.loads = sum(replica.loads for replica in self.replicas)
        await self.fleet.close()
        return self.result

    async def _client(self, work: Iterator[tuple[float, Text, str | None, int]]) -> None:
        for _, text, adapter, number in work:
            await self._ask(text, adapter, number)

    async def _arrive(self, work: Iterator[tuple[float, Text, str | None, int]]) -> None:
        """Start each request when it is due."""
        loop, asking = asyncio.get_running_loop(), set()
        for due_s, text, adapter, number in work:
            if (rest_s := self.begin_s + due_s - loop.time()) > 0:
                await asyncio.sleep(rest_s)
            task = asyncio.ensure_future(self._ask(text, adapter, number))
            asking.add(task)
            task.add_done_callback(asking.discard)
        while asking:
            await asyncio.wait(asking, timeout=_PATIENCE_S)

    async def _ask(self, text: Text, adapter: str | None, number: int) -> None:
        began_s = self._now()
        item = Item(text.text, {label: label for label in text.labels}, adapter_id=adapter)
        call = Call(str(number), began_s + self.scene.timeout_s, tenant=adapter or "")
        (outcome,) = await self.fleet.extract([item], call)
        kind = "answered" if isinstance(outcome, Extraction) else type(outcome).__name__
        self.result.outcomes[kind] += 1
        if kind == "answered":
            self.result.latencies_s.append(self._now() - began_s)

    def _work(self) -> Iterator[tuple[float, Text, str | None, int]]:
        """When each request is due, its text, adapter and number."""
        scene, rng = self.scene, random.Random(self.scene.seed)
        adapters = [f"adapter-{rank}" for rank in range(1, scene.adapters + 1)]
        weights = list(accumulate(1 / rank for rank in range(1, scene.adapters + 1)))
        due_s = _due_s(scene, self._capacity())
        for number in range(scene.requests):
            (adapter,) = rng.choices(adapters, cum_weights=weights) if adapters else (None,)
            yield next(due_s), rng.choice(self.texts), adapter, number

    def _capacity(self) -> float:
        """Requests/s of the replicas of the beginning."""
        text_s = 1 / self.curves.texts_per_s + (self.curves.adapter_s if self.scene.adapters else 0.0)
        return self.scene.replicas / text_s

    def _repeat(self, items: int) -> None:
        self.result.repeated += items

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _due_s(scene: Scene, capacity_per_s: float) -> Iterator[float]:
    """Arrival times of a Poisson process."""
    rng, now_s = random.Random(scene.seed + 1), 0.0
    while True:
        load = scene.after[1] if scene.after and now_s >= scene.after[0] else scene.load
        now_s += rng.expovariate(scene.rate or load * capacity_per_s)
        yield now_s
