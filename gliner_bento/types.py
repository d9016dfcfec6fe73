"""The vocabulary of the API: requests, items and their results. Bounds and descriptions, no logic.

Requests are pydantic models, because they are validated. Everything that the server creates is a dataclass: the gateway
makes an `Item`, the engine an `Extraction`, and both pass through all layers unchanged. The gateway checks the limits
that an operator sets (`max_text_chars`, `max_labels`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag, create_model, model_validator
from typing_extensions import TypedDict

from gliner_bento.errors import ErrorDetail
from gliner_bento.first_wrong import Anything, Elements, Fields, check_fields

_TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
_LABELS = ["person", "organization", "date", "location"]
_RELATIONS = ["founded", "founded in", "headquartered in"]

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")]
_Names = Elements[list[Name]]
Names = Elements[list[Name] | dict[Name, Name]]
Score = Annotated[float, Field(ge=0, le=1)]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\-]{1,128}$")]
LongText = Literal["window", "truncate", "reject"]
OnLimit = Literal["error", "truncate"]
SelfTest = Literal["passed", "failed", "disabled"]
Words = Annotated[int, Field(ge=8, le=100_000)]
OverlapWords = Annotated[int, Field(ge=0, le=100_000)]

MAX_ENTITIES, MAX_RELATIONS = 100_000, 20_000  # default limits of one answer
LIMIT_WARNINGS = frozenset({"max_entities", "max_relations"})  # codes of warnings that results are missing

BASE_ADAPTER_ID = "__base__"
"""An adapter id that selects the base model, as in gliner.serve."""


# Requests


class Strict(BaseModel):
    """Unknown fields are errors, and so are values of another type: `"0.5"` is not a number.

    Error messages do not contain the input: messages are logged, and the callers' texts must not be.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    _check_fields = model_validator(mode="before")(check_fields)


class LabelOptions(TypedDict, total=False):
    """An entity type."""

    __pydantic_config__ = Strict.model_config  # type: ignore[misc]

    description: Annotated[Name | None, Field(description="What the model reads. Default: the name.")]
    threshold: Annotated[Score | None, Field(description="Lowest score. Default: the request's.")]


class RelationOptions(LabelOptions, total=False):
    """A relation type."""

    head: Annotated[_Names | None, Field(min_length=1, description="Labels that a head may have. Default: any.")]
    tail: Annotated[_Names | None, Field(min_length=1, description="Labels that a tail may have. Default: any.")]


_BY_TYPE = Discriminator(lambda value: "str" if isinstance(value, str) else "dict[options]")
_Value = Annotated[Annotated[Name, Tag("str")] | Annotated[Fields[Anything], Tag("dict[options]")], _BY_TYPE]
Labels = Elements[Annotated[list[Name] | dict[Name, _Value[LabelOptions]], Field(min_length=1)]]
Relations = Elements[list[Name] | dict[Name, _Value[RelationOptions]]]


class ExtractOptions(Strict):
    """What to extract from a text, and how. The only declaration of these options: the models below derive theirs."""

    labels: Labels = Field(
        description="Entity types to extract: names, or {name: description}: the model gets the description, the "
        "response has the name. Repeated names count once; two names may not share a description. Instead of a "
        "description, an object may also set a threshold of the label.",
        examples=[_LABELS],
    )
    relations: Relations | None = Field(
        default=None,
        description="Relation types to extract between the entities: names, or {name: description}. Instead of a "
        "description, an object may also set a threshold of the relation, and the labels that its head and its tail "
        "may have. Needs a relation extraction model.",
        examples=[_RELATIONS],
    )
    threshold: Score | None = Field(
        default=None, description="Lowest score of an entity, 0 to 1. Default: the server's default_threshold."
    )
    relation_threshold: Score | None = Field(
        default=None,
        description="Lowest score of a relation, 0 to 1. Default: the server's default_relation_threshold.",
    )
    flat_ner: bool = Field(default=True, description="No overlapping entities; false allows nested ones.")
    multi_label: bool = Field(default=False, description="A span may carry several labels.")
    adapter_id: str | None = Field(
        default=None, description="LoRA adapter to use. Default, and `__base__`: the base model."
    )
    long_text: LongText = Field(
        default="window",
        description="What to do with a text longer than the model's maximum length: process it in overlapping "
        "`window`s, `truncate` it and report where, or `reject` it with 413.",
    )
    window_words: Words | None = Field(
        default=None,
        description="Words of a window, at most the model's maximum length. Default: the server's window_words.",
    )
    window_overlap_words: OverlapWords | None = Field(
        default=None,
        description="Words that consecutive windows share, at most; fewer than a window has. "
        "Default: the server's window_overlap_words.",
    )
    on_limit: OnLimit = Field(
        default="error",
        description="What to do with more entities or relations than the server's max_entities and max_relations: fail "
        "with an `error` (422), or `truncate`: return those with the highest scores, and a warning.",
    )


