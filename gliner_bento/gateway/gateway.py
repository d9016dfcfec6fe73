"""The logic of the public API: checks a request against limits, calls the replica, builds the answer. Knows no HTTP."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, cast

from gliner_bento.errors import ErrorDetail, GLiNERBentoError, TooLarge
from gliner_bento.fairness.constants import CHARS_PER_CHARGED_ITEM, MAX_SMALL_ITEMS
from gliner_bento.gateway.adapters import AdapterApi
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.documents import DocumentReader
from gliner_bento.gateway.expressions import ExpressionRunner
from gliner_bento.gateway.handler import Handler
from gliner_bento.gateway.lists import listed
from gliner_bento.gateway.models import ModelTable, Replicas, ServedModel
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.blocked_ids import BlockedIds
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.gateway.sealing import Sealing
from gliner_bento.gateway.status import RecentErrors, server_status
from gliner_bento.gateway.waiting_mappings import waiting_mappings
from gliner_bento.privacy.known_values import Effort
from gliner_bento.privacy.lists import Listed, Lists
from gliner_bento.replicas.base import Call, Models, Outcome
from gliner_bento.status_types import AbortResponse, ServerStatus
from gliner_bento.storage.lists import read_lists
from gliner_bento.tasks.base import Item, Limits, Result, ResultMerger
from gliner_bento.tasks.extraction import (
    Answer,
    BatchResult,
    ExtractBatchResponse,
    Extraction,
    ExtractionItem,
    ExtractionOptions,
    ExtractResponse,
    Request,
    StreamedEnd,
    StreamedEntity,
    answer_of,
    decide,
    share,
)
from gliner_bento.tasks.requests import batch_of

MetricsReader = Callable[[], Awaitable[Mapping[str, bytes]]]


class Gateway:
    """The public API over the served models, within the operator's limits.

    expressions: runs callers' regular expressions. documents: reads their documents. sealing: seals mappings of
    redacted texts. waiting: stores those whose callers cannot keep them.
    read_metrics: reads the metrics of processes on other machines, by replica. models: adds, changes and removes models
    while the server runs; None: not supported.
    """

    def __init__(
        self,
        replicas: Replicas,
        options: GatewayOptions,
        errors: RecentErrors | None = None,
        read_metrics: MetricsReader | None = None,
        models: Models | None = None,
    ) -> None:
        self.read_metrics = read_metrics
        self.options = options
        self.models = ModelTable(replicas, options, models)
        self.expressions = ExpressionRunner(options.request_timeout_s)
        self.documents = DocumentReader(options)
        self.sealing = Sealing(options)
        self._lists = read_lists(options.allow_list, options.deny_list)
        self.waiting = waiting_mappings(options)
        self._handler = Handler(options.handler) if options.handler else None
        self._blocked_ids = BlockedIds()
        self._errors = errors or RecentErrors()
        self._started_s = time.monotonic()

    async def run(self, context: Context, request: Request) -> ExtractResponse:
        """The answer to a request with one text."""
        call, served = self._call(context, request), await self._serving(context)
        item = self._item(request, served)
        result = await self._result(context, request, served, item, call)
        return await self._answer(ExtractResponse, context, served, item, result)

    async def run_stream(self, context: Context, request: Request) -> AsyncGenerator[Sequence[Any], None]:
        """The lines of the streamed answer to a request with one text: for each pass a list, possibly empty, of the
        entities that became final; the last list ends with the rest of the answer. A handler makes one list."""
        call = self._call(context, request, streamed=True)
        served = await self._serving(context)
        item = self._item(request, served)
        if self._handler:
            yield await self._last_lines(
                context, served, item, await self._result(context, request, served, item, call)
            )
            return
        (listed_item,) = await self._with_listed(context, request, [item])
        if isinstance(listed_item, GLiNERBentoError):
            raise listed_item
        item = listed_item
        matches: ResultMerger | None = None
        async with aclosing(served.stream(context, item, call)) as steps:
            async for step in steps:
                matches = matches or await _merger(request, item)
                if isinstance(step, Result):
                    yield await self._last_lines(context, served, item, matches.whole(step) if matches else step)
                else:
                    yield list(map(StreamedEntity, matches.add(step) if matches else step))

    async def run_batch(self, context: Context, request: Request) -> ExtractBatchResponse:
        """One result or error per text, in order. Raises only errors that concern the whole request."""
        call, served = self._call(context, request), await self._serving(context)
        check_number(served.limits, len(request.inputs), request.param)
        items_or_errors = self._items(request, served)
        items = share([item for item in items_or_errors if isinstance(item, ExtractionItem)])
        outcomes = await self._outcomes(context, request, served, items, call) if items else []
        model = await served.info()
        remaining = iter([_with_warnings(served, item, outcome) for item, outcome in zip(items, outcomes, strict=True)])
        all_outcomes: list[Outcome] = [next(remaining) if isinstance(item, Item) else item for item in items_or_errors]
        results = [_batch_result(context, request, outcome, index) for index, outcome in enumerate(all_outcomes)]
        return ExtractBatchResponse(results, model.model, context.id)

    async def unread_batch(self, context: Context, request: Request, texts: Sequence[str]) -> ExtractBatchResponse:
        """As `run_batch`, for texts in which a model has nothing to find: a text that is too long has an error."""
        served = await self.served(context)
        outcomes = [_too_long(text, served.limits) or Extraction(()) for text in texts]
        results = [_batch_result(context, request, outcome, index) for index, outcome in enumerate(outcomes)]
        return ExtractBatchResponse(results, (await served.info()).model, context.id)

    async def batch_of(self, context: Context, body: Mapping[str, Any]) -> Request:
        """Make a request from the fields of an `ExtractBatchRequest`. Raises `TooLarge` for too many texts, before it
        checks any of them."""
        limits = (await self.served(context)).limits
        return batch_of(body, partial(check_number, limits))

    async def adapters(self, context: Context) -> AdapterApi:
        """The adapters of the request's model. Raises `ModelNotLoaded`."""
        served = await self.served(context)
        served.check_serving()
        return served.adapters

    @property
    def largest_limits(self) -> Limits:
        """The limits of texts for a request that no model reads: the largest of the served models'."""
        of_models = [served.limits for served in self.models] or [self.options]
        return replace(
            self.options,
            max_text_chars=max(limits.max_text_chars for limits in of_models),
            max_batch_items=max(limits.max_batch_items for limits in of_models),
        )

    def check_text(self, text: str, limits: Limits | None = None) -> None:
        """Raise `TooLarge` for a text of more than `max_text_chars` characters. limits: default: `largest_limits`."""
        if error := _too_long(text, limits or self.largest_limits):
            raise error

    def check_texts(self, texts: Sequence[str], limits: Limits) -> None:
        """Raise `TooLarge` for more than `max_batch_items` texts, or for a text that is too long."""
        check_number(limits, len(texts))
        for text in texts:
            self.check_text(text, limits)

    async def ready(self) -> bool:
        """See `ModelTable.ready`."""
        return await self.models.ready()

    async def aclose(self) -> None:
        """Close connections to other servers, and end helper threads; after the last request."""
        self.expressions.close()
        self.documents.close()
        await self.waiting.aclose()

    async def abort(self, context: Context, aborted_id: str, *, block_s: float = 0.0) -> AbortResponse:
        """Abort the tenant's requests with this id; `aborted` is false if there are none. block_s: further
        requests with this id are refused for this time."""
        if block_s:
            self._blocked_ids.block(context.own(aborted_id), block_s)
        calls = (served.replica.abort(context.own(aborted_id)) for served in self.models)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        if True not in outcomes and (errors := [error for error in outcomes if isinstance(error, BaseException)]):
            raise errors[0]
        return AbortResponse(aborted_id, True in outcomes)

    async def served(self, context: Context) -> ServedModel:
        """The request's model, loaded or not. Raises `ModelNotFound`."""
        return await self.models.find(context.model)

    def if_several(self, model: str | None) -> str | None:
        """The name of a model; None on a server with one model, for clients that always name one."""
        return model if len(self.models) > 1 else None

    async def status(self, served: ServedModel) -> ServerStatus:
        """The current state of the server and of one of its models."""
        state, uptime_s = await served.state(), time.monotonic() - self._started_s
        return server_status(state, uptime_s=uptime_s, errors=self._errors)

    async def _serving(self, context: Context) -> ServedModel:
        """The request's model. Raises `ModelNotFound`, and `ModelNotLoaded`."""
        served = await self.served(context)
        context.record.model = served.name
        served.check_serving()
        return served

    async def _result(self, context: Context, request: Request, served: ServedModel, item: Item, call: Call) -> Result:
        """The result of one item. Raises its error."""
        (outcome,) = await self._outcomes(context, request, served, [item], call)
        if isinstance(outcome, GLiNERBentoError):
            raise outcome
        return outcome

    async def _outcomes(
        self, context: Context, request: Request, served: ServedModel, items: Sequence[Item], call: Call
    ) -> Sequence[Outcome]:
        """The model's outcomes, after each item's `ResultMerger` has added to them and the handler has changed them."""

        async def extract(admitted: Sequence[Item]) -> Sequence[Outcome]:
            listed = await self._with_listed(context, request, admitted)
            ready = [item for item in listed if isinstance(item, Item)]
            merged = iter(await _merged(request, ready, await served.outcomes(context, ready, call)) if ready else ())
            return [next(merged) if isinstance(item, Item) else item for item in listed]

        return await (self._handler.run(items, call, extract) if self._handler else extract(items))

    async def _with_listed(
        self, context: Context, request: Request, items: Sequence[Item]
    ) -> Sequence[Item | GLiNERBentoError]:
        """The items with what lists say about their texts, or errors. Items that share lists are searched together."""
        searched: list[Item | GLiNERBentoError] = [*items]
        groups: dict[tuple[int, int], list[int]] = {}
        others = any(self.lists_of(context.tenant))
        for index, item in enumerate(items):
            if request.listed is not None or not isinstance(item, ExtractionItem) or not item.finds_entities:
                continue
            if others or item.allow_list or item.deny_list:
                groups.setdefault((id(item.allow_list), id(item.deny_list)), []).append(index)
        effort = Effort()
        for group in groups.values():
            of_group = [cast(ExtractionItem, items[index]) for index in group]
            own = Lists(of_group[0].allow_list, of_group[0].deny_list)
            try:
                found = await self.listed(context, own, [item.text for item in of_group], effort)
            except GLiNERBentoError as error:
                searched = [error if index in group else item for index, item in enumerate(searched)]
                continue
            for index, item, of_text in zip(group, of_group, found, strict=True):
                searched[index] = item.listed(of_text)
        return searched

    async def listed(
        self, context: Context, own: Lists, texts: Sequence[str], effort: Effort | None = None
    ) -> list[Listed]:
        """What the lists of a request, of its API key and of the server say about texts. See `lists.listed`."""
        others = self.lists_of(context.tenant)
        return await listed(self.expressions, context.tenant, own, others, texts, effort or Effort())

    def lists_of(self, tenant: Tenant) -> Sequence[Lists]:
        """The operator's lists for the requests of a tenant."""
        return tenant.lists, self._lists

    async def _last_lines(
        self, context: Context, served: ServedModel, item: Item, result: Result
    ) -> Sequence[StreamedEntity | StreamedEnd]:
        """The entities of a result, then the rest of the answer."""
        end = await self._answer(StreamedEnd, context, served, item, result)
        return [*map(StreamedEntity, cast(Extraction, result).entities), end]

    async def _answer(
        self, kind: type[Answer], context: Context, served: ServedModel, item: Item, result: Result
    ) -> Answer:
        model = await served.info()
        about = {"model": model.model, "adapter_id": item.adapter_id, "request_id": context.id}
        return answer_of(kind, result, warnings=served.warnings(item, result), **about)

    def _call(self, context: Context, request: Request, *, streamed: bool = False) -> Call:
        """The call for a request. streamed: `request_timeout_s` limits the time without progress, not the total."""
        timeout_s = math.inf if request.timeout_ms is None else request.timeout_ms / 1000
        if not streamed:
            timeout_s = min(timeout_s, self.options.request_timeout_s)
        context.id = request.request_id or context.id
        own_id = context.own(context.id)
        self._blocked_ids.check(own_id)
        tenant = context.tenant
        charged_items = sum(1 + len(text) // CHARS_PER_CHARGED_ITEM for text, _ in request.inputs)
        priority = request.priority
        if charged_items > MAX_SMALL_ITEMS and not tenant.crosses_tenants:
            priority = max(priority, 0)  # large requests must not delay small ones
        return Call(
            request_id=own_id,
            deadline_s=time.monotonic() + timeout_s,
            priority=priority,
            tenant=tenant.name,
            weight=tenant.weight,
            crosses_tenants=tenant.crosses_tenants,
            trace=context.record.trace,
            idle_timeout_s=self.options.request_timeout_s,
        )

    def _item(self, request: Request, served: ServedModel) -> Item:
        """The item of a request with one text. Raises `TooLarge` or `InvalidField`."""
        (item,) = self._items(request, served)
        if isinstance(item, GLiNERBentoError):
            raise item
        return item

    def _items(self, request: Request, served: ServedModel) -> list[Item | GLiNERBentoError]:
        """For each text, an item with every option decided, or an error."""
        items: list[Item | GLiNERBentoError] = []
        decided_options: ExtractionOptions | None = None  # those of `make_item`; several texts may share one object
        for index, (text, options) in enumerate(request.inputs):
            try:
                self.check_text(text, served.limits)
                if options is not decided_options:
                    options.check()
                    make_item, decided_options = decide(options, served.limits), options
                item = make_item(text)
                if request.listed is not None:
                    item = item.listed(Listed(request.listed[index].allowed))
                served.check(item)
                items.append(item)
            except GLiNERBentoError as error:
                items.append(error)
        return items


async def _merger(request: Request, item: Item) -> ResultMerger | None:
    """The merger for an item; None if nothing is added to the model's result."""
    return await asyncio.to_thread(item.merger, all_found=request.all_found) if item.has_merger else None


async def _merged(request: Request, items: Sequence[Item], outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """The outcomes, after their mergers have added to them."""
    merged = list(outcomes)
    for index, (item, outcome) in enumerate(zip(items, outcomes, strict=True)):
        try:
            if isinstance(outcome, Result) and (matches := await _merger(request, item)):
                merged[index] = matches.whole(outcome)
        except GLiNERBentoError as error:
            merged[index] = error
    return merged


def _with_warnings(served: ServedModel, item: Item, outcome: Outcome) -> Outcome:
    if isinstance(outcome, Result) and (warnings := served.warnings(item, outcome)):
        return cast(Result, replace(cast(Any, outcome), warnings=warnings))
    return outcome


def _batch_result(context: Context, request: Request, outcome: Outcome, index: int) -> BatchResult:
    """The result of the item at `index`. If the outcome is an error about a field, its message also names the item."""
    if isinstance(outcome, Result):
        return BatchResult(cast(Extraction, outcome))
    detail = _located(outcome.detail(), index, request.param)
    return BatchResult(error=replace(detail, request_id=context.id))


def _located(error: ErrorDetail, index: int, batch_field: str) -> ErrorDetail:
    shares_options = batch_field == "texts"
    if not error.param or (shares_options and error.param != "text"):
        return error
    param = f"texts.{index}" if shares_options else f"items.{index}.{error.param}"
    return replace(error, param=param, message=f"{param}: {error.message.removeprefix(f'{error.param}: ')}")


def _too_long(text: str, limits: Limits) -> TooLarge | None:
    size, limit = len(text), limits.max_text_chars
    return TooLarge(f"text: {size} characters; the limit is {limit}", param="text") if size > limit else None


def check_number(limits: Limits, size: int, param: str = "texts") -> None:
    """Raise `TooLarge` for a batch of more than `max_batch_items` texts. param: the field with the texts."""
    if size > limits.max_batch_items:
        raise TooLarge(f"{param}: {size} texts; the limit is {limits.max_batch_items}", param=param)
