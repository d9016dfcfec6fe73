"""The logic of the public API: checks a request against limits, calls the replica, makes the answer. Knows no HTTP."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, replace
from typing import Any, cast

from gliner_bento.adapter_types import AdapterCacheStatus
from gliner_bento.errors import ErrorDetail, GLiNERBentoError, QueueFull, TooLarge
from gliner_bento.fairness.constants import CHARS_PER_CHARGED_ITEM, MAX_SMALL_ITEMS, PASS_CHARS
from gliner_bento.gateway import request_id, request_record
from gliner_bento.gateway.adapters import AdapterApi
from gliner_bento.gateway.loop_pacer import LoopPacer
from gliner_bento.gateway.models import ServedModel
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy import tenants
from gliner_bento.gateway.policy.blocked_ids import BlockedIds
from gliner_bento.gateway.policy.overload import OverloadPolicy
from gliner_bento.gateway.status import RecentErrors, server_status
from gliner_bento.replicas.base import Call, Outcome, Part, Replica, ReplicaStatus
from gliner_bento.status_types import AbortResponse, ModelCard, ModelInfo, ReplicaHealth, ReplicaList, ServerStatus
from gliner_bento.tasks.base import Answer, AnyTask, BatchAnswer, Item, Merges, Request, Result, answer_of

MetricsReader = Callable[[], Awaitable[Mapping[str, bytes]]]


class Gateway:
    """The public API over a replica, within the operator's limits.

    read_metrics: reads the metrics of processes on other machines, by replica. policy: see `GatewayApp`.
    """

    def __init__(
        self,
        replica: Replica,
        options: GatewayOptions,
        errors: RecentErrors | None = None,
        read_metrics: MetricsReader | None = None,
        policy: OverloadPolicy | None = None,
    ) -> None:
        self.read_metrics = read_metrics
        self.options = options
        self._models: dict[str | None, ServedModel] = {None: ServedModel(replica, options)}
        self._policy = policy or OverloadPolicy(options)
        self._probing: asyncio.Future[None] | None = None
        self._pacer = LoopPacer()
        self._blocked_ids = BlockedIds()
        self._errors = errors or RecentErrors()
        self._started_s = time.monotonic()

    def served(self, name: str | None = None) -> ServedModel:
        """A model of the table. name: None: the only one."""
        return self._models[name]

    async def run(self, request: Request[Any, Answer, Any]) -> Answer:
        """The answer to a request with one text."""
        served, call = self.served(request.model), self._call(request)
        item = self._item(request, served)
        (outcome,) = await self._outcomes(served, [item], call)
        (outcome,) = await _merged(request.task, [item], [outcome])
        if isinstance(outcome, GLiNERBentoError):
            raise outcome
        return await self._answer(request.task.answer, served, item, outcome)

    async def run_stream(self, request: Request[Any, Any, Any]) -> AsyncGenerator[Sequence[Any], None]:
        """The lines of the answer to a request with one text: a list for each pass, possibly empty, with the parts that
        became final; last, the rest of the answer."""
        served, call = self.served(request.model), self._call(request, streamed=True)
        item, task = self._item(request, served), request.task
        merger: Merges | None = None
        async with aclosing(self._stream(served, item, call)) as parts:
            async for part in parts:
                merger = merger or await _merger(task, item)
                if isinstance(part, Result):
                    result = merger.whole(part) if merger else part
                    end = await self._answer(task.end, served, item, result)
                    yield [*map(task.line, task.parts_of(result)), end] if task.line else [end]
                elif task.line:
                    yield list(map(task.line, merger.add(part) if merger else part))

    async def run_batch(self, request: Request[Any, Any, BatchAnswer]) -> BatchAnswer:
        """One result or error per text, in order. Raises only errors that concern the whole request."""
        served, call = self.served(request.model), self._call(request)
        self.check_size(len(request.inputs), request.param)
        admitted = self._items(request, served)
        items = request.task.share([item for item in admitted if isinstance(item, Item)])
        run = await _merged(request.task, items, await self._outcomes(served, items, call)) if items else []
        model = await served.info()
        outcomes = iter([_with_warnings(served, *pair) for pair in zip(items, run, strict=True)])
        results = [
            _batch_result(request, next(outcomes) if isinstance(item, Item) else item, index)
            for index, item in enumerate(admitted)
        ]
        answer: Any = request.task.batch_answer
        return cast(BatchAnswer, answer(results, model.model, request_id.current()))

    def check_size(self, texts: int, param: str) -> None:
        """Raise `TooLarge` for a batch of more than `max_batch_items` texts. param: the field with the texts."""
        if texts > self.options.max_batch_items:
            raise TooLarge(f"{param}: {texts} of at most {self.options.max_batch_items}", param=param)

    def check_text(self, text: str) -> None:
        """Raise `TooLarge` for a text of more than `max_text_chars` characters."""
        limit = self.options.max_text_chars
        if len(text) > limit:
            raise TooLarge(f"text: {len(text)} characters of at most {limit}", param="text")

    async def ready(self) -> bool:
        """Whether the replica admits items."""
        try:
            return (await self.served().replica.status()).ready
        except GLiNERBentoError:
            return False

    async def replicas(self) -> ReplicaList:
        """The state of each replica; raises `NotReady` until one has answered."""
        status = await self.served().replica.status()
        alone = ReplicaHealth(
            name="replica",
            state="ready" if status.ready else "not_ready",
            waiting_items=status.waiting_items,
            running_items=status.running_items,
            resident_adapters=status.resident_adapters,
        )
        return ReplicaList(status.replicas or [alone])

    async def abort(self, aborted_id: str, *, block_s: float = 0.0) -> AbortResponse:
        """Abort a request of the current tenant; `aborted` is false if none has this id. block_s: refuse requests with
        this id for so long afterwards."""
        if block_s:
            self._blocked_ids.block(tenants.own_id(aborted_id), block_s)
        return AbortResponse(aborted_id, await self.served().replica.abort(tenants.own_id(aborted_id)))

    async def model(self) -> ModelCard:
        """What is served, and with which limits."""
        return ModelCard(
            **asdict(await self.model_info()),
            max_labels=self.options.max_labels,
            max_text_chars=self.options.max_text_chars,
            max_batch_items=self.options.max_batch_items,
        )

    async def status(self) -> ServerStatus:
        """What the server does now."""
        status, adapters = await self.replica_state()
        return server_status(status, adapters, uptime_s=time.monotonic() - self._started_s, errors=self._errors)

    async def replica_state(self) -> tuple[ReplicaStatus | None, AdapterCacheStatus | None]:
        """The replica's status, and its adapters if they are enabled; None for what it does not report."""
        try:
            status = await self.served().replica.status()
            return status, await self.adapters.cache_status() if self.options.enable_lora else None
        except GLiNERBentoError:
            return None, None

    async def model_info(self) -> ModelInfo:
        """What the only model is; see `ModelInfo`."""
        return await self.served().info()

    @property
    def adapters(self) -> AdapterApi:
        """The adapters of the only model."""
        return self.served().adapters

    async def _outcomes(self, served: ServedModel, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """The replica's outcomes. Raises `QueueFull` if it is overloaded."""
        with self._policy.admit(items, call.deadline_s, tenants.current(), call.priority):
            request_record.current().admitted = True
            outcomes = await served.replica.extract(items, call)
            self._observe(served.replica)
            await self._pacer.wait()
            for item, outcome in zip(items, outcomes, strict=True):
                if isinstance(outcome, Result):
                    self._learn(item, outcome)
                elif isinstance(outcome, QueueFull):
                    outcome.retry_after_s = self._policy.retry_after_s(len(items))
        return outcomes

    async def _stream(self, served: ServedModel, item: Item, call: Call) -> AsyncGenerator[Part, None]:
        """The replica's parts. Raises `QueueFull` if it is overloaded."""
        passes = 1 + len(item.text) // PASS_CHARS
        latest_s = min(call.deadline_s, time.monotonic() + passes * call.idle_timeout_s)
        with self._policy.admit([item], latest_s, tenants.current(), call.priority):
            request_record.current().admitted = True
            async with aclosing(served.replica.stream(item, call)) as parts:
                async for part in parts:
                    self._observe(served.replica)
                    if isinstance(part, Result):
                        self._learn(item, part)
                    yield part

    def _observe(self, replica: Replica) -> None:
        """Pass the replica's throughput, and from time to time its load from other gateways, to the policy."""
        self._policy.observe(replica.tokens_run)
        if note := self._policy.probe_other_gateways():
            self._probing = asyncio.ensure_future(_probe(replica, note))

    async def _answer(self, kind: type[Answer], served: ServedModel, item: Item, result: Result) -> Answer:
        model = await served.info()
        facts = {"model": model.model, "adapter_id": item.adapter_id, "request_id": request_id.current()}
        return answer_of(kind, result, warnings=served.warnings(item, result), **facts)

    def _learn(self, item: Item, result: Result) -> None:
        """Note the cost of a result, for admission and in the request's record."""
        self._policy.learn(item, result)
        record = request_record.current()
        record.items += 1
        record.tokens += result.usage.tokens

    def _call(self, request: Request[Any, Any, Any], *, streamed: bool = False) -> Call:
        """The call for a request. streamed: `request_timeout_s` limits the time without progress, not the request."""
        timeout_s = math.inf if request.timeout_ms is None else request.timeout_ms / 1000
        if not streamed:
            timeout_s = min(timeout_s, self.options.request_timeout_s)
        record = request_record.current()
        record.request_id = request_id.adopt(request.request_id)
        own_id = tenants.own_id(request_id.current())
        self._blocked_ids.check(own_id)
        tenant = tenants.current()
        charged_items = sum(1 + len(text) // CHARS_PER_CHARGED_ITEM for text, _ in request.inputs)
        urgent = charged_items <= MAX_SMALL_ITEMS or tenant.crosses_tenants  # a large request would hold up all others
        return Call(
            own_id,
            time.monotonic() + timeout_s,
            request.priority if urgent else max(request.priority, 0),
            tenant=tenant.name,
            weight=tenant.weight,
            crosses_tenants=tenant.crosses_tenants,
            trace=record.trace,
            idle_timeout_s=self.options.request_timeout_s,
        )

    def _item(self, request: Request[Any, Any, Any], served: ServedModel) -> Item:
        """The item of a request with one text. Raises TooLarge or InvalidField."""
        (item,) = self._items(request, served)
        if isinstance(item, GLiNERBentoError):
            raise item
        return item

    def _items(self, request: Request[Any, Any, Any], served: ServedModel) -> list[Item | GLiNERBentoError]:
        """The item of each text, with every option decided, or its error."""
        items: list[Item | GLiNERBentoError] = []
        decided: Any = None
        for text, options in request.inputs:
            try:
                self.check_text(text)
                if options is not decided:
                    request.task.check(options)
                    make, decided = request.task.decide(options, served.limits), options
                item = make(text)
                served.check(item)
                items.append(item)
            except GLiNERBentoError as error:
                items.append(error)
        return items


async def _merger(task: AnyTask, item: Item) -> Merges | None:
    """What adds to the item's result."""
    return await asyncio.to_thread(task.merger, item) if item.has_merger else None


async def _merged(task: AnyTask, items: Sequence[Item], outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """The outcomes, with what their mergers add."""
    merged = list(outcomes)
    for place, (item, outcome) in enumerate(zip(items, outcomes, strict=True)):
        try:
            if isinstance(outcome, Result) and (merger := await _merger(task, item)):
                merged[place] = merger.whole(outcome)
        except GLiNERBentoError as error:
            merged[place] = error
    return merged


def _with_warnings(served: ServedModel, item: Item, outcome: Outcome) -> Outcome:
    if isinstance(outcome, Result) and (warnings := served.warnings(item, outcome)):
        return cast(Result, replace(cast(Any, outcome), warnings=warnings))
    return outcome


def _batch_result(request: Request[Any, Any, Any], outcome: Outcome, index: int) -> Any:
    """The result of the item at `index`. An error that names a field of the item names the item too."""
    if isinstance(outcome, Result):
        return request.task.batch_result(result=outcome)
    detail = _located(outcome.detail(), index, request.param)
    return request.task.batch_result(error=replace(detail, request_id=request_id.current()))


def _located(error: ErrorDetail, index: int, texts: str) -> ErrorDetail:
    shared = texts == "texts"
    if not error.param or (shared and error.param != "text"):
        return error
    param = f"texts.{index}" if shared else f"items.{index}.{error.param}"
    return replace(error, param=param, message=f"{param}: {error.message.removeprefix(f'{error.param}: ')}")


async def _probe(replica: Replica, note: Callable[[int], None]) -> None:
    with suppress(GLiNERBentoError):
        note((await replica.status()).unfinished_items)
