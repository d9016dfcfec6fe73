"""The JSON of a request: its fields with their constraints and descriptions, and the `Request` that a body makes.

`ExtractRequest`, `ExtractItem` and `ExtractBatchRequest` have a field for each of the `ExtractionOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field, ValidationError

from gliner_bento.errors import InvalidField, StartupError
from gliner_bento.tasks.classifications import ClassificationsOption
from gliner_bento.tasks.extraction import (
    LABELS,
    RELATION_LABELS,
    TEXT,
    ExtractionOptions,
    LongText,
    OnLimit,
    Overlap,
    OverlapSentences,
    OverlapWords,
    RelationWindow,
    Request,
    Sentences,
    Words,
)
from gliner_bento.tasks.fields import Elements, RequestId, Score, Strict
from gliner_bento.tasks.labels import LabelsOption, RelationsOption
from gliner_bento.tasks.lists import AllowListOption, DenyListOption
from gliner_bento.tasks.recognition import PhoneRegionsOption, RecognizersOption
from gliner_bento.tasks.structures import StructuresOption

_STRUCTURES = {"purchase": {"product": {"type": "string"}, "price": "what was paid"}}

# Descriptions of the options that a request, a batch and an item of a batch have.
_THRESHOLD = Field(
    description="Lowest score of an entity, 0 to 1. Default: the server's label_thresholds and default_threshold."
)
_RELATION_THRESHOLD = Field(
    description="Lowest score of a relation, 0 to 1. Default: the server's relation_thresholds and "
    "default_relation_threshold."
)
_FLAT_NER = Field(description="No overlapping entities; false allows nested ones.")
_MULTI_LABEL = Field(description="A span may carry several labels.")
_OVERLAP = Field(
    description="Which entities may overlap, in place of flat_ner. `allow`: all. `nested`: one inside another. "
    "`flat`: none; those with the highest total score are kept. `longest`: all, but those inside "
    "another entity are dropped. GLiNER models apply this to the entities of all labels together, "
    "GLiNER2 models to those of each label. Default: in GLiNER models, see flat_ner and multi_label; "
    "in GLiNER2 models, none may overlap, and the highest scores are kept first."
)
_ACROSS_EMPTY_LINES = Field(
    description="Whether an entity, or a value of a field, may run over an empty line, as in gliner. A single line "
    "end is always allowed."
)
_ADAPTER_ID = Field(description="LoRA adapter to use. Default, and `__base__`: the base model.")
_LONG_TEXT = Field(
    description="What to do with a text longer than the model's maximum length: process it in overlapping "
    "`window`s, `truncate` it and report where, or `reject` it with 413."
)
_WINDOW_WORDS = Field(
    description="Number of words of a window, at most the model's maximum. Default: the server's setting. Without "
    "effect if long_text is not `window`."
)
_WINDOW_OVERLAP_WORDS = Field(
    description="Maximum number of words that consecutive windows share; less than window_words. Default: the "
    "server's window_overlap_words."
)
_RELATION_WINDOW = Field(
    description="What the model reads at a time for relations: the `whole` window, or a few `sentences` of it (a "
    "relation window), in separate passes that relate the window's entities. Default: the server's "
    "relation_window."
)
_RELATION_WINDOW_SENTENCES = Field(
    description="Number of sentences in a relation window. Default: the server's setting."
)
_RELATION_WINDOW_OVERLAP_SENTENCES = Field(
    description="Number of sentences that consecutive relation windows share; less than relation_window_sentences. "
    "Default: the server's, or half of relation_window_sentences if that differs from the server's."
)
_ON_LIMIT = Field(
    description="What to do with more entities or relations than the server's max_entities and max_relations: fail "
    "with an `error` (422), or `truncate`: return those with the highest scores, and a warning."
)


class RequestOptions(Strict):
    """How the server treats the request as a whole."""

    model: str | None = Field(
        default=None, description="Name of the model, as /v1/models lists it. Default: the first."
    )
    request_id: RequestId | None = Field(
        default=None, description="Your id for this request, for logs and abort. Default: the server makes one."
    )
    timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Milliseconds until the request fails with 504; limited to request_timeout_s, except for streams.",
    )
    priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        default=0,
        description="Lower values are scheduled earlier among the tenant's waiting requests. For a large request "
        "(more than 32 texts, or 8,000 characters), a value below 0 counts as 0.",
    )


class _TextOptions(RequestOptions):
    """What to extract from the texts of a request, and how."""

    labels: Annotated[LabelsOption, Field(examples=[LABELS])] = None
    relations: Annotated[RelationsOption, Field(examples=[RELATION_LABELS])] = None
    classifications: Annotated[ClassificationsOption, Field(examples=[{"sentiment": ["positive", "negative"]}])] = None
    structures: Annotated[StructuresOption, Field(examples=[_STRUCTURES])] = None
    threshold: Annotated[Score | None, _THRESHOLD] = None
    relation_threshold: Annotated[Score | None, _RELATION_THRESHOLD] = None
    flat_ner: Annotated[bool, _FLAT_NER] = True
    multi_label: Annotated[bool, _MULTI_LABEL] = False
    overlap: Annotated[Overlap | None, _OVERLAP] = None
    across_empty_lines: Annotated[bool, _ACROSS_EMPTY_LINES] = False
    adapter_id: Annotated[str | None, _ADAPTER_ID] = None
    long_text: Annotated[LongText, _LONG_TEXT] = "window"
    window_words: Annotated[Words | None, _WINDOW_WORDS] = None
    window_overlap_words: Annotated[OverlapWords | None, _WINDOW_OVERLAP_WORDS] = None
    relation_window: Annotated[RelationWindow | None, _RELATION_WINDOW] = None
    relation_window_sentences: Annotated[Sentences | None, _RELATION_WINDOW_SENTENCES] = None
    relation_window_overlap_sentences: Annotated[OverlapSentences | None, _RELATION_WINDOW_OVERLAP_SENTENCES] = None
    on_limit: Annotated[OnLimit, _ON_LIMIT] = "error"
    recognizers: Annotated[RecognizersOption, Field(examples=[True])] = None
    phone_regions: PhoneRegionsOption = None
    allow_list: AllowListOption = None
    deny_list: DenyListOption = None


class ExtractRequest(_TextOptions):
    """One text."""

    text: Annotated[str, Field(description="The text. A blank text has no entities.", examples=[TEXT])]


class ExtractItem(Strict):
    """One text of a batch; an option that is set here overrides the batch's."""

    labels: LabelsOption = None
    relations: RelationsOption = None
    classifications: ClassificationsOption = None
    structures: StructuresOption = None
    threshold: Annotated[Score | None, _THRESHOLD] = None
    relation_threshold: Annotated[Score | None, _RELATION_THRESHOLD] = None
    flat_ner: Annotated[bool | None, _FLAT_NER] = None
    multi_label: Annotated[bool | None, _MULTI_LABEL] = None
    overlap: Annotated[Overlap | None, _OVERLAP] = None
    across_empty_lines: Annotated[bool | None, _ACROSS_EMPTY_LINES] = None
    adapter_id: Annotated[str | None, _ADAPTER_ID] = None
    long_text: Annotated[LongText | None, _LONG_TEXT] = None
    window_words: Annotated[Words | None, _WINDOW_WORDS] = None
    window_overlap_words: Annotated[OverlapWords | None, _WINDOW_OVERLAP_WORDS] = None
    relation_window: Annotated[RelationWindow | None, _RELATION_WINDOW] = None
    relation_window_sentences: Annotated[Sentences | None, _RELATION_WINDOW_SENTENCES] = None
    relation_window_overlap_sentences: Annotated[OverlapSentences | None, _RELATION_WINDOW_OVERLAP_SENTENCES] = None
    on_limit: Annotated[OnLimit | None, _ON_LIMIT] = None
    recognizers: RecognizersOption = None
    phone_regions: PhoneRegionsOption = None
    allow_list: AllowListOption = None
    deny_list: DenyListOption = None
    text: Annotated[str, Field(description="The text.", examples=[TEXT])]


