"""A `Replica` without threads, processes and models, for tests of what calls one."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from doubles.fake_engine import FAKE_INFO, extract, words_and_labels
from doubles.memory_adapters import MemoryManager, applied

from gliner_bento.commands import AdapterCommand
from gliner_bento.errors import (
    Aborted,
    AdapterNotFound,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    NotReady,
    QueueFull,
)
from gliner_bento.replicas.base import Archive, Call, Outcome, ReplicaStatus, StreamStep
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import Item, Result, Usage
from gliner_bento.tasks.extraction import Extraction

INFO = replace(FAKE_INFO, model="memory", max_words=50, max_labels_per_pass=25)


@dataclass(eq=False)
class _Ticket:
    """An item that has not ended. Its next pass waits for its turn: that of its tenant, then by priority and number."""

    item: Item
    call: Call
    number: int
    aborted: bool = False
    progress_s: float = field(default_factory=time.monotonic)


@dataclass
class MemoryReplica:
    """Its results are those of `extract`. Items run one at a time, in passes of `pass_words` words.

    step: whether the running pass may finish. error: what a pass raises, of the item with the pass's text.
    queue_capacity: unfinished items. alive: False for a replica whose threads have died.
    calls: arguments of every `extract` and `stream`. admitted, passes: texts of items and of passes, in order.
    """

    model: ModelInfo = INFO
    pass_words: int = 8
    step: Callable[[], bool] = lambda: True
    error: Callable[[Item], Exception | None] = lambda item: None
    queue_capacity: int = 1000
    manager: MemoryManager | None = field(default_factory=MemoryManager)
    alive: bool = True
    calls: list[tuple[Sequence[Item], Call]] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._unfinished: list[_Ticket] = []
        self._waiting: list[_Ticket] = []
        self._running: list[_Ticket] = []
        self._passes_of: Counter[str] = Counter()
        self.tokens_run = 0
        self._closed = False

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        self.calls.append((items, call))
        if len(self._unfinished) + len(items) > self.queue_capacity:
            return [QueueFull("the queue is full") for _ in items]
        return await asyncio.gather(*(self._outcome(item, call) for item in items))

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[StreamStep, None]:
        self.calls.append(([item], call))
        streamed = 0
        async with aclosing(self._process(item, call)) as parts:
            async for part in parts:
                if isinstance(part, Result):
                    yield part.rest(streamed)
                else:
                    streamed += len(part)
                    yield part

    async def abort(self, request_id: str) -> bool:
        tickets = [ticket for ticket in self._unfinished if ticket.call.request_id == request_id]
        for ticket in tickets:
            ticket.aborted = True
        return bool(tickets)

    async def status(self) -> ReplicaStatus:
        return ReplicaStatus(
            model=self.model,
            ready=self.alive and not self._closed,
            waiting_items=len(self._waiting),
            running_items=len(self._running),
            waiting_tokens=sum(words_and_labels(ticket.item) for ticket in self._waiting),
            running_tokens=sum(words_and_labels(ticket.item) for ticket in self._running),
            resident_adapters=self.manager.in_memory() if self.manager else (),
        )

    async def apply(self, command: AdapterCommand[Any], archive: Archive | None = None) -> Any:
        return await applied(self.manager, command, archive)

    def close(self) -> None:
        self._closed = True

    async def _outcome(self, item: Item, call: Call) -> Outcome:
        try:
            async with aclosing(self._process(item, call)) as parts:
                (*_, result) = [part async for part in parts]
        except GLiNERBentoError as error:
            return error
        assert isinstance(result, Result)
        return result

    async def _process(self, item: Item, call: Call) -> AsyncGenerator[StreamStep, None]:
        """The entities of each pass but the last, then the whole result."""
        ticket = _Ticket(item, call, len(self.admitted))
        self._unfinished.append(ticket)
        self.admitted.append(item.text)
        try:
            self._check(ticket)
            result, ends = self._result(item)
            for start, end in zip([0, *ends], ends, strict=False):
                await self._run_pass(ticket, item.text[start:end])
                if end != ends[-1]:
                    yield [entity for entity in result.entities if start <= entity.start < end]
            yield result
        finally:
            self._unfinished.remove(ticket)

    async def _run_pass(self, ticket: _Ticket, text: str) -> None:
        self._waiting.append(ticket)
        try:
            while self._running or ticket is not min(self._waiting, key=self._turn):
                await self._pause(ticket)
        finally:
            self._waiting.remove(ticket)
        self._running.append(ticket)
        try:
            while not self.step():
                await self._pause(ticket)
            self._check(ticket)
        finally:
            self._running.remove(ticket)
        self.passes.append(text)
        ticket.progress_s = time.monotonic()
        self.tokens_run += words_and_labels(replace(ticket.item, text=text))
        self._passes_of[ticket.call.tenant] += 1
        if error := self.error(replace(ticket.item, text=text)):
            raise error if isinstance(error, GLiNERBentoError) else InternalError()

    def _turn(self, ticket: _Ticket) -> tuple[int, int, str, int, int]:
        """The tenant that had the fewest passes is next, unless one may cross tenants with its priority."""
        call = ticket.call
        crossing = call.priority if call.crosses_tenants else 0
        return crossing, self._passes_of[call.tenant], call.tenant, call.priority, ticket.number

    async def _pause(self, ticket: _Ticket) -> None:
        self._check(ticket)
        await asyncio.sleep(0.001)

    def _check(self, ticket: _Ticket) -> None:
        """Raise what ends an item early."""
        if ticket.aborted:
            raise Aborted("the request was aborted")
        if self._closed or not self.alive:
            raise NotReady("the server is shutting down")
        if time.monotonic() >= min(ticket.call.deadline_s, ticket.progress_s + ticket.call.idle_timeout_s):
            raise DeadlineExceeded.before("the request finished")
        adapter_id = ticket.item.adapter_id
        if adapter_id is not None and not (self.manager and adapter_id in self.manager.contents):
            raise AdapterNotFound(f"adapter_id: no adapter {adapter_id!r}", param="adapter_id")

    def _result(self, item: Any) -> tuple[Extraction, list[int]]:
        """Of the item, and where each of its passes ends."""
        words = list(re.finditer(r"\S+", item.text))
        ends = [words[place].end() for place in range(self.pass_words - 1, len(words), self.pass_words)]
        ends += [words[-1].end()] if len(words) % self.pass_words else []
        truncated = item.long_text == "truncate" and len(ends) > 1
        if truncated:
            del ends[1:]
            item = replace(item, text=item.text[: ends[0]])
        result = extract(item)
        usage = Usage(
            words=len(words) if not truncated else self.pass_words,
            tokens=words_and_labels(item),
            windows=ceil(len(words) / self.pass_words) if not truncated else 1,
            relation_groups=int(bool(item.relations)),
        )
        return replace(result, truncated=truncated, truncated_at=ends[0] if truncated else None, usage=usage), ends
