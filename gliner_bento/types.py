"""Typed IO of the public API: requests, entities, relations, responses. Bounds and descriptions, no logic.

Limits that an operator sets (`max_text_chars`, `max_labels`, ...) are checked by the gateway, not here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gliner_bento.errors import ErrorDetail

_TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
_LABELS = ["person", "organization", "date", "location"]
_RELATIONS = ["founded", "founded in", "headquartered in"]

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")]
Labels = Annotated[list[Name] | dict[Name, Name], Field(min_length=1)]
Relations = list[Name] | dict[Name, Name]
Score = Annotated[float, Field(ge=0, le=1)]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\-]{1,128}$")]
LongText = Literal["window", "truncate", "reject"]
Words = Annotated[int, Field(ge=1, le=100_000)]

BASE_ADAPTER_ID = "__base__"
"""The model itself, where an adapter is named; as gliner.serve has it."""


class Strict(BaseModel):
    """Unknown fields are errors, and so are values of another type: `"0.5"` is not a number.

    Inputs are kept out of error messages, because these reach logs, and the texts are other people's.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class ExtractOptions(Strict):
    """What to look for in a text, and how."""

    labels: Labels = Field(
        description="Entity types to find: names, or {name: description}, where the model reads the description and "
        "the answer carries the name. A name given twice counts once; two names may not share a description.",
        examples=[_LABELS],
    )
    relations: Relations | None = Field(
        default=None,
        description="Relation types to find between the entities: names, or {name: description}. Needs a relation "
        "extraction model.",
        examples=[_RELATIONS],
    )
    threshold: Score | None = Field(
        default=None, description="Lowest score of an entity, 0 to 1; the server's default_threshold if absent."
    )
    relation_threshold: Score | None = Field(
        default=None,
        description="Lowest score of a relation, 0 to 1; the server's default_relation_threshold if absent.",
    )
    flat_ner: bool = Field(default=True, description="No overlapping entities; false allows nested ones.")
    multi_label: bool = Field(default=False, description="A span may carry several labels.")
    adapter_id: str | None = Field(
        default=None, description="The LoRA adapter to answer with; none, or `__base__`, is the base model."
    )
    long_text: LongText = Field(
        default="window",
        description="What is done with a text that the model cannot read at once: read it whole, in overlapping "
        "`window`s; `truncate` it, and say so; or `reject` it with 413.",
    )
    window_words: Words | None = Field(
        default=None,
        description="Words of a window; the server's window_words if absent. Not more than the model reads at once.",
    )
    window_overlap_words: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        default=None,
        description="Words that a window shares with the one before, at most; fewer than it has.",
    )


class RequestOptions(Strict):
    """How the server treats the request as a whole."""

    request_id: RequestId | None = Field(
        default=None, description="Your id for this request, for logs and abort; the server makes one if absent."
    )
    timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Answer within this many milliseconds, else 504; the server's limit if absent."
    )
    priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        default=0, description="Lower values are served earlier among the waiting requests."
    )


class ExtractRequest(ExtractOptions, RequestOptions):
    """One text."""

    text: str = Field(
        description="The text. A blank one is answered with no entities.",
        examples=[_TEXT],
    )


class ExtractItem(Strict):
    """One text of a batch; a field that is set here wins over the batch's own."""

    text: str = Field(description="The text.", examples=[_TEXT])
    labels: Labels | None = None
    relations: Relations | None = None
    threshold: Score | None = None
    relation_threshold: Score | None = None
    flat_ner: bool | None = None
    multi_label: bool | None = None
    adapter_id: str | None = None
    long_text: LongText | None = None
    window_words: Words | None = None
    window_overlap_words: Annotated[int, Field(ge=0, le=100_000)] | None = None


class ExtractBatchRequest(RequestOptions):
    """Several texts that share options (`texts`), or items that may each have their own (`items`)."""

    texts: list[str] | None = Field(default=None, description="Texts that all use the options below.")
    items: list[ExtractItem] | None = Field(default=None, description="Texts with options of their own.")
    labels: Labels | None = Field(default=None, description="As in /v1/extract; needed unless every item has its own.")
    relations: Relations | None = None
    threshold: Score | None = None
    relation_threshold: Score | None = None
    flat_ner: bool = True
    multi_label: bool = False
    adapter_id: str | None = None
    long_text: LongText = "window"
    window_words: Words | None = None
    window_overlap_words: Annotated[int, Field(ge=0, le=100_000)] | None = None


class Entity(BaseModel):
    """A mention: `text[start:end]` of the request's text is `text`."""

    start: int = Field(description="First character.")
    end: int = Field(description="One past the last character.")
    text: str
    label: str
    score: float


class RelationArgument(BaseModel):
    """One end of a relation: an entity of the same answer."""

    entity_idx: int = Field(description="Index into `entities`.")
    start: int
    end: int
    text: str
    label: str