class RequestOptions(Strict):
    """How the server treats the request as a whole."""

    request_id: RequestId | None = Field(
        default=None, description="Your id for this request, for logs and abort. Default: the server makes one."
    )
    timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Milliseconds until it fails with 504; except streams, at most request_timeout_s."
    )
    priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        default=0, description="Lower values are scheduled earlier among the tenant's waiting requests."
    )


class ExtractRequest(ExtractOptions, RequestOptions):
    """One text."""

    text: str = Field(description="The text. A blank text has no entities.", examples=[_TEXT])


def _all_optional(options: type[BaseModel]) -> type[BaseModel]:
    """A model with the same options, each of which may be absent (None)."""
    fields: dict[str, Any] = {
        name: (annotation | None, Field(default=None, description=options.model_fields[name].description))
        for name, annotation in get_type_hints(options, include_extras=True).items()
        if name in options.model_fields
    }
    return create_model(f"Optional{options.__name__}", __base__=Strict, **fields)


class ExtractItem(_all_optional(ExtractOptions)):  # type: ignore[misc]
    """One text of a batch; an option that is set here overrides the batch's."""

    text: str = Field(description="The text.", examples=[_TEXT])


class ExtractBatchRequest(ExtractOptions, RequestOptions):
    """Several texts that share options (`texts`), or items that may each have their own (`items`)."""

    texts: Elements[list[str]] | None = Field(default=None, description="Texts that all use the options below.")
    items: Elements[list[ExtractItem]] | None = Field(default=None, description="Texts with options of their own.")
    labels: Labels | None = Field(  # type: ignore[assignment]
        default=None, description="As in /v1/extract; required unless every item has its own."
    )


@dataclass(frozen=True, slots=True)
class Item:
    """One text with every option decided: all that its result depends on.

    `labels` and `relations` map a name to its description; a name without one is its own description. Names are
    unique, non-empty, and returned as they are; descriptions are what the model reads.

    label_thresholds, relation_thresholds: of those with a threshold of their own, by name. relation_heads,
    relation_tails: of those that do not relate all labels, by name: which they may have, as indexes into `labels`.
    window_words, window_overlap_words: in words; None: the engine's default.
    max_entities, max_relations: of the result; see `on_limit`.
    """

    text: str
    labels: Mapping[str, str]
    relations: Mapping[str, str] = field(default_factory=dict)
    threshold: float = 0.5
    relation_threshold: float = 0.5
    flat_ner: bool = True
    multi_label: bool = False
    adapter_id: str | None = None
    long_text: LongText = "window"
    window_words: int | None = None
    window_overlap_words: int | None = None
    on_limit: OnLimit = "error"
    max_entities: int = MAX_ENTITIES
    max_relations: int = MAX_RELATIONS
    label_thresholds: Mapping[str, float] = field(default_factory=dict)
    relation_thresholds: Mapping[str, float] = field(default_factory=dict)
    relation_heads: Mapping[str, Sequence[int]] = field(default_factory=dict)
    relation_tails: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entity:
    """A mention: `text[start:end]` of the request's text is `text`."""

    start: Annotated[int, Field(description="First character.")]
    end: Annotated[int, Field(description="One past the last character.")]
    text: str
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class RelationArgument:
    """One end of a relation: an entity of the same extraction."""

    entity_idx: Annotated[int, Field(description="Index into `entities`.")]
    start: int
    end: int
    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Relation:
    """`relation` holds from `head` to `tail`."""

    relation: str
    score: float
    head: RelationArgument
    tail: RelationArgument


