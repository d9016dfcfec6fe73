"""The JSON types of redaction: `/v1/redact`, `/v1/redact/batch` and `/v1/restore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from gliner_bento.errors import ErrorDetail
from gliner_bento.tasks.base import ExtractionWarning
from gliner_bento.tasks.fields import Elements, Name, RequestId, Score, Strict
from gliner_bento.tasks.labels import Labels
from gliner_bento.tasks.lists import AllowListOption, DenyListOption
from gliner_bento.tasks.recognition import Recognizers, Regions
from gliner_bento.tasks.requests import RequestOptions

Style = Literal["placeholder", "mask", "hash", "remove"]
Format = Literal["auto", "text", "json"]

_Text = "Dear Ada Lovelace, we sent the tickets to ada@example.com."


class _RedactOptions(RequestOptions):
    """What to redact, and how."""

    labels: Annotated[
        Labels | None,
        Field(
            description="Kinds of values that the model looks for, in the forms of /v1/extract. Default: those of "
            "personal data that no recognizer finds; []: none.",
            examples=[["person", "organization"]],
        ),
    ] = None
    recognizers: Annotated[
        Recognizers | None,
        Field(description="Recognizers to use besides the model, as in /v1/extract. Default: all of the server."),
    ] = None
    phone_regions: Annotated[
        Regions | None, Field(description="As in /v1/extract. Default: the server's phone_regions.")
    ] = None
    threshold: Annotated[
        Score | None,
        Field(description="Lowest score of what the model finds. Default: the server's setting."),
    ] = None
    adapter_id: Annotated[Name | None, Field(description="LoRA adapter of the model. Default: none.")] = None
    style: Annotated[
        Style,
        Field(
            description="What replaces a value: a `placeholder` ([PERSON_1]); a `hash` ([PERSON_6ac3c336e4094835]), "
            "which is the same for equal values in all requests of the tenant; a `mask` (*****); nothing (`remove`). "
            "Only the first two can be restored."
        ),
    ] = "placeholder"
    allow_list: AllowListOption = None
    deny_list: DenyListOption = None
    conversation: Annotated[
        RequestId | None,
        Field(
            description="An id of yours. Placeholders are then hashes that are the same for equal values in all "
            "requests of the tenant with this id, without a mapping. Not with the styles mask and remove."
        ),
    ] = None


class RedactRequest(_RedactOptions):
    """One text, or the texts of one conversation."""

    text: Annotated[str | None, Field(description="One text.", examples=[_Text])] = None
    texts: Annotated[
        Elements[Annotated[list[str], Field(min_length=1)]] | None,
        Field(description="Texts of one conversation: equal values have equal placeholders in all of them."),
    ] = None
    mapping: Annotated[
        str | None,
        Field(
            description="The mapping that the previous turn has returned: its values keep their placeholders, and are "
            "replaced wherever they occur.",
        ),
    ] = None


class RedactBatchRequest(_RedactOptions):
    """Independent texts that share options."""

    texts: Annotated[
        Elements[Annotated[list[str], Field(min_length=1)]], Field(description="Texts, each with its own numbering.")
    ]


class RestoreRequest(Strict):
    """A text, or several, with placeholders of one mapping."""

    text: Annotated[str | None, Field(description="One text.", examples=["Dear [PERSON_1],"])] = None
    texts: Annotated[
        Elements[Annotated[list[str], Field(min_length=1)]] | None, Field(description="Several texts.")
    ] = None
    mapping: Annotated[
        str | None,
        Field(description="The mapping that /v1/redact has returned. Without one, nothing can be restored."),
    ] = None
    format: Annotated[
        Format,
        Field(description="`json` escapes originals as in strings of JSON; `auto` does so if the whole text is JSON."),
    ] = "auto"
    partial: Annotated[
        bool,
        Field(
            description="Whether `text` is a part of a longer text, such as a chunk of a stream. Its end is then "
            "returned as `held` if it may be the beginning of a placeholder or URL; send it before the next chunk."
        ),
    ] = False
    request_id: Annotated[RequestId | None, Field(description="Your id for this request.")] = None


class RestoreStreamRequest(Strict):
    """The first line of a stream, with or without its first chunk."""

    mapping: Annotated[
        str | None,
        Field(description="The mapping that /v1/redact has returned. Without one, nothing can be restored."),
    ] = None
    format: Annotated[
        Literal["text", "json"], Field(description="`json`: the chunks are of JSON, and originals are escaped in it.")
    ] = "text"
    request_id: Annotated[RequestId | None, Field(description="Your id for this request.")] = None
    text: Annotated[str, Field(description="The next chunk.", examples=["Dear [PER"])] = ""


class RestoreStreamChunk(Strict):
    """A further line of a stream."""

    text: Annotated[str, Field(description="The next chunk.")]


@dataclass(frozen=True, slots=True)
class RedactedEntity:
    """A value that was replaced: `texts[text_idx][start:end]` of the request, and
    `texts[text_idx][redacted_start:redacted_end]` of the answer."""

    text_idx: int
    start: Annotated[int, Field(description="Index of the first character, in the request's text.")]
    end: Annotated[int, Field(description="Index after the last character, in the request's text.")]
    label: str
    score: float
    replacement: str
    redacted_start: Annotated[int, Field(description="Index of the first character, in the redacted text.")]
    redacted_end: Annotated[int, Field(description="Index after the last character, in the redacted text.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactResult:
    """Redacted texts, without the original values: those are in `mapping`, which only this server can read."""

    texts: Sequence[str]
    mapping: Annotated[
        str | None, Field(description="For /v1/restore and for the next turn; null for a style without placeholders.")
    ]
    entities: Annotated[Sequence[RedactedEntity], Field(description="In order of text and position.")]
    counts: Annotated[Mapping[str, int], Field(description="By label, the number of replaced values.")]
    warnings: Annotated[Sequence[ExtractionWarning], Field(description="Why values may have been missed.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactResponse(RedactResult):
    """The answer of /v1/redact."""

    model: str
    request_id: str


@dataclass(frozen=True, slots=True)
class RedactBatchResult:
    """The result of one text, or its error."""

    result: RedactResult | None = None
    error: ErrorDetail | None = None


@dataclass(frozen=True, slots=True)
class RedactBatchResponse:
    """The answer of /v1/redact/batch: `results[i]` belongs to the i-th text."""

    results: Sequence[RedactBatchResult]
    model: str
    request_id: str


@dataclass(frozen=True, slots=True)
class RestoredChunk:
    """A line of a restored stream: text that no further chunk can change."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredEnd:
    """The last line of a restored stream; the fields are those of `RestoreResponse`."""

    restored: int
    ambiguous: int
    unknown: Sequence[str]
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResponse:
    """The answer of /v1/restore."""

    texts: Sequence[str]
    held: Annotated[str, Field(description="The end of a `partial` text that belongs before the next chunk.")]
    restored: Annotated[int, Field(description="Number of placeholders that were restored.")]
    ambiguous: Annotated[int, Field(description="Number of those that were left: without a number, or for several.")]
    unknown: Annotated[Sequence[str], Field(description="Placeholders that the mapping does not have, at most 100.")]
    request_id: str
