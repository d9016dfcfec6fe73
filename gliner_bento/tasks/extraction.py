"""Extraction from a text: the options of a request, an item in which they are decided, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cache, partial
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field, GetCoreSchemaHandler
from typing_extensions import Self

from gliner_bento.errors import ErrorDetail, InvalidField, from_detail
from gliner_bento.frozen import frozen
from gliner_bento.privacy.lists import Listed, ListEntry
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.tasks.base import (
    BASE_ADAPTER_ID,
    NO_USAGE,
    ExtractionWarning,
    Item,
    Limits,
    Result,
    ResultMerger,
    Usage,
)
from gliner_bento.tasks.classifications import (
    CLASSIFICATIONS,
    Classification,
    ClassificationResult,
    Classifications,
)
from gliner_bento.tasks.fields import Score
from gliner_bento.tasks.labels import ENTITIES, RELATIONS, Labels, Relations, WithoutDecoys
from gliner_bento.tasks.lists import DENY_LIST, AllowList, DenyList
from gliner_bento.tasks.part import Mergers, Part
from gliner_bento.tasks.recognition import (
    AllFound,
    MatchMerger,
    Recognizers,
    Regions,
    Source,
    merger_of,
    recognition_options,
)
from gliner_bento.tasks.review import ReviewMarks
from gliner_bento.tasks.structures import STRUCTURES, Instance, Structure, Structures

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]
RELATION_LABELS = ["founded", "founded in", "headquartered in"]

Answer = TypeVar("Answer")

LongText = Literal["window", "truncate", "reject"]
RelationWindow = Literal["whole", "sentences"]
OnLimit = Literal["error", "truncate"]
Overlap = Literal["allow", "nested", "flat", "longest"]
Words = Annotated[int, Field(ge=8, le=100_000)]
OverlapWords = Annotated[int, Field(ge=0, le=100_000)]
Sentences = Annotated[int, Field(ge=1, le=1000)]
OverlapSentences = Annotated[int, Field(ge=0, le=1000)]

MAX_ENTITIES, MAX_RELATIONS = 100_000, 20_000  # default limits of one answer
LIMIT_WARNINGS = frozenset({"max_entities", "max_relations"})  # codes of the warnings for answers that reach a limit

MIN_SHARE = 100
"""Number of entities, and of relations, that each text of a batch may have in addition to its share of the limits."""

ALL_SPANS_THRESHOLD = 0.1
"""With a lower `threshold`, an item with relations is large, because most pairs of spans are scored."""


@frozen(kw_only=True)
class ExtractionOptions:
    """What to extract from a text, and how; `requests.py` describes each option. None: the server decides."""

    labels: Labels | None = None
    relations: Relations | None = None
    classifications: Classifications | None = None
    structures: Structures | None = None
    threshold: Score | None = None
    relation_threshold: Score | None = None
    flat_ner: bool = True
    multi_label: bool = False
    overlap: Overlap | None = None
    across_empty_lines: bool = False
    adapter_id: str | None = None
    long_text: LongText = "window"
    window_words: Words | None = None
    window_overlap_words: OverlapWords | None = None
    relation_window: RelationWindow | None = None
    relation_window_sentences: Sentences | None = None
    relation_window_overlap_sentences: OverlapSentences | None = None
    on_limit: OnLimit = "error"
    recognizers: Recognizers | None = None
    phone_regions: Regions | None = None
    allow_list: AllowList | None = None
    deny_list: DenyList | None = None

    def check(self) -> None:
        """Raise InvalidField if there is nothing to extract."""
        if not any(getattr(self, part.option) for part in PARTS):
            first, *others = (part.option for part in PARTS)
            raise InvalidField(f"{first}: Field required, or {' or '.join(others)}", param=first)


@frozen()
class Request:
    """What a client asks for, in any wire format.

    inputs: texts with their options.
    param: the field with the texts of a batch, for errors: `texts` (they share options) or `items`.
    all_found: see `AllFound`. listed: what lists say about each text; None: the gateway looks for it. What a deny list
    has is then not merged: the caller does that.
    """

    inputs: Sequence[tuple[str, ExtractionOptions]]
    request_id: str | None = None
    timeout_ms: float | None = None
    priority: int = 0
    param: str = "texts"
    all_found: bool = False
    listed: Sequence[Listed] | None = None


@frozen()
class ExtractionItem(Item):
    """One text with every option decided.

    `labels` and `relations` map a name to its description; the name is also the description if there is none. Names
    are unique, non-empty, and returned as they are; descriptions are what the model reads.

    label_thresholds, relation_thresholds: by name, the thresholds of labels and relations that have their own.
    review_band: lowest and highest score of entities that are marked for review; empty: none are.
    decoys: labels whose entities are not in the answer; results between processes have them.
    relation_heads, relation_tails: by name of a relation that limits them, the allowed labels as indexes into `labels`.
    The options of windows and of relation windows are None where the engine's default applies.
    max_entities, max_relations: maximum number in the result; see `on_limit`.
    recognizers: by entity type, the label of its matches in the result. phone_regions: regions whose phone numbers are
    found without a country code.
    allow_list, deny_list: what to look for in the text before the model reads it. allowed, denied: where it was found;
    nothing inside one of the `allowed` [start, end), which are those of `Listed`, is a prediction.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    relations: Mapping[str, str] = field(default_factory=dict)
    threshold: float = 0.5
    relation_threshold: float = 0.5
    flat_ner: bool = True
    multi_label: bool = False
    overlap: Overlap | None = None
    across_empty_lines: bool = False
    long_text: LongText = "window"
    window_words: int | None = None
    window_overlap_words: int | None = None
    relation_window: RelationWindow | None = None
    relation_window_sentences: int | None = None
    relation_window_overlap_sentences: int | None = None
    on_limit: OnLimit = "error"
    max_entities: int = MAX_ENTITIES
    max_relations: int = MAX_RELATIONS
    label_thresholds: Mapping[str, float] = field(default_factory=dict)
    review_band: Sequence[float] = field(default_factory=list)
    decoys: Sequence[str] = field(default_factory=list)
    relation_thresholds: Mapping[str, float] = field(default_factory=dict)
    relation_heads: Mapping[str, Sequence[int]] = field(default_factory=dict)
    relation_tails: Mapping[str, Sequence[int]] = field(default_factory=dict)
    classifications: Mapping[str, Classification] = field(default_factory=dict)
    structures: Mapping[str, Structure] = field(default_factory=dict)
    recognizers: Mapping[str, str] = field(default_factory=dict)
    phone_regions: Sequence[str] = field(default_factory=list)
    allow_list: Sequence[ListEntry] = field(default_factory=list)
    deny_list: Sequence[ListEntry] = field(default_factory=list)
    allowed: Sequence[tuple[int, int]] = field(default_factory=list)
    denied: Sequence[LabeledSpan] = field(default_factory=list)

    @property
    def chars(self) -> int:
        """See `Item`: the model also reads the descriptions of labels and relations."""
        chars = len(self.text)
        for part in MODEL_PARTS:  # a loop, because each request counts them four times
            if asked := getattr(self, part.option):
                chars += part.chars(asked)
        return chars

    @property
    def abilities(self) -> Mapping[str, str]:
        return {part.option: part.ability for part in MODEL_PARTS if part.ability and getattr(self, part.option)}

    @property
    def is_large(self) -> bool:
        """See `Item`: with a low threshold, relations are scored between most spans of the text."""
        return bool(self.relations) and self.threshold < ALL_SPANS_THRESHOLD

    def without_model(self) -> Extraction | None:
        return None if self.abilities else Extraction.blank(self)

    @property
    def has_merger(self) -> bool:
        return bool(self.decoys or self.review_band or self._merged_parts())

    def merger(self, *, all_found: bool) -> ResultMerger:
        mergers: list[ResultMerger] = [merge(self, all_found) for merge in self._merged_parts()]
        if self.decoys:
            mergers.append(WithoutDecoys(self.decoys, self.denied))
        if self.review_band:
            mergers.append(ReviewMarks(self.review_band, _marked))
        return Mergers(mergers)

    @property
    def finds_entities(self) -> bool:
        """Whether the item asks for entities, from a model or without one."""
        return bool(self.labels or self.recognizers or self.deny_list)

    def listed(self, listed: Listed) -> ExtractionItem:
        """The item with what its lists, and others, say about its text, in place of its lists."""
        return replace(self, allow_list=[], deny_list=[], allowed=listed.allowed, denied=listed.denied)

    def _merged_parts(self) -> list[Callable[[Any, bool], ResultMerger]]:
        """`Part.merger` of the parts that the item asks for. Recognizers' matches are merged together with what a deny
        list has."""
        return [
            part.merger
            for part in PARTS
            if part.merger and (getattr(self, part.option) or (part is RECOGNIZERS and self.denied))
        ]