@dataclass(frozen=True, slots=True)
class Usage:
    """What was computed for one text."""

    words: Annotated[int, Field(description="Words of the text that were processed.")] = 0
    tokens: Annotated[int, Field(description="Sub-word tokens of all passes, labels included.")] = 0
    windows: Annotated[int, Field(description="Windows of the text; 0 for a blank text.")] = 0
    label_groups: Annotated[
        int, Field(description="Groups that the labels were divided into, one pass each per window.")
    ] = 1
    relation_groups: Annotated[
        int, Field(description="Groups that the relations were divided into; 0 without relations.")
    ] = 0


@dataclass(frozen=True, slots=True)
class ExtractionWarning:
    """A reason why the result of a valid request may be poor."""

    code: Annotated[
        str,
        Field(
            description="Stable, machine-readable name of the reason. `unsupported_language`: the text is mostly in a "
            "language that the model's card does not list. `max_entities`, `max_relations`: only those with the "
            "highest scores are returned (`on_limit`).",
            examples=["unsupported_language"],
        ),
    ]
    message: Annotated[str, Field(description="One sentence for people.")]


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of one item."""

    entities: Annotated[Sequence[Entity], Field(description="In order of position.")]
    relations: Annotated[Sequence[Relation], Field(description="Empty where none were requested.")] = ()
    truncated: Annotated[bool, Field(description="True if only the beginning of the text was processed.")] = False
    truncated_at: Annotated[
        int | None, Field(description="The character where processing stopped; null if the whole text was processed.")
    ] = None
    usage: Usage = Usage()
    warnings: Annotated[
        Sequence[ExtractionWarning], Field(description="Why the result may be poor. Usually empty.")
    ] = ()


# Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractResponse(Extraction):
    """The answer of /v1/extract."""

    model: str
    adapter_id: str | None
    request_id: str


@dataclass(frozen=True, slots=True)
class StreamedEntity:
    """A line of /v1/extract/stream: the next entity of the text."""

    entity: Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedEnd:
    """The last line of /v1/extract/stream: an `ExtractResponse` without its entities."""

    relations: Annotated[Sequence[Relation], Field(description="Empty where none were requested.")]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The model that a replica serves."""

    model: Annotated[str, Field(description="Hub id, or the folder's name.")]
    family: Annotated[
        str, Field(description="gliner's class for the checkpoint.", examples=["UniEncoderSpanRelexGLiNER"])
    ]
    supports_relations: bool
    supports_adapters: bool
    device: str
    dtype: str
    forward: Annotated[str, Field(description="Implementation of the forward pass, by encoder and head.")]
    max_words: Annotated[int, Field(description="Maximum length of one pass, in words.")]
    max_span_width: Annotated[int | None, Field(description="Words of the longest entity; null for token models.")]
    max_labels_per_pass: Annotated[
        int | None, Field(description="Maximum number of labels, and of relations, per pass. Null: no limit.")
    ] = None
    fingerprint: Annotated[
        str | None,
        Field(
            description="Identifies the weights, in any file format and dtype. Adapters are stored per fingerprint. "
            "Null for runtime onnxruntime.",
            examples=["5f0c8e1b7d3a9246"],
        ),
    ] = None
    languages: Annotated[
        Sequence[str],
        Field(
            description="Languages that the model's card (README.md) lists, usually as ISO 639 codes. Empty: unknown.",
            examples=[["en"]],
        ),
    ] = ()
    self_test: Annotated[
        SelfTest,
        Field(
            description="Whether the scores equalled those of gliner's own code at start. failed: gliner's own forward "
            "pass serves instead. disabled: by the setting self_test."
        ),
    ] = "disabled"
    batch_invariant: Annotated[
        bool,
        Field(
            description="Whether a text's scores are independent of batching, bit for bit. false: they may differ by "
            "rounding. Always false on a GPU, with runtime onnxruntime, for encoders that pad, and with "
            "batch_invariant=false."
        ),
    ] = False
    cached_subwords: Annotated[bool, Field(description="false: the tokenizer allows no cache of each word.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard(ModelInfo):
    """The answer of /v1/model: what is served, and with which limits."""

    max_labels: int
    max_text_chars: int
    max_batch_items: int


@dataclass(frozen=True, slots=True)
class AbortResponse:
    """The answer of /v1/requests/{id}/abort."""

    request_id: str
    aborted: bool
