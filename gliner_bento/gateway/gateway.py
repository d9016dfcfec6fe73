"""What the public API does: check a request against the limits, ask the runner, shape the answer. Knows no HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from gliner_bento.errors import ErrorDetail, GLiNERBentoError, InvalidField, TooLarge, from_detail
from gliner_bento.gateway import request_id
from gliner_bento.gateway.adapters import Adapters
from gliner_bento.gateway.limits import Limits
from gliner_bento.gateway.runner import Hop
from gliner_bento.types import (
    BASE_ADAPTER_ID,
    AbortResponse,
    BatchResult,
    Entity,
    ExtractBatchRequest,
    ExtractBatchResponse,
    Extraction,
    ExtractRequest,
    ExtractResponse,
    ModelCard,
    Relation,
    RelationArgument,
    RequestOptions,
    RunnerItem,
    RunnerOutcome,
    StreamedEnd,
    StreamedEntity,
    Usage,
)

_ITEM_OPTIONS = (
    "labels",
    "relations",
    "threshold",
    "relation_threshold",
    "flat_ner",
    "multi_label",
    "adapter_id",
    "long_text",
    "window_words",
    "window_overlap_words",
)

_AS_ASKED = ("flat_ner", "multi_label", "long_text", "window_words", "window_overlap_words")


class Gateway:
    """The public API, over a runner; within `limits`."""

    def __init__(self, hop: Hop, limits: Limits) -> None:
        self.adapters = Adapters(hop, limits)
        self._hop = hop
        self.limits = limits
        self._description: dict[str, Any] | None = None

    async def extract(self, request: ExtractRequest) -> ExtractResponse:
        """Entities and relations of one text."""
        called = request_id.adopt(request.request_id)
        item = self._item(request.model_dump(include={"text", *_ITEM_OPTIONS}))
        outcomes = await self._ask([item], request, called)
        return ExtractResponse(
            **dict(_extraction(outcomes[0])),
            model=(await self.describe())["name"],
            adapter_id=item.adapter_id,
            request_id=called,
        )

    async def extract_stream(self, request: ExtractRequest) -> AsyncIterator[StreamedEntity | StreamedEnd]:
        """Entities of one text, in order of position, while it is being read; then what else there is to say."""
        called = request_id.adopt(request.request_id)
        item = self._item(request.model_dump(include={"text", *_ITEM_OPTIONS}))
        entities: list[Entity] = []
        parts = self._hop.extract_stream(
            item, request_id=called, timeout_ms=self._timeout_ms(request), priority=request.priority
        )
        async for part in parts:
            for entity in part.get("entities", ()):
                entities.append(Entity.model_construct(**entity))
                yield StreamedEntity.model_construct(entity=entities[-1])
            if "outcome" in part:
                end = _extraction(part["outcome"], entities)
                yield StreamedEnd.model_construct(
                    **{name: getattr(end, name) for name in ("relations", "truncated", "truncated_at", "usage")},
                    model=(await self.describe())["name"],
                    adapter_id=item.adapter_id,
                    request_id=called,
                )

    async def extract_batch(self, request: ExtractBatchRequest) -> ExtractBatchResponse:
        """One result or error per text, in order; the request fails as a whole only if it is wrong as a whole."""
        called = request_id.adopt(request.request_id)
        specs = self._batch_items(request)
        items = [self._item_or_error(spec) for spec in specs]
        good = [item for item in items if isinstance(item, RunnerItem)]
        answered = iter(await self._ask(good, request, called) if good else [])
        outcomes = [next(answered) if isinstance(item, RunnerItem) else item for item in items]
        field = "items" if request.texts is None else "texts"
        results = [_batch_result(outcome, f"{field}.{place}", called) for place, outcome in enumerate(outcomes)]
        return ExtractBatchResponse(results=results, model=(await self.describe())["name"], request_id=called)

    async def ready(self) -> bool:
        """Whether the runner answers."""
        try:
            await self._hop.describe()
        except GLiNERBentoError:
            return False
        return True

    async def abort(self, aborted_id: str) -> AbortResponse:
        """Stop a request; `aborted` tells whether there was one."""
        return AbortResponse(request_id=aborted_id, aborted=await self._hop.abort(aborted_id))

    async def model(self) -> ModelCard:
        """What is served, and with which limits."""
        description = await self.describe()
        return ModelCard(
            model=description["name"],
            **{name: description[name] for name in ModelCard.model_fields if name in description},
            max_labels=self.limits.max_labels,
            max_text_chars=self.limits.max_text_chars,
            max_batch_items=self.limits.max_batch_items,
        )

    async def describe(self) -> dict[str, Any]:
        """The runner's `ModelInfo`; asked once, since a replica serves one model for its whole life."""
        if self._description is None:
            self._description = await self._hop.describe()
        return self._description

    async def _ask(
        self, items: list[RunnerItem], request: ExtractRequest | ExtractBatchRequest, called: str
    ) -> list[RunnerOutcome]:
        return await self._hop.extract(
            items, request_id=called, timeout_ms=self._timeout_ms(request), priority=request.priority
        )

    def _timeout_ms(self, request: RequestOptions) -> float:
        longest_ms = self.limits.request_timeout_s * 1000
        return min(request.timeout_ms or longest_ms, longest_ms)

    def _batch_items(self, request: ExtractBatchRequest) -> list[dict[str, Any]]:
        """Each text with its options: its own where it has them, else the batch's."""
        if (request.texts is None) == (request.items is None):
            raise InvalidField("texts: send either texts or items", param="texts")
        shared = request.model_dump(include=set(_ITEM_OPTIONS))
        if request.texts is not None:
            field, own = "texts", [{"text": text} for text in request.texts]
        else:
            field, own = "items", [item.model_dump(exclude_none=True) for item in request.items or []]
        if len(own) > self.limits.max_batch_items:
            raise TooLarge(f"{field}: {len(own)} of at most {self.limits.max_batch_items}", param=field)
        if field == "texts" and shared["labels"] is None:
            raise InvalidField("labels: Field required", param="labels")
        return [shared | options for options in own]

    def _item_or_error(self, spec: Mapping[str, Any]) -> RunnerItem | RunnerOutcome:
        """The item, or the outcome of one that is refused here."""
        try:
            return self._item(spec)
        except GLiNERBentoError as error:
            return {"error": error.detail().model_dump()}

    def _item(self, spec: Mapping[str, Any]) -> RunnerItem:
        """`spec` with every option decided."""
        if len(spec["text"]) > self.limits.max_text_chars:
            raise TooLarge(
                f"text: {len(spec['text'])} characters of at most {self.limits.max_text_chars}", param="text"
            )
        if spec["labels"] is None:
            raise InvalidField("labels: Field required", param="labels")
        threshold, relation_threshold = spec["threshold"], spec["relation_threshold"]
        return RunnerItem.model_construct(
            text=spec["text"],
            labels=self._described(spec["labels"], "labels"),
            relations=self._described(spec["relations"] or {}, "relations"),
            threshold=self.limits.default_threshold if threshold is None else threshold,
            relation_threshold=(
                self.limits.default_relation_threshold if relation_threshold is None else relation_threshold
            ),
            adapter_id=None if spec["adapter_id"] == BASE_ADAPTER_ID else spec["adapter_id"],
            **{name: spec[name] for name in _AS_ASKED},
        )

    def _described(self, names: Sequence[str] | Mapping[str, str], param: str) -> dict[str, str]:
        """Names with their descriptions; a plain name describes itself, and counts once however often it is given."""
        described = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        if len(described) > self.limits.max_labels:
            limit = self.limits.max_labels
            raise InvalidField(f"{param}: {len(described)} of at most {limit} (max_labels)", param=param)
        return described


