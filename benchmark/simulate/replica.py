"""A replica whose batches take simulated time. It forms batches as the scheduler does, and runs nothing."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmark.no_model import INFO
from benchmark.simulate.curves import Curves, Text
from gliner_bento.errors import GLiNERBentoError, NotReady
from gliner_bento.replicas.base import Call, Outcome, ReplicaStatus
from gliner_bento.scheduler.batching import BatchLimits, form_batch
from gliner_bento.tasks.base import Item, Usage
from gliner_bento.tasks.extraction import Entity, Extraction


@dataclass(slots=True, eq=False)
class _Entry:
    """A waiting item: a `Candidate` of the scheduler's batching."""

    text: Text
    adapter: str | None
    done: asyncio.Future[None]
    bypassed: int = 0

    @property
    def cost(self) -> int:
        """In tokens."""
        return self.text.tokens


class SimulatedReplica:
    """Implements `Replica`, but for adapter management. Its adapters in memory are the last `adapter_capacity` used.

    texts: by their text. resident: adapters in memory at first. slowdown: factor on its seconds. received: gets the
    request id of every call. loads: adapters loaded from disk. reachable: False drops all connections and answers
    nothing.
    """

    def __init__(
        self,
        curves: Curves,
        texts: dict[str, Text],
        limits: BatchLimits,
        *,
        adapter_capacity: int,
        resident: Sequence[str] = (),
        slowdown: float = 1.0,
        reachable: bool = True,
        received: Callable[[str], None] = lambda request_id: None,
    ) -> None:
        self.tokens_run = 0
        self.loads = 0
        self.reachable = reachable
        self._curves = curves
        self._texts = texts
        self._limits = limits
        self._capacity = adapter_capacity
        self._slowdown = slowdown
        self._received = received
        self._waiting: deque[_Entry] = deque()
        self._running: dict[int, tuple[asyncio.TimerHandle, list[_Entry]]] = {}
        self._batches = 0
        self._resident: OrderedDict[str, None] = OrderedDict.fromkeys(resident)
        self._changed: set[asyncio.Future[None]] = set()

    async def apply(self, command: Any, archive: Any = None) -> Any:
        """None of the scenes manages adapters."""
        raise NotImplementedError

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """See `Replica`."""
        await self._connected()
        self._received(call.request_id)
        loop = asyncio.get_running_loop()
        entries = [_Entry(self._texts[item.text], item.adapter_id, loop.create_future()) for item in items]
        self._waiting.extend(entries)
        self._start_batches()
        outcomes: list[Outcome] = []
        for entry in entries:
            try:
                await entry.done
                outcomes.append(Extraction((), usage=Usage(words=entry.text.words, tokens=entry.text.tokens)))
            except GLiNERBentoError as error:
                outcomes.append(error)
        return outcomes

    def stream(self, item: Item, call: Call) -> AsyncGenerator[Sequence[Entity] | Extraction, None]:
        """None of the scenes streams."""
        raise NotImplementedError

    async def abort(self, request_id: str) -> bool:
        """None of the scenes aborts."""
        raise NotImplementedError

    async def status(self) -> ReplicaStatus:
        """See `Replica`."""
        await self._connected()
        return ReplicaStatus(
            model=INFO,
            ready=True,
            waiting_items=len(self._waiting),
            running_items=sum(len(batch) for _, batch in self._running.values()),
            waiting_tokens=0,
            running_tokens=0,
            resident_adapters=list(self._resident),
        )

    def die(self) -> None:
        """Drop all connections. New ones are accepted, and hang: the supervisor holds the socket."""
        self.reachable = False
        lost = [entry for _, batch in self._running.values() for entry in batch] + list(self._waiting)
        for timer, _ in self._running.values():
            timer.cancel()
        self._running.clear()
        self._waiting.clear()
        self._resident.clear()
        for entry in lost:
            if not entry.done.done():
                entry.done.set_exception(NotReady("the connection was dropped"))

    def start(self) -> None:
        """Answer from now on; no adapter is in memory."""
        self.reachable = True
        for changed in self._changed:
            if not changed.done():
                changed.set_result(None)
        self._changed.clear()

    async def _connected(self) -> None:
        while not self.reachable:
            changed = asyncio.get_running_loop().create_future()
            self._changed.add(changed)
            try:
                await changed
            finally:
                self._changed.discard(changed)

    def _start_batches(self) -> None:
        while self._waiting and len(self._running) < self._curves.lanes:
            window = [self._waiting[index] for index in range(min(len(self._waiting), self._limits.batch_lookahead))]
            chosen = form_batch(window, self._limits, packs=True)
            for index in range(chosen[-1]):
                window[index].bypassed += 1
            batch = [window[index] for index in chosen]
            for index in reversed(chosen):
                del self._waiting[index]
            self._batches += 1
            timer = asyncio.get_running_loop().call_later(self._batch_s(batch), self._end, self._batches)
            self._running[self._batches] = timer, batch

    def _end(self, number: int) -> None:
        for entry in self._running.pop(number)[1]:
            self.tokens_run += entry.cost
            if not entry.done.done():
                entry.done.set_result(None)
        self._start_batches()

    def _batch_s(self, batch: Sequence[_Entry]) -> float:
        """Seconds of a batch in its lane, the other lanes busy; missing adapters are loaded first."""
        adapters = dict.fromkeys(entry.adapter for entry in batch if entry.adapter is not None)
        missing = sum(self._load(adapter) for adapter in adapters)
        self.loads += missing
        texts_s = sum(
            self._curves.text_s(entry.text.words) + (self._curves.adapter_s if entry.adapter else 0.0)
            for entry in batch
        )
        return (texts_s * self._curves.lanes + missing * self._curves.load_s) * self._slowdown

    def _load(self, adapter: str) -> bool:
        """Whether the adapter was loaded; it is the latest used now."""
        missing = adapter not in self._resident
        self._resident[adapter] = None
        self._resident.move_to_end(adapter)
        if len(self._resident) > self._capacity:
            self._resident.popitem(last=False)
        return missing