class ExtractBatchRequest(_TextOptions):
    """Several texts that share options (`texts`), or items that may each have their own (`items`)."""

    texts: Annotated[Elements[list[str]] | None, Field(description="Texts that all use the options below.")] = None
    items: Annotated[Elements[list[ExtractItem]] | None, Field(description="Texts with options of their own.")] = None


_OPTIONS = [option.name for option in fields(ExtractionOptions)]


def request_of(body: Mapping[str, Any]) -> Request:
    """The request for one text. body: the fields of an `ExtractRequest`."""
    return _request([(body["text"], _options_in(body))], body)


def batch_of(body: Mapping[str, Any], check_size: Callable[[int, str], None]) -> Request:
    """The request for several texts. body: the fields of an `ExtractBatchRequest`.

    check_size: takes the number of texts and the name of their field; raises an error for too many texts.
    """
    texts, items = body["texts"], body["items"]
    if (texts is None) == (items is None):
        raise InvalidField("texts: send either texts or items", param="texts")
    check_size(len(texts or items or ()), "items" if texts is None else "texts")
    if texts is not None:
        shared = _options_in(body)
        shared.check()
        return _request([(text, shared) for text in texts], body)
    return _request([(item.text, _options_in(body, vars(item))) for item in items], body, "items")


def check_shared(labels: Any, options: Mapping[str, Any]) -> None:
    """Raise `StartupError` for labels and options with which every text would fail."""
    try:
        ExtractItem.model_validate({"text": "", "labels": labels, **options})
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        raise StartupError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def _request(inputs: Sequence[tuple[str, ExtractionOptions]], body: Mapping[str, Any], param: str = "texts") -> Request:
    return Request(inputs, body["request_id"], body["timeout_ms"], body["priority"], param)


def _options_in(shared: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> ExtractionOptions:
    """The options of a text. own: the item's, which override the shared ones where they are not None."""
    if own is None:
        return ExtractionOptions(**{name: shared[name] for name in _OPTIONS})
    return ExtractionOptions(**{name: shared[name] if own[name] is None else own[name] for name in _OPTIONS})