def _batch_result(outcome: RunnerOutcome, path: str, called: str) -> BatchResult:
    """One item's result; an error that names a field says whose it is. Texts share all fields but the text."""
    if "error" not in outcome:
        return BatchResult(result=_extraction(outcome))
    error = ErrorDetail.model_validate(outcome["error"])
    shares = path.startswith("texts")
    if error.param and (error.param == "text" or not shares):
        param = path if shares else f"{path}.{error.param}"
        error.message = f"{param}: {error.message.removeprefix(f'{error.param}: ')}"
        error.param = param
    error.request_id = called
    return BatchResult(error=error)


def _extraction(outcome: RunnerOutcome, told: Sequence[Entity] = ()) -> Extraction:
    """The runner's answer for one item, in the public shape; raises the item's error if it has one.

    told: entities that came before the rest of them.
    """
    if "error" in outcome:
        raise from_detail(ErrorDetail.model_validate(outcome["error"]))
    found = outcome["result"]
    entities = [*told, *(Entity.model_construct(**entity) for entity in found["entities"])]
    relations = [
        Relation.model_construct(
            relation=relation["relation"],
            score=relation["score"],
            head=_argument(entities, relation["head"]),
            tail=_argument(entities, relation["tail"]),
        )
        for relation in found["relations"]
    ]
    truncated_at = found["truncated_at"]
    return Extraction.model_construct(
        entities=entities,
        relations=relations,
        truncated=truncated_at is not None,
        truncated_at=truncated_at,
        usage=Usage.model_construct(**{name: found[name] for name in Usage.model_fields}),
    )


def _argument(entities: Sequence[Entity], index: int) -> RelationArgument:
    entity = entities[index]
    return RelationArgument.model_construct(
        entity_idx=index, start=entity.start, end=entity.end, text=entity.text, label=entity.label
    )
