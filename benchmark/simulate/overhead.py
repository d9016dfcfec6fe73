"""The CPU time of the fleet itself, per request and per probe: over replicas that answer immediately."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Sequence
from typing import Any

from benchmark.simulate import curves
from benchmark.simulate.curves import Text
from benchmark.simulate.fake_time import run_fast
from benchmark.simulate.policies import Metered
from benchmark.simulate.replica import SimulatedReplica
from gliner_bento.replicas.base import Call, Outcome, Replica
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.scheduler.batching import BatchLimits
from gliner_bento.tasks.base import Item
from gliner_bento.tasks.extraction import Extraction, ExtractionItem
from gliner_bento.types import Usage

_CLIENTS_PER_REPLICA = 4
_IDLE_S = 5.0
_ADAPTERS = 64
_LIMITS = BatchLimits(max_batch_size=32, max_batch_tokens=1024, batch_lookahead=128)


class _Immediate(SimulatedReplica):
    """Answers in the next turn of the event loop."""

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """See `Replica`."""
        await asyncio.sleep(0)
        return [Extraction((), usage=Usage(tokens=70)) for _ in items]


def overhead(sizes: Sequence[int], *, requests: int) -> list[dict[str, Any]]:
    """Microseconds of CPU time, by number of replicas; all have the same adapters in memory."""
    logging.getLogger("gliner_bento.replicas.fleet").setLevel(logging.ERROR)
    rows = []
    for size in sizes:
        without_s = run_fast(lambda size=size: _requests_cpu_s(size, requests, in_fleet=False))[0]  # type: ignore[misc]
        with_s, dispatcher_s = run_fast(lambda size=size: _requests_cpu_s(size, requests, in_fleet=True))  # type: ignore[misc]
        rows.append(
            {
                "replicas": size,
                "dispatcher_us": dispatcher_s / requests * 1e6,
                "fleet_us": (with_s - without_s) / requests * 1e6,
                "probe_us": run_fast(lambda size=size: _probe_cpu_s(size)) * 1e6,  # type: ignore[misc]
            }
        )
    return rows


async def _requests_cpu_s(size: int, requests: int, *, in_fleet: bool) -> tuple[float, float]:
    """Of so many requests, with a fleet or straight to a replica; and the dispatcher's part."""
    fleet, dispatchers = await _fleet(size)
    target: Replica = fleet if in_fleet else fleet.replicas["0"]
    texts, numbers = curves.texts(), iter(range(requests))
    items = [_item(text, f"adapter-{number % _ADAPTERS}") for number, text in enumerate(texts)]
    deadline_s = asyncio.get_running_loop().time() + 1000

    async def client() -> None:
        for number in numbers:
            await target.extract([items[number % len(items)]], Call(str(number), deadline_s))

    gc.collect()
    began_s = time.thread_time()
    clients = min(requests, _CLIENTS_PER_REPLICA * size)
    await asyncio.gather(*(client() for _ in range(clients)))
    spent_s = time.thread_time() - began_s
    await fleet.close()
    return spent_s, dispatchers[0].cpu_ns / 1e9


async def _probe_cpu_s(size: int) -> float:
    """Of one probe, among so many replicas that are idle."""
    fleet, _ = await _fleet(size)
    gc.collect()
    began_s = time.thread_time()
    await asyncio.sleep(_IDLE_S)
    spent_s = time.thread_time() - began_s
    await fleet.close()
    return spent_s / (_IDLE_S * size)


async def _fleet(size: int) -> tuple[Fleet, list[Metered]]:
    """A fleet whose replicas have answered the first probe."""
    replicas = {str(number): _replica() for number in range(size)}
    dispatchers: list[Metered] = []

    def dispatcher(replicas: int, max_outstanding_tokens: int) -> Metered:
        dispatchers.append(Metered(replicas, max_outstanding_tokens))
        return dispatchers[-1]

    clock = asyncio.get_running_loop().time
    fleet = Fleet(replicas, FleetOptions(65_536, 4096), clock=clock, dispatcher=dispatcher)
    fleet.start()
    await asyncio.sleep(2.0)
    return fleet, dispatchers


def _replica() -> _Immediate:
    resident = [f"adapter-{number}" for number in range(_ADAPTERS)]
    return _Immediate(curves.measured(), {}, _LIMITS, adapter_capacity=128, resident=resident)


def _item(text: Text, adapter: str) -> Item:
    return ExtractionItem(text.text, {label: label for label in text.labels}, adapter_id=adapter)
