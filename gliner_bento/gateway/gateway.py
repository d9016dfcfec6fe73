"""The logic of the public API: checks a request against limits, calls the replica, makes the answer. Knows no HTTP."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, replace
from typing import Any

from gliner_bento.adapter_types import AdapterCacheStatus
from gliner_bento.errors import ErrorDetail, GLiNERBentoError, InvalidField, QueueFull, TooLarge
from gliner_bento.fairness.constants import PASS_CHARS
from gliner_bento.gateway import request_id, request_record
from gliner_bento.gateway.adapters import AdapterApi
from gliner_bento.gateway.label_options import label_options
from gliner_bento.gateway.languages import LanguageCheck
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy import tenants
from gliner_bento.gateway.policy.blocked_ids import BlockedIds
from gliner_bento.gateway.policy.overload import OverloadPolicy
from gliner_bento.gateway.status import RecentErrors, server_status
from gliner_bento.gateway.turns import Turns
from gliner_bento.replicas.base import Call, Outcome, Replica, ReplicaStatus
from gliner_bento.status_types import ReplicaHealth, ReplicaList, ServerStatus
from gliner_bento.types import (
    BASE_ADAPTER_ID,
    AbortResponse,
    BatchResult,
    Entity,
    ExtractBatchRequest,
    ExtractBatchResponse,
    Extraction,
    ExtractionWarning,
    ExtractOptions,
    ExtractRequest,
    ExtractResponse,
    Item,
    ModelCard,
    ModelInfo,
    RequestOptions,
    StreamedEnd,
    StreamedEntity,
)

MIN_SHARE = 100
"""Entities, and relations, that each text of a batch may have, beside its share of the limits of the answer."""

StreamedLine = StreamedEntity | StreamedEnd

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
        self.adapters = AdapterApi(replica.adapters, options)
        self.options = options
        self._replica = replica
        self._policy = policy or OverloadPolicy(options)
        self._looking: asyncio.Future[None] | None = None
        self._turns = Turns()
        self._blocked_ids = BlockedIds()
        self._errors = errors or RecentErrors()
        self._started_s = time.monotonic()
        self._model: ModelInfo | None = None
        self._languages = LanguageCheck(())

    async def extract(self, request: ExtractRequest) -> ExtractResponse:
        """Entities and relations of one text."""
        call = self._call(request)
        item = self._item(request.text, _options(request))
        (outcome,) = await self._run([item], call)
        if isinstance(outcome, GLiNERBentoError):
            raise outcome
        model = await self.model_info()
        return ExtractResponse(
            entities=outcome.entities,
            relations=outcome.relations,
            truncated=outcome.truncated,
            truncated_at=outcome.truncated_at,
            usage=outcome.usage,
            warnings=self._warnings(item, outcome),
            model=model.model,
            adapter_id=item.adapter_id,
            request_id=request_id.current(),
        )

    async def extract_stream(self, request: ExtractRequest) -> AsyncGenerator[Sequence[StreamedLine], None]:
        """Entities of one text, in order of position, as they become final; then the rest of the answer. Those of each
        pass, which may have none."""
        call = self._call(request, streamed=True)
        item = self._item(request.text, _options(request))
        async with aclosing(self._stream(item, call)) as parts:
            async for part in parts:
                if not isinstance(part, Extraction):
                    yield [StreamedEntity(entity) for entity in part]
                    continue
                model = await self.model_info()
                end = StreamedEnd(
                    relations=part.relations,
                    truncated=part.truncated,
                    truncated_at=part.truncated_at,
                    usage=part.usage,
                    warnings=self._warnings(item, part),
                    model=model.model,
                    adapter_id=item.adapter_id,
                    request_id=request_id.current(),
                )
                yield [*map(StreamedEntity, part.entities), end]

    async def extract_batch(self, request: ExtractBatchRequest) -> ExtractBatchResponse:
        """One result or error per text, in order. Raises only errors that concern the whole request."""
        call = self._call(request)
        admitted = [self._item_or_error(text, options) for text, options in self._batch(request)]
        items = self._sharing([item for item in admitted if isinstance(item, Item)])
        extracted = await self._run(items, call) if items else []
        model = await self.model_info()
        outcomes = iter([self._with_warnings(*pair) for pair in zip(items, extracted, strict=True)])
        shared = request.texts is not None
        results = [
            _batch_result(
                next(outcomes) if isinstance(item, Item) else item, place, request_id.current(), shared=shared
            )
            for place, item in enumerate(admitted)
        ]
        return ExtractBatchResponse(results, model.model, request_id.current())

    def check_text(self, text: str) -> None:
        """Raise `TooLarge` for a text of more than `max_text_chars` characters."""
        limit = self.options.max_text_chars
        if len(text) > limit:
            raise TooLarge(f"text: {len(text)} characters of at most {limit}", param="text")

    async def ready(self) -> bool:
        """Whether the replica admits items."""
        try:
            return (await self._replica.status()).ready
        except GLiNERBentoError:
            return False

    async def replicas(self) -> ReplicaList:
        """The state of each replica; raises `NotReady` until one has answered."""
        status = await self._replica.status()
        alone = ReplicaHealth(
            name="replica",
            state="ready" if status.ready else "not_ready",
            waiting_items=status.waiting_items,
            running_items=status.running_items,
            resident_adapters=status.resident_adapters,
        )
        return ReplicaList(status.replicas or [alone])

    async def abort(self, aborted_id: str, *, block_s: float = 0.0) -> AbortResponse:
        """Abort a request of the current tenant; `aborted` is false if none has this id. block_s: refuse the id so long
        afterwards."""
        if block_s:
            self._blocked_ids.block(tenants.own_id(aborted_id), block_s)
        return AbortResponse(aborted_id, await self._replica.abort(tenants.own_id(aborted_id)))

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
            status = await self._replica.status()
            return status, await self.adapters.cache_status() if self.options.enable_lora else None
        except GLiNERBentoError:
            return None, None

    async def model_info(self) -> ModelInfo:
        """The replica's model; requested once, because a replica serves one model for its whole life. Raises `NotReady`
        until it has answered: requests ask afterwards, because they wait for a replica."""
        if self._model is None:
            self._model = (await self._replica.status()).model
            self._languages = LanguageCheck(self._model.languages)
        return self._model

    async def _run(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """The replica's outcomes. Raises `QueueFull` if it is overloaded."""
        with self._policy.admit(items, call.deadline_s, tenants.current(), call.priority):
            request_record.current().admitted = True
            outcomes = await self._replica.extract(items, call)
            self._observe()
            await self._turns.wait()
            for item, outcome in zip(items, outcomes, strict=True):
                if isinstance(outcome, Extraction):
                    self._learn(item, outcome)
                elif isinstance(outcome, QueueFull):
                    outcome.retry_after_s = self._policy.retry_after_s(len(items))
        return outcomes

    async def _stream(self, item: Item, call: Call) -> AsyncGenerator[Sequence[Entity] | Extraction, None]:
        """The replica's parts. Raises `QueueFull` if it is overloaded."""
        passes = 1 + len(item.text) // PASS_CHARS
        latest_s = min(call.deadline_s, time.monotonic() + passes * call.idle_timeout_s)
        with self._policy.admit([item], latest_s, tenants.current(), call.priority):
            request_record.current().admitted = True
            async with aclosing(self._replica.stream(item, call)) as parts:
                async for part in parts:
                    self._observe()
                    if isinstance(part, Extraction):
                        self._learn(item, part)
                    yield part

    def _observe(self) -> None:
        """Note the replica's work, and what it has of other gateways."""
        self._policy.observe(self._replica.tokens_run)
        if note := self._policy.look_elsewhere():
            self._looking = asyncio.ensure_future(self._look(note))

    async def _look(self, note: Callable[[int], None]) -> None:
        with suppress(GLiNERBentoError):
            note((await self._replica.status()).unfinished_items)

    def _learn(self, item: Item, result: Extraction) -> None:
        """Note a result, for admission and for the request's record."""
        self._policy.learn(item, result)
        record = request_record.current()
        record.items += 1
        record.tokens += result.usage.tokens

    def _warnings(self, item: Item, result: Extraction) -> Sequence[ExtractionWarning]:
        """The replica's, and one for the text's language. An adapter may be trained for other languages."""
        return (*result.warnings, *(() if item.adapter_id else self._languages.warnings(item.text)))

    def _with_warnings(self, item: Item, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Extraction) and (warnings := self._warnings(item, outcome)):
            return replace(outcome, warnings=warnings)
        return outcome

    def _call(self, request: RequestOptions, *, streamed: bool = False) -> Call:
        """streamed: `request_timeout_s` is not the limit of the request, but of the time without progress."""
        timeout_s = math.inf if request.timeout_ms is None else request.timeout_ms / 1000
        if not streamed:
            timeout_s = min(timeout_s, self.options.request_timeout_s)
        record = request_record.current()
        record.request_id = request_id.adopt(request.request_id)
        own_id = tenants.own_id(request_id.current())
        self._blocked_ids.check(own_id)
        tenant = tenants.current()
        return Call(
            own_id,
            time.monotonic() + timeout_s,
            request.priority,
            tenant=tenant.name,
            weight=tenant.weight,
            crosses_tenants=tenant.crosses_tenants,
            trace=record.trace,
            idle_timeout_s=self.options.request_timeout_s,
        )

    def _batch(self, request: ExtractBatchRequest) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Each text with its options: its own where it has them, else the batch's."""
        if (request.texts is None) == (request.items is None):
            raise InvalidField("texts: send either texts or items", param="texts")
        field = "items" if request.texts is None else "texts"
        size = len(request.texts or request.items or ())
        if size > self.options.max_batch_items:
            raise TooLarge(f"{field}: {size} of at most {self.options.max_batch_items}", param=field)
        shared = _options(request)
        if request.texts is not None:
            if request.labels is None:
                raise InvalidField("labels: Field required", param="labels")
            return ((text, shared) for text in request.texts)
        own = ((item.text, _options(item)) for item in request.items or ())
        return (
            (text, shared | {name: value for name, value in options.items() if value is not None})
            for text, options in own
        )

    def _item_or_error(self, text: str, options: Mapping[str, Any]) -> Item | GLiNERBentoError:
        try:
            return self._item(text, options)
        except GLiNERBentoError as error:
            return error

    def _item(self, text: str, options: Mapping[str, Any]) -> Item:
        """The item, with every option decided. Raises TooLarge or InvalidField."""
        limits = self.options
        self.check_text(text)
        if options["labels"] is None:
            raise InvalidField("labels: Field required", param="labels")
        threshold, relation_threshold = options["threshold"], options["relation_threshold"]
        decided = {
            **label_options(options["labels"], options["relations"] or {}, max_labels=limits.max_labels),
            "threshold": limits.default_threshold if threshold is None else threshold,
            "relation_threshold": (
                limits.default_relation_threshold if relation_threshold is None else relation_threshold
            ),
            "max_entities": limits.max_entities,
            "max_relations": limits.max_relations,
            "adapter_id": None if options["adapter_id"] == BASE_ADAPTER_ID else options["adapter_id"],
        }
        return Item(text, **{**options, **decided})

    def _sharing(self, items: Sequence[Item]) -> list[Item]:
        """The items of one request, each with its share of the limits of an answer, by the length of its text."""
        if len(items) < 2:
            return list(items)
        total = sum(len(item.text) for item in items) or 1
        return [
            replace(
                item,
                max_entities=min(item.max_entities, MIN_SHARE + item.max_entities * len(item.text) // total),
                max_relations=min(item.max_relations, MIN_SHARE + item.max_relations * len(item.text) // total),
            )
            for item in items
        ]


def _options(request: Any) -> dict[str, Any]:
    """The options of a request, or of an item of a batch."""
    return {name: getattr(request, name) for name in ExtractOptions.model_fields}


def _batch_result(outcome: Outcome, place: int, answered_id: str, *, shared: bool) -> BatchResult:
    """One item's result. An error that names a field of the item names the item too.

    shared: the texts of the batch have all other fields in common.
    """
    if isinstance(outcome, Extraction):
        return BatchResult(result=outcome)
    return BatchResult(error=replace(_located(outcome.detail(), place, shared=shared), request_id=answered_id))


def _located(error: ErrorDetail, place: int, *, shared: bool) -> ErrorDetail:
    if not error.param or (shared and error.param != "text"):
        return error
    param = f"texts.{place}" if shared else f"items.{place}.{error.param}"
    return replace(error, param=param, message=f"{param}: {error.message.removeprefix(f'{error.param}: ')}")