@frozen()
class Entity:
    """A mention: its `text` is the part of the request's text from `start` to `end`."""

    start: Annotated[int, Field(description="Index of the first character.")]
    end: Annotated[int, Field(description="Index after the last character.")]
    text: str
    label: str
    score: float


@frozen()
class SourcedEntity(Entity):
    """An entity of an answer to a request with `recognizers`, or of a text with what a deny list has."""

    source: Annotated[
        Source, Field(description="What found the entity: the `model`, or a `pattern`, of a recognizer or a deny list.")
    ]


_Review = Annotated[bool, Field(description="The score is in the server's `review_band`: a person should look at it.")]


@frozen()
class EntityInReview(Entity):
    """An entity that is marked for review."""

    review: _Review


@frozen()
class SourcedEntityInReview(SourcedEntity):
    """A `SourcedEntity` that is marked for review."""

    review: _Review


def _marked(entity: Entity) -> Entity:
    """The entity, marked for review."""
    basic = entity.start, entity.end, entity.text, entity.label, entity.score
    if isinstance(entity, SourcedEntity):
        return SourcedEntityInReview(*basic, source=entity.source, review=True)
    return EntityInReview(*basic, review=True)


class _OptionalFields:
    """Makes pydantic accept the subclasses of `Entity`, too: answers have them, messages between processes do not."""

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(SourcedEntityInReview | SourcedEntity | EntityInReview | Entity)


