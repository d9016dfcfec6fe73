"""Extraction of entities and relations: its options, its result, and its row of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, GetCoreSchemaHandler, ValidationError
from typing_extensions import Self

from gliner_bento.errors import ErrorDetail, InvalidField, StartupError
from gliner_bento.tasks.base import (
    BASE_ADAPTER_ID,
    NO_USAGE,
    ExtractionWarning,
    Item,
    Limits,
    Request,
    Result,
    Route,
    Task,
    Usage,
)
from gliner_bento.tasks.classifications import (
    Classification,
    ClassificationResult,
    Classifications,
    classification_options,
    results_of,
)
from gliner_bento.tasks.fields import Score
from gliner_bento.tasks.labels import Labels, Relations, label_options
from gliner_bento.tasks.recognition import AllFound, Recognizers, Regions, Source, merger_of, recognition_options
from gliner_bento.tasks.structures import Instance, Structure, Structures, WindowInstances, structure_options

NAME = "extract"
TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]
_RELATIONS = ["founded", "founded in", "headquartered in"]

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

_ABILITIES = {"labels": "entities", **{name: name for name in ("relations", "classifications", "structures")}}
"""The ability that a model needs for a field of a request."""

ALL_SPANS_THRESHOLD = 0.1
"""With a lower `threshold`, an item with relations is large, because most pairs of spans are scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionOptions:
    """What to extract from a text, and how. None: the server decides."""

    labels: Annotated[
        Labels | None,
        Field(
            description="Entity types to extract: names; or {name: description}, where the model gets the description "
            "and the response has the name. Repeated names count once; two names may not share a description. Instead "
            "of a description, an object may set `description` and `threshold`. Required, unless there is something "
            "else to find.",
            examples=[LABELS],
        ),
    ] = None
    relations: Annotated[
        Relations | None,
        Field(
            description="Relation types to extract between the entities: names, or {name: description}. Instead of a "
            "description, an object may set `description`, `threshold`, and the labels that the `head` and the `tail` "
            "may have. Needs a relation extraction model.",
            examples=[_RELATIONS],
        ),
    ] = None
    classifications: Annotated[
        Classifications | None,
        Field(
            description="Questions about the whole text, by name, each with the labels to choose from: names, "
            "{name: description}, groups of these, or an object with `labels` and options. Needs a classification "
            "model.",
            examples=[{"sentiment": ["positive", "negative"]}],
        ),
    ] = None
    structures: Annotated[
        Structures | None,
        Field(
            description="Records to find, by name, each with its fields: names, {name: description}, or objects with "
            "`type` (`list` or `string`), `choices`, `description` and `threshold`. Needs a GLiNER2 model.",
            examples=[{"purchase": {"product": {"type": "string"}, "price": "what was paid"}}],
        ),
    ] = None
    threshold: Annotated[
        Score | None, Field(description="Lowest score of an entity, 0 to 1. Default: the server's default_threshold.")
    ] = None
    relation_threshold: Annotated[
        Score | None,
        Field(description="Lowest score of a relation, 0 to 1. Default: the server's default_relation_threshold."),
    ] = None
    flat_ner: Annotated[bool, Field(description="No overlapping entities; false allows nested ones.")] = True
    multi_label: Annotated[bool, Field(description="A span may carry several labels.")] = False
    overlap: Annotated[
        Overlap | None,
        Field(
            description="Which entities may overlap, in place of flat_ner. `allow`: all. `nested`: one inside another. "
            "`flat`: none; those with the highest total score are kept. `longest`: all, but those inside another "
            "entity are dropped. GLiNER models apply this to the entities of all labels together, GLiNER2 models to "
            "those of each label. Default: in GLiNER models, see flat_ner and multi_label; in GLiNER2 models, none may "
            "overlap, and the highest scores are kept first."
        ),
    ] = None
    across_empty_lines: Annotated[
        bool,
        Field(
            description="Whether an entity, or a value of a field, may run over an empty line, as in gliner. A single "
            "line end is always allowed."
        ),
    ] = False
    adapter_id: Annotated[
        str | None, Field(description="LoRA adapter to use. Default, and `__base__`: the base model.")
    ] = None
    long_text: Annotated[
        LongText,
        Field(
            description="What to do with a text longer than the model's maximum length: process it in overlapping "
            "`window`s, `truncate` it and report where, or `reject` it with 413."
        ),
    ] = "window"
    window_words: Annotated[
        Words | None,
        Field(
            description="Number of words of a window, at most the model's maximum. Default: the server's setting. "
            "Without effect if long_text is not `window`."
        ),
    ] = None
    window_overlap_words: Annotated[
        OverlapWords | None,
        Field(
            description="Maximum number of words that consecutive windows share; less than window_words. "
            "Default: the server's window_overlap_words."
        ),
    ] = None
    relation_window: Annotated[
        RelationWindow | None,
        Field(
            description="What the model reads at a time for relations: the `whole` window, or a few `sentences` of it "
            "(a relation window), in separate passes that relate the window's entities. Default: the server's "
            "relation_window."
        ),
    ] = None
    relation_window_sentences: Annotated[
        Sentences | None,
        Field(description="Number of sentences in a relation window. Default: the server's setting."),
    ] = None
    relation_window_overlap_sentences: Annotated[
        OverlapSentences | None,
        Field(
            description="Number of sentences that consecutive relation windows share; less than "
            "relation_window_sentences. Default: the server's, or half of relation_window_sentences if that differs "
            "from the server's."
        ),
    ] = None
    on_limit: Annotated[
        OnLimit,
        Field(
            description="What to do with more entities or relations than the server's max_entities and max_relations: "
            "fail with an `error` (422), or `truncate`: return those with the highest scores, and a warning."
        ),
    ] = "error"
    recognizers: Annotated[
        Recognizers | None,
        Field(
            description="Recognizers to use besides the model: they find e-mail addresses, cards, IBANs, phone numbers "
            "and the like by patterns and check digits. `true`: those for the request's labels, or all if it has none; "
            "or a list of names (CREDIT_CARD), or {name: label of its matches}. Matches replace the model's entities "
            "that overlap with them; each entity has its `source`.",
            examples=[True],
        ),
    ] = None
    phone_regions: Annotated[
        Regions | None,
        Field(
            description="Codes (US, DE) of regions whose phone numbers are found without a country code. "
            "Default: the server's phone_regions."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ExtractionItem(Item):
    """One text with every option decided.

    `labels` and `relations` map a name to its description; the name is also the description if there is none. Names
    are unique, non-empty, and returned as they are; descriptions are what the model reads.

    label_thresholds, relation_thresholds: by name, the thresholds of labels and relations that have their own.
    relation_heads, relation_tails: by name of a relation that limits them, the allowed labels as indexes into `labels`.
    The options of windows and of relation windows are None where the engine's default applies.
    max_entities, max_relations: maximum number in the result; see `on_limit`.
    recognizers: by entity type, the label of its matches in the result. phone_regions: regions whose phone numbers are
    found without a country code.
    """

    task: ClassVar[str] = NAME

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
    relation_thresholds: Mapping[str, float] = field(default_factory=dict)
    relation_heads: Mapping[str, Sequence[int]] = field(default_factory=dict)
    relation_tails: Mapping[str, Sequence[int]] = field(default_factory=dict)
    classifications: Mapping[str, Classification] = field(default_factory=dict)
    structures: Mapping[str, Structure] = field(default_factory=dict)
    recognizers: Mapping[str, str] = field(default_factory=dict)
    phone_regions: Sequence[str] = field(default_factory=list)

    @property
    def chars(self) -> int:
        """See `Item`: the model also reads the descriptions of labels and relations."""
        named = self.labels, self.relations, *(each.labels for each in self.classifications.values())
        chars = len(self.text) + sum(len(description) for labels in named for description in labels.values())
        for structure in self.structures.values():
            chars += sum(len(each.description) + sum(map(len, each.choices)) for each in structure.values())
        return chars

    @property
    def abilities(self) -> Mapping[str, str]:
        return {param: task for param, task in _ABILITIES.items() if getattr(self, param)}

    @property
    def is_large(self) -> bool:
        """See `Item`: with a low threshold, relations are scored between most spans of the text."""
        return bool(self.relations) and self.threshold < ALL_SPANS_THRESHOLD

    def without_model(self) -> Extraction | None:
        return None if self.abilities or not self.recognizers else Extraction.blank(self)

    @property
    def has_merger(self) -> bool:
        return bool(self.recognizers)


@dataclass(frozen=True, slots=True)
class Entity:
    """A mention: its `text` is the part of the request's text from `start` to `end`."""

    start: Annotated[int, Field(description="Index of the first character.")]
    end: Annotated[int, Field(description="Index after the last character.")]
    text: str
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class SourcedEntity(Entity):
    """An entity of an answer to a request with `recognizers`."""

    source: Annotated[Source, Field(description="What found the entity: the `model`, or a `pattern` of a recognizer.")]


class _OptionalSource:
    """Makes pydantic accept `SourcedEntity`, too: answers have them, messages between processes do not."""

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(SourcedEntity | Entity)


@dataclass(frozen=True, slots=True)
class RelationArgument:
    """One end of a relation: an entity of the same extraction. GLiNER2 models also relate other spans."""

    entity_idx: Annotated[int | None, Field(description="Index into `entities`; null for a span that is no entity.")]
    start: int
    end: int
    text: str
    label: Annotated[str | None, Field(description="The entity's label; null for a span that is no entity.")]


@dataclass(frozen=True, slots=True)
class Relation:
    """`relation` holds from `head` to `tail`."""

    relation: str
    score: float
    head: RelationArgument
    tail: RelationArgument


@dataclass(frozen=True, slots=True)
class Extraction(Result):
    """The result of one item."""

    task: ClassVar[str] = NAME

    entities: Annotated[Sequence[Annotated[Entity, _OptionalSource()]], Field(description="In order of position.")]
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
        structures = WindowInstances().results(item.structures)
        return cls((), classifications=results_of(item.classifications), structures=structures, **fields)

    def rest(self, streamed: int) -> Self:
        return replace(self, entities=self.entities[streamed:])

    def is_of(self, text: str) -> bool:
        """Whether each entity's text is in `text` at its offsets; if not, this is the result of another text."""
        return all(
            0 <= entity.start < entity.end == entity.start + len(entity.text)
            and text.startswith(entity.text, entity.start)
            for entity in self.entities
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractResponse(Extraction):
    """The answer of /v1/extract."""

    model: str
    adapter_id: str | None
    request_id: str


@dataclass(frozen=True, slots=True)
class StreamedEntity:
    """A line of /v1/extract/stream: the next entity of the text."""

    entity: Annotated[Entity, _OptionalSource()]


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one text, or its error."""

    result: Extraction | None = None
    error: ErrorDetail | None = None


@dataclass(frozen=True, slots=True)
class ExtractBatchResponse:
    """The answer of /v1/extract/batch: `results[i]` belongs to the i-th text."""

    results: Sequence[BatchResult]
    model: str
    request_id: str


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


def _decide(options: ExtractionOptions, limits: Limits) -> Callable[[str], ExtractionItem]:
    """A function that makes the item of a text with these options. Raises InvalidField."""
    threshold, relation_threshold = options.threshold, options.relation_threshold
    named = label_options(options.labels or {}, options.relations or {}, max_labels=limits.max_labels)
    classifications = classification_options(
        options.classifications or {}, default_threshold=limits.default_threshold, max_labels=limits.max_labels
    )
    structures = structure_options(
        options.structures or {},
        default_threshold=limits.default_threshold if threshold is None else threshold,
        max_labels=limits.max_labels,
    )
    sizes = {
        "classifications": sum(len(each.labels) for each in classifications.values()),
        "structures": sum(map(len, structures.values())),
    }
    total = sum(sizes.values()) + len(named["labels"]) + len(named["relations"])
    if any(sizes.values()) and 0 < limits.max_labels < total:
        param = max(sizes, key=sizes.__getitem__)
        message = (
            f"{param}: {total} names, including labels and relations; the limit is {limits.max_labels} (max_labels)"
        )
        raise InvalidField(message, param=param)
    return partial(
        ExtractionItem,
        **named,
        classifications=classifications,
        structures=structures,
        **recognition_options(options.recognizers, options.phone_regions, named["labels"], limits),
        threshold=limits.default_threshold if threshold is None else threshold,
        relation_threshold=limits.default_relation_threshold if relation_threshold is None else relation_threshold,
        **{name: getattr(options, name) for name in _UNCHANGED},
        adapter_id=None if options.adapter_id == BASE_ADAPTER_ID else options.adapter_id,
        max_entities=limits.max_entities,
        max_relations=limits.max_relations,
    )


def _share(items: Sequence[ExtractionItem]) -> Sequence[ExtractionItem]:
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


EXTRACTION = Task(
    NAME,
    "Extract",
    "Entities and relations in texts.",
    options=ExtractionOptions,
    item=ExtractionItem,
    result=Extraction,
    requires=("labels", "relations", "classifications", "structures", "recognizers"),
    decide=_decide,
    share=_share,
    merger=lambda item: merger_of(item, SourcedEntity),
    text=Field(description="The text. A blank text has no entities.", examples=[TEXT]),
    parts="entities",
    part=Entity,
    line=StreamedEntity,
    end=StreamedEnd,
    answer=ExtractResponse,
    batch_result=BatchResult,
    batch_answer=ExtractBatchResponse,
    example={"text": TEXT, "labels": LABELS, "relations": _RELATIONS},
    batch_example={"texts": [TEXT, "Ada Lovelace lived in London."], "labels": LABELS},
    routes={
        "": Route(
            "Entities and relations of one text",
            "Find the entities of any types that you name in a text of any length, and the relations of the types that "
            "you name between them. Each entity has its position in the text and a score.",
        ),
        "/stream": Route(
            "Entities of one text as they become final, in lines of JSON",
            "A line for each entity, in order of position; the last line holds the relations and the usage. If an "
            "error occurs after the first window, the last line is an error body. request_timeout_s limits the time "
            "without progress, timeout_ms the total time.",
        ),
        "/batch": Route(
            "One result or error per text",
            "Find entities and relations in several texts, in one request. A text that fails does not fail the others: "
            "results[i] is the result of the i-th text, or its error.",
        ),
    },
)

_ALL_FOUND = EXTRACTION.with_merger(lambda item: merger_of(item, SourcedEntity, AllFound))

ExtractRequest, ExtractItem, ExtractBatchRequest = (
    EXTRACTION.request_model,
    EXTRACTION.item_model,
    EXTRACTION.batch_model,
)


def extraction_of(
    texts: Sequence[str],
    options: ExtractionOptions,
    request_id: str | None = None,
    model: str | None = None,
    *,
    all_found: bool = False,
) -> Request[ExtractionOptions, ExtractResponse, ExtractBatchResponse]:
    """The request for texts that share options. all_found: see `AllFound`."""
    task = _ALL_FOUND if all_found else EXTRACTION
    return Request(task, [(text, options) for text in texts], model, request_id)


def check_shared(labels: Any, options: Mapping[str, Any]) -> None:
    """Raise `StartupError` for labels and options with which every text would fail."""
    try:
        ExtractItem.model_validate({"text": "", "labels": labels, **options})
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        raise StartupError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
