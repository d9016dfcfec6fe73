"""A replica on fake time that can hang, die, come back, drain, and serve another model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from doubles.fake_engine import extract
from doubles.fake_time import now_s
from doubles.memory_adapters import MemoryManager, applied
from doubles.memory_replica import INFO

from gliner_bento.commands import AdapterCommand
from gliner_bento.errors import Aborted, DeadlineExceeded, NotReady
from gliner_bento.replicas.base import Archive, Call, Outcome, ReplicaStatus
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import Usage
from gliner_bento.tasks.extraction import Entity, Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

GRACE_S = 0.5


@dataclass(eq=False)
class MortalReplica:
    """Runs everything concurrently; an item takes `item_s`, and each part of a stream.

    alive: False drops all connections. hangs: nothing is answered, as by a process that is stopped, or has died while
    its parent holds the socket. admits: False refuses as a replica does that drains. calls: every extraction.
    unfinished: items of extractions that have not ended.
    """

    model: ModelInfo = INFO
    item_s: float = 1.0
    resident: Sequence[str] = ()
    manager: MemoryManager = field(default_factory=MemoryManager)
    calls: list[tuple[Sequence[Item], Call]] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    probes: int = 0
    tokens_run: int = 0
    unfinished: int = 0
    cancelled: int = 0
    admits: bool = True
    alive: bool = True
    hangs: bool = False

    def __post_init__(self) -> None:
        self._changed: dict[asyncio.Future[None], None] = {}  # in their order
        self._aborted: set[str] = set()

    def die(self) -> None:
        """Drop all connections; later ones hang, because the parent listens."""
        self.alive, self.hangs = False, True
        self._report()

    def hang(self) -> None:
        self.hangs = True
        self._report()

    def revive(self) -> None:
        self.alive, self.hangs = True, False
        self._report()

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        self.calls.append((items, call))
        self.unfinished += len(items)
        try:
            return await self._extract(items, call)
        finally:
            self.unfinished -= len(items)

    async def _extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        await self._connect(call.deadline_s)
        if not self.admits:
            return [NotReady("the server is shutting down") for _ in items]
        outcomes: list[Outcome] = []
        for item in items:
            if call.request_id in self._aborted:
                outcomes.append(Aborted("the request was aborted"))
                continue
            await self._work(self.item_s, call.deadline_s)
            late = now_s() > call.deadline_s
            outcomes.append(DeadlineExceeded("late") if late else self._result(item))
        return outcomes

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[Sequence[Entity] | Extraction, None]:
        self.calls.append(([item], call))
        await self._connect(call.deadline_s)
        result = self._result(item)
        for entity in result.entities:
            await self._work(self.item_s, call.deadline_s)
            yield [entity]
        await self._work(self.item_s, call.deadline_s)
        yield replace(result, entities=[])

    async def abort(self, request_id: str) -> bool:
        await self._connect()
        self.aborts.append(request_id)
        self._aborted.add(request_id)
        return any(call.request_id == request_id for _, call in self.calls)

    async def status(self) -> ReplicaStatus:
        self.probes += 1
        await self._connect()
        return ReplicaStatus(
            model=self.model,
            ready=self.admits,
            waiting_items=1,
            running_items=2,
            waiting_tokens=3,
            running_tokens=4,
            resident_adapters=self.resident,
            unfinished_items=self.unfinished,
        )

    async def apply(self, command: AdapterCommand[Any], archive: Archive | None = None) -> Any:
        return await applied(self.manager, command, archive)

    def _result(self, item: Item) -> Extraction:
        self.tokens_run += len(item.text)
        return replace(extract(item), usage=Usage(tokens=len(item.text)))

    async def _connect(self, deadline_s: float = inf) -> None:
        while self.hangs:
            await self._change(None, deadline_s)

    async def _work(self, seconds: float, deadline_s: float) -> None:
        """Takes so long, unless the replica dies; longer if it hangs, until a transport would give up."""
        end_s = now_s() + seconds
        while self.hangs or now_s() < end_s - 1e-6:  # as far as the loop wakes early
            if not self.alive:
                raise NotReady("the model's process cannot be reached; try again")
            await self._change(None if self.hangs else end_s - now_s(), deadline_s)
        if not self.alive:
            raise NotReady("the model's process cannot be reached; try again")

    async def _change(self, timeout_s: float | None, deadline_s: float) -> None:
        late_s = deadline_s + GRACE_S - now_s()
        if late_s <= 1e-6:
            raise DeadlineExceeded("the deadline passed before the model's process answered")
        timeout_s = min(late_s, late_s if timeout_s is None else timeout_s)
        changed = asyncio.get_running_loop().create_future()
        self._changed[changed] = None
        try:
            await asyncio.wait([changed], timeout=None if timeout_s == inf else timeout_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self._changed.pop(changed)

    def _report(self) -> None:
        for changed in self._changed:
            if not changed.done():
                changed.set_result(None)