@frozen()
class RelationArgument:
    """One end of a relation: an entity of the same extraction. GLiNER2 models also relate other spans."""

    entity_idx: Annotated[int | None, Field(description="Index into `entities`; null for a span that is no entity.")]
    start: int
    end: int
    text: str
    label: Annotated[str | None, Field(description="The entity's label; null for a span that is no entity.")]


@frozen()
class Relation:
    """`relation` holds from `head` to `tail`."""

    relation: str
    score: float
    head: RelationArgument
    tail: RelationArgument


@frozen()
class Extraction(Result):
    """The result of one item."""

    entities: Annotated[Sequence[Annotated[Entity, _OptionalFields()]], Field(description="In order of position.")]
    relations: Annotated[Sequence[Relation], Field(description="Empty where none were requested.")] = ()
    classifications: Annotated[
        Mapping[str, ClassificationResult], Field(description="By classification. Empty where none were requested.")
    ] = field(default_factory=dict)
    structures: Annotated[
        Mapping[str, Sequence[Instance]],
        Field(description="By structure, its instances. Empty where none were requested."),
    ] = field(default_factory=dict)
    truncated: Annotated[bool, Field(description="True if only the beginning of the text was processed.")] = False
    truncated_at: Annotated[
        int | None, Field(description="Index of the character where processing stopped; null if nothing was cut.")
    ] = None
    usage: Usage = NO_USAGE
    warnings: Annotated[
        Sequence[ExtractionWarning], Field(description="Why the result may be poor. Usually empty.")
    ] = ()

    @classmethod
    def blank(cls, item: ExtractionItem, **fields: Any) -> Self:
        """The result of a text without words."""
        return cls(**{part.result: part.blank(getattr(item, part.option)) for part in PARTS if part.result}, **fields)

    def rest(self, streamed: int) -> Self:
        return replace(self, entities=self.entities[streamed:])

    def is_of(self, text: str) -> bool:
        """Whether each entity's text is in `text` at its offsets; if not, this is the result of another text."""
        return all(
            0 <= entity.start < entity.end == entity.start + len(entity.text)
            and text.startswith(entity.text, entity.start)
            for entity in self.entities
        )


@frozen(kw_only=True)
class ExtractResponse(Extraction):
    """The answer of /v1/extract."""

    model: str
    adapter_id: str | None
    request_id: str


@frozen()
class StreamedEntity:
    """A line of /v1/extract/stream: the next entity of the text."""

    entity: Annotated[Entity, _OptionalFields()]


@frozen(kw_only=True)
class StreamedEnd:
    """The last line of /v1/extract/stream: an `ExtractResponse` without its entities."""

    relations: Annotated[Sequence[Relation], Field(description="Empty where none were requested.")]
    classifications: Mapping[str, ClassificationResult] = field(default_factory=dict)
    structures: Mapping[str, Sequence[Instance]] = field(default_factory=dict)
    truncated: bool
    truncated_at: int | None
    usage: Usage
    warnings: Sequence[ExtractionWarning] = ()
    model: str
    adapter_id: str | None
    request_id: str


@frozen()
class BatchResult:
    """The result of one text, or its error."""

    result: Extraction | None = None
    error: ErrorDetail | None = None


@frozen()
class ExtractBatchResponse:
    """The answer of /v1/extract/batch: `results[i]` belongs to the i-th text."""

    results: Sequence[BatchResult]
    model: str
    request_id: str