class Relation(BaseModel):
    """`relation` holds from `head` to `tail`."""

    relation: str
    score: float
    head: RelationArgument
    tail: RelationArgument


class Usage(BaseModel):
    """What was run for the answer."""

    words: int = Field(description="Words of the text that the model read.")
    tokens: int = Field(description="Sub-word tokens that the model read in all passes, labels included.")
    windows: int = Field(description="Pieces that the text was read in; 0 for a blank text.")
    label_groups: int = Field(description="Groups that the labels were asked for in, one pass each in every window.")
    relation_groups: int = Field(description="The same of the relations; 0 where none were asked for.")


class Extraction(BaseModel):
    """What was found in one text."""

    entities: list[Entity] = Field(description="In order of position.")
    relations: list[Relation] = Field(description="Empty where none were asked for.")
    truncated: bool = Field(description="True if the model read only the beginning of the text.")
    truncated_at: int | None = Field(description="The character at which it stopped; none if the text was read whole.")
    usage: Usage


class ExtractResponse(Extraction):
    """The answer of /v1/extract."""

    model: str
    adapter_id: str | None
    request_id: str


class StreamedEntity(BaseModel):
    """A line of /v1/extract/stream: the next entity of the text."""

    entity: Entity


class StreamedEnd(BaseModel):
    """The last line of /v1/extract/stream: what an answer holds beside its entities, these being counted from 0."""

    relations: list[Relation] = Field(description="Empty where none were asked for.")
    truncated: bool
    truncated_at: int | None
    usage: Usage
    model: str
    adapter_id: str | None
    request_id: str


class BatchResult(BaseModel):
    """The result for one text, or the error that concerns that text alone."""

    result: Extraction | None = None
    error: ErrorDetail | None = None


class ExtractBatchResponse(BaseModel):
    """The answer of /v1/extract/batch: `results[i]` belongs to the i-th text."""

    results: list[BatchResult]
    model: str
    request_id: str


class ModelCard(BaseModel):
    """The answer of /v1/model: what is served, and with which limits."""

    model: str = Field(description="Hub id, or the folder's name.")
    family: str = Field(description="gliner's class for the checkpoint.", examples=["UniEncoderSpanRelexGLiNER"])
    supports_relations: bool
    supports_adapters: bool
    device: str
    dtype: str
    forward: str = Field(description="Which forward runs: gliner's own, or an exact fast path.")
    max_words: int = Field(description="Words that the model reads of one text at most.")
    max_span_width: int | None = Field(description="Words of the longest entity; none for token models.")
    max_labels_per_pass: int | None = Field(
        description="Labels, and relations, that the model is asked for at once; more take several passes. None: all."
    )
    max_labels: int
    max_text_chars: int
    max_batch_items: int


class AbortResponse(BaseModel):
    """The answer of /v1/requests/{id}/abort."""

    request_id: str
    aborted: bool


class AdapterOptions(Strict):
    """How an adapter is kept; absent fields leave that as it is."""

    pinned: bool | None = Field(default=None, description="Kept in memory while others make room; false at first.")
    preload: bool = Field(default=True, description="Load it now, not when a request first asks for it.")


class PutAdapterRequest(AdapterOptions):
    """Where to take an adapter from; without a source, the options of one that is there."""

    source: Name | None = Field(
        default=None,
        description="A folder below the server's `adapter_root`, or `hub:owner/name` where the server allows it.",
        examples=["tenant-a"],
    )
    revision: Name | None = Field(default=None, description="Of a hub repository: branch, tag or commit.")


class AdapterCard(BaseModel):
    """A LoRA adapter. `tier`, `uses` and `last_used` are those of the replica that answers."""

    id: str = Field(examples=["tenant-a"])
    source: Literal["folder", "hub", "upload"] = Field(description="Where it came from.")
    rank: int
    targets: list[str] = Field(description="The model's layers that it changes.")
    bytes: int = Field(description="On disk.")
    tier: Literal["device", "cpu", "disk"] = Field(
        description="Where it is now: ready to compute with, or how far off."
    )
    pinned: bool
    uses: int = Field(description="Texts that were answered with it since the server started.")
    last_used: str | None = Field(description="RFC 3339, UTC.", examples=["2026-01-31T12:00:00.000Z"])


class AdapterList(BaseModel):
    """The answer of /v1/adapters."""

    adapters: list[AdapterCard]


class RunnerItem(BaseModel):
    """One text with its options on the way from the gateway to the runner; all optional values are decided."""

    text: str
    labels: dict[str, str]
    relations: dict[str, str]
    threshold: float
    relation_threshold: float
    flat_ner: bool
    multi_label: bool
    adapter_id: str | None
    long_text: LongText
    window_words: int | None
    window_overlap_words: int | None


RunnerOutcome = dict[str, Any]
"""What the runner answers for one item or adapter: `{"result": as data}` or `{"error": ErrorDetail as data}`."""