def results_or_raise(answer: ExtractBatchResponse) -> list[Extraction]:
    """The result of each text. Raises the error of the first text that failed."""
    for outcome in answer.results:
        if outcome.error:
            raise from_detail(outcome.error)
    return [outcome.result for outcome in answer.results if outcome.result]


# Options that are copied from the request to the item. The engine sets the defaults of those that are None.
_UNCHANGED = (
    *(
        "flat_ner",
        "multi_label",
        "overlap",
        "across_empty_lines",
        "on_limit",
        "long_text",
        "window_words",
        "window_overlap_words",
    ),
    *("relation_window", "relation_window_sentences", "relation_window_overlap_sentences"),
)


def decide(options: ExtractionOptions, limits: Limits) -> Callable[[str], ExtractionItem]:
    """A function that makes the item of a text with these options. Raises InvalidField."""
    threshold, relation_threshold = options.threshold, options.relation_threshold
    decided: dict[str, Any] = {part.option: {} for part in MODEL_PARTS}
    for part in MODEL_PARTS:
        if getattr(options, part.option):  # else the item's defaults apply
            decided |= part.decide(options, limits, decided)
    _check_names(decided, limits.max_labels)
    for part in ADDED_PARTS:
        decided |= part.decide(options, limits, decided)
    return partial(
        ExtractionItem,
        **decided,
        threshold=limits.default_threshold if threshold is None else threshold,
        relation_threshold=limits.default_relation_threshold if relation_threshold is None else relation_threshold,
        **{name: getattr(options, name) for name in _UNCHANGED},
        adapter_id=None if options.adapter_id == BASE_ADAPTER_ID else options.adapter_id,
        review_band=list(limits.review_band),
        max_entities=limits.max_entities,
        max_relations=limits.max_relations,
    )


def _check_names(decided: Mapping[str, Any], max_labels: int) -> None:
    """Raise InvalidField for too many names of all parts, if there are any of `OPTIONAL_PARTS`."""
    sizes = {part.option: part.names(decided[part.option]) for part in OPTIONAL_PARTS}
    if not any(sizes.values()):
        return
    total = sum(sizes.values()) + sum(part.names(decided[part.option]) for part in BASIC_PARTS)
    if 0 < max_labels < total:
        param = max(sizes, key=sizes.__getitem__)
        message = f"{param}: {total} names, including labels and relations; the limit is {max_labels} (max_labels)"
        raise InvalidField(message, param=param)


def share(items: Sequence[ExtractionItem]) -> Sequence[ExtractionItem]:
    """The items, each with a share of the limits of an answer in proportion to the length of its text."""
    if len(items) < 2:
        return items
    total = sum(len(item.text) for item in items) or 1
    return [
        replace(
            item,
            max_entities=min(item.max_entities, MIN_SHARE + item.max_entities * len(item.text) // total),
            max_relations=min(item.max_relations, MIN_SHARE + item.max_relations * len(item.text) // total),
        )
        for item in items
    ]


def answer_of(kind: type[Answer], result: Result, **others: Any) -> Answer:
    """An answer of the type `kind`, with its fields from `others`, or else from the result."""
    return kind(**{name: getattr(result, name) for name in _names_of(cast(Any, kind)) if name not in others}, **others)


@cache
def _names_of(kind: type[Any]) -> Sequence[str]:
    return [declared.name for declared in fields(kind)]


def extraction_of(
    texts: Sequence[str],
    options: ExtractionOptions,
    request_id: str | None = None,
    *,
    all_found: bool = False,
) -> Request:
    """The request for texts that share options. all_found: see `AllFound`."""
    return Request([(text, options) for text in texts], request_id, all_found=all_found)


RECOGNIZERS = Part(
    option="recognizers",
    decide=lambda options, limits, decided: recognition_options(
        options.recognizers, options.phone_regions, decided["labels"], limits
    ),
    merger=lambda item, all_found: merger_of(item, SourcedEntity, AllFound if all_found else MatchMerger),
)

BASIC_PARTS = (ENTITIES, RELATIONS)
"""Their columns are in every table of results. Each has `max_labels` of its own."""
OPTIONAL_PARTS = (CLASSIFICATIONS, STRUCTURES)
"""Their columns are in the tables of requests that ask for them. Their names and all others share `max_labels`."""
MODEL_PARTS = (*BASIC_PARTS, *OPTIONAL_PARTS)
ADDED_PARTS = (RECOGNIZERS, DENY_LIST)
"""Parts that need no model."""
PARTS = (*MODEL_PARTS, *ADDED_PARTS)
"""A request asks for at least one of them."""
