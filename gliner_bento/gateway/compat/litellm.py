"""LiteLLM's Generic Guardrail API (1.110.2): personal data is replaced before a language model reads a request, and
comes back in its response.

Unknown fields of a request are ignored, but not those of its parameters: a misspelled one would let data pass. LiteLLM
applies `texts`, `tools` and `structured_messages` of an answer, but no `tool_calls`: those of a request are changed in
the rows of `structured_messages`, or the request is blocked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import InvalidField
from gliner_bento.gateway import redaction
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import Endpoint, json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_body
from gliner_bento.gateway.offload import offloaded
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.wire_format import WireFormat, extract_errors
from gliner_bento.privacy.json_texts import Change, Reading, changed, changed_json, reading
from gliner_bento.privacy.lists import Listed
from gliner_bento.privacy.recognizers.labels import entities_of
from gliner_bento.privacy.redact import CharBudget
from gliner_bento.privacy.restoring import Form, Restorer
from gliner_bento.privacy.styles import PLACEHOLDER
from gliner_bento.tasks.base import Limits
from gliner_bento.tasks.extraction import Entity, Extraction, ExtractionOptions, extraction_of
from gliner_bento.tasks.fields import Elements, Lenient, Name, Score, Strict
from gliner_bento.tasks.labels import Labels, label_options
from gliner_bento.tasks.lists import AllowList, DenyList, lists_of
from gliner_bento.tasks.recognition import Recognizers, Regions, answer_labels

_OPAQUE = ("image_url", "input_audio", "file")
_READ = ("refusal", "thinking", "tool_use", "tool_result")
"""Types of parts of a message that are read although they have no `text`."""
_MAX_DEPTH = 20  # of a row
_PROSE = ("content", "text", "refusal", "reasoning_content", "thinking", "input")
_ROW_NAMES = ("role", "type", "id", "tool_call_id", "tool_use_id", "media_type", "signature")
_SCHEMA_NAMES = (
    "type",
    "name",
    "required",
    "format",
    "pattern",
    "syntax",
    "$ref",
    "$id",
    "$schema",
    "propertyOrdering",
)


class GuardrailParams(Strict):
    """`additional_provider_specific_params`, from the configuration of LiteLLM."""

    labels: Labels | None = Field(default=None, description="As in /v1/redact.")
    recognizers: Recognizers | None = Field(default=None, description="As in /v1/redact.")
    phone_regions: Regions | None = Field(default=None, description="As in /v1/redact.")
    threshold: Score | None = Field(default=None, description="As in /v1/redact.")
    allow_list: AllowList | None = Field(default=None, description="As in /v1/redact.")
    deny_list: DenyList | None = Field(default=None, description="As in /v1/redact.")
    block: Elements[list[Name]] = Field(default=[], description="Labels: a request with such a value is blocked.")
    images: Literal["pass", "block"] = Field(
        default="pass", description="What to do with images, audio and files, which are not read."
    )


class GuardrailCaller(Lenient):
    """Whose request it is."""

    user_api_key_hash: str | None = None


class GuardrailRequest(Lenient):
    """The body of `POST /beta/litellm_basic_guardrail_api`."""

    input_type: Literal["request", "response"]
    texts: Elements[list[str]] | None = None
    structured_messages: Elements[list[dict[str, Any]]] | None = None
    tools: Elements[list[dict[str, Any]]] | None = None
    tool_calls: Elements[list[dict[str, Any]]] | None = None
    images: Elements[list[str]] | None = None
    litellm_call_id: str | None = None
    litellm_trace_id: str | None = None
    request_data: GuardrailCaller | None = None
    additional_provider_specific_params: GuardrailParams | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailAnswer:
    """What LiteLLM is to do. A field that is null is unchanged."""

    action: Literal["NONE", "BLOCKED", "GUARDRAIL_INTERVENED"]
    blocked_reason: str | None = None
    texts: list[str] | None = None
    structured_messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    stream_holdback_chars: list[int] | None = None


_NOTHING = GuardrailAnswer(action="NONE")


@dataclass(slots=True)
class _Contents:
    """What a request or an answer contains. `visited` changes all texts, in one order."""

    texts: list[str]
    rows: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]

    def visited(self, change: Change) -> _Contents:
        """The contents with changed texts."""
        return _Contents(
            [change(text, None) for text in self.texts],
            [_changed_part(row, change) for row in self.rows],
            [changed(tool, change, _is_of_schema) for tool in self.tools],
            [_changed_part(call, change) for call in self.tool_calls],
        )


@dataclass(slots=True)
class _Pieces:
    """A `Change` that collects texts. The model reads prose by itself, and short values in a row together, one a line,
    each with the name of its field."""

    texts: list[Reading] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """For each of `texts`, the index of its document, and its start there."""
    _documents: list[list[str]] = field(default_factory=list)
    _chars: int | None = None
    """Of the document of short values that may get another line."""

    def __call__(self, text: str, name: str | None) -> str:
        read = reading(text)
        line = f"{name}: {read.text}" if name else read.text
        if name is None or self._chars is None:
            self._documents.append([])
            self._chars = 0
        self.places.append((len(self._documents) - 1, self._chars + len(line) - len(read.text)))
        self.texts.append(read)
        self._documents[-1].append(line)
        self._chars = None if name is None else self._chars + len(line) + 1
        return text

    @property
    def read(self) -> list[str]:
        """The texts as they are read."""
        return [text.text for text in self.texts]

    @property
    def documents(self) -> list[str]:
        """What the model reads."""
        return ["\n".join(lines) for lines in self._documents]

    def found(self, of_documents: Sequence[Extraction]) -> Iterator[Extraction]:
        """What was found in each of `texts`. of_documents: what was found in each document."""
        first = 0
        for lines, one in zip(self._documents, of_documents, strict=True):
            last = first + len(lines)
            starts = [start for _, start in self.places[first:last]]
            if starts == [0]:
                yield one
            else:
                yield from _by_text(self.read[first:last], starts, one.entities)
            first = last


async def _guard(gateway: Gateway, context: Context, request: Request) -> Response:
    body, size = await json_body(request, GuardrailRequest), len(await request.body())
    mappings = await redaction.mappings_of(gateway, context)
    if body.input_type == "response":
        mapping = await _opened(gateway, _keys(body, mappings.tenant), mappings)
        if not mapping:
            return json_response(_NOTHING)
        max_chars = gateway.options.max_body_bytes
        work = partial(_restored, body, mapping, max_chars)
        return json_response(await offloaded(size + redaction.chars_of(mapping), work))
    return json_response(await _redacted(gateway, context, body, size, mappings))


async def _redacted(
    gateway: Gateway, context: Context, body: GuardrailRequest, size: int, mappings: redaction.Mappings
) -> GuardrailAnswer:
    """The answer to a request of `size` bytes."""
    params = body.additional_provider_specific_params or GuardrailParams()
    options = _options(params)
    served = await gateway.served(context)
    all_lists = (options.lists, *gateway.lists_of(context.tenant))
    _check_block(params, options, served.limits, {entry.label for lists in all_lists for entry in lists.deny})
    if params.images == "block" and (body.images or _has_unread(body.structured_messages)):
        return _blocked("it has images, audio or files, which cannot be read")
    contents = _Contents(body.texts or [], body.structured_messages or [], body.tools or [], body.tool_calls or [])
    pieces = _Pieces()
    await offloaded(size, partial(contents.visited, pieces))
    found = await _find(gateway, context, pieces.documents, options)
    keys = _keys(body, mappings.tenant)
    opened = await _opened(gateway, keys, mappings)
    listed = await gateway.listed(context, options.lists, pieces.read)

    def guarded() -> tuple[GuardrailAnswer, str | None]:
        """The answer, and the sealed mapping that its response needs."""
        if params.block and (refused := _refused(_labels(pieces.documents, found, options), params)):
            return refused, None
        of_texts = [*pieces.found(found)]
        same = _same(pieces.texts, of_texts)
        firsts = [*dict.fromkeys(same)]
        texts, of_lists = [pieces.texts[index] for index in firsts], [listed[index] for index in firsts]
        extractions = [of_texts[index] for index in firsts]
        result, mapping = redaction.redacted(texts, extractions, of_lists, options, mappings, opened)
        if params.block and (refused := _refused(_denied(texts, of_lists, opened).union(result.counts), params)):
            return refused, None
        new_texts = dict(zip(firsts, result.texts, strict=True))
        new = map(new_texts.__getitem__, same)
        redacted = contents.visited(lambda _text, _name: next(new))
        if not _is_applied(contents, redacted):
            return _blocked("it has personal data in a tool call that cannot be changed"), None
        return _answer(contents, redacted), mappings.seal(mapping) if mapping else None

    answer, sealed = await offloaded(size + redaction.chars_of(opened), guarded)
    if sealed is not None:
        await gateway.waiting.put(keys, sealed)
    return answer


def _same(texts: Sequence[Reading], found: Sequence[Extraction]) -> list[int]:
    """For each text, the index of the first one that is equal and has equal finds: rows repeat what texts have."""
    firsts: dict[tuple[str, int], int] = {}
    keys = ((text.written, id(one)) for text, one in zip(texts, found, strict=True))
    return [firsts.setdefault(key, index) for index, key in enumerate(keys)]


async def _find(
    gateway: Gateway, context: Context, documents: Sequence[str], options: redaction.RedactionOptions
) -> Sequence[Extraction]:
    """What was found in each document; each text is read once."""
    texts = [text for text in dict.fromkeys(documents) if text.strip()]
    if not texts:
        return [Extraction(()) for _ in documents]
    found = await redaction.find(gateway, context, texts, options, extraction_of([], ExtractionOptions()))
    by_text = dict(zip(texts, found.extractions, strict=True))
    return [by_text.get(text, Extraction(())) for text in documents]


def _options(params: GuardrailParams) -> redaction.RedactionOptions:
    return redaction.RedactionOptions(
        labels=params.labels,
        recognizers=params.recognizers,
        phone_regions=params.phone_regions,
        threshold=params.threshold,
        lists=lists_of(params.allow_list, params.deny_list),
    )


def _check_block(
    params: GuardrailParams, options: redaction.RedactionOptions, limits: Limits, denied_labels: Collection[str]
) -> None:
    """Raise `InvalidField` for a kind in `block` that nothing looks for. denied_labels: of deny lists."""
    if not params.block:
        return
    extraction = options.extraction(limits)
    decided = label_options(extraction.labels or (), max_labels=-1)
    recognized = answer_labels(extraction.recognizers, decided["labels"], limits.recognizers)
    looked_for = {*decided["labels"], *recognized.values()}.difference(decided["decoys"])
    known = _Kinds(looked_for.union(denied_labels))
    if missing := [label for label in params.block if label not in known]:
        raise InvalidField(
            f"additional_provider_specific_params.block: {missing[0]!r} is not a label that is looked for; add it to "
            "labels, recognizers or deny_list",
            param="additional_provider_specific_params.block",
        )


class _Kinds:
    """Kinds of data, each with any of its labels: `card` and `credit card number`."""

    def __init__(self, labels: Iterable[str]) -> None:
        self._labels = {*labels}
        self._types = {entity for label in self._labels for entity in entities_of(label)}

    def __contains__(self, label: str) -> bool:
        return label in self._labels or not self._types.isdisjoint(entities_of(label))


def _labels(documents: Sequence[str], found: Sequence[Extraction], options: redaction.RedactionOptions) -> set[str]:
    """The labels of what was found in documents, and is replaced."""
    return {span.label for text, one in zip(documents, found, strict=True) for span in options.spans(text, one)}


def _denied(texts: Sequence[Reading], listed: Sequence[Listed], mapping: Mapping[str, str]) -> set[str]:
    """The labels of what deny lists have, also inside what has another label; not inside placeholders of a mapping."""
    labels = set()
    for text, of_text in zip(texts, listed, strict=True):
        if of_text.denied:
            placeholders = Listed(match.span() for match in PLACEHOLDER.finditer(text.text) if match[0] in mapping)
            labels |= {span.label for span in of_text.denied if not placeholders.allows(span.start, span.end)}
    return labels


def _refused(labels: Collection[str], params: GuardrailParams) -> GuardrailAnswer | None:
    """The answer if what has these labels must not be sent."""
    blocked = _Kinds(params.block)
    if refused := sorted(label for label in labels if label in blocked):
        return _blocked(f"it has data of a kind that must not be sent: {', '.join(refused)}")
    return None


def _blocked(reason: str) -> GuardrailAnswer:
    return GuardrailAnswer(action="BLOCKED", blocked_reason=f"The request was not sent: {reason}.")


def _is_applied(old: _Contents, new: _Contents) -> bool:
    """Whether every changed tool call is one of the rows, too: LiteLLM changes it only there."""
    of_rows = [calls for row in old.rows if isinstance(calls := row.get("tool_calls"), list)]
    in_rows = {_arguments(call) for calls in of_rows for call in calls if isinstance(call, dict)}
    calls = zip(old.tool_calls, new.tool_calls, strict=True)
    return all(_arguments(call) in in_rows for call, new_call in calls if call != new_call)


def _arguments(call: Mapping[str, Any]) -> str:
    """What of a tool call may change, as JSON. LiteLLM writes the rest differently in rows."""
    function = call.get("function")
    return json.dumps(function.get("arguments") if isinstance(function, dict) else call, sort_keys=True)


def _answer(old: _Contents, new: _Contents) -> GuardrailAnswer:
    """The answer to a request: rows only if `texts` do not say everything, because LiteLLM knows fewer fields of rows
    than may have been sent."""
    if new == old:
        return _NOTHING
    known = {*old.texts}
    needs_rows = any(
        _with_texts(row, new_row, known) != new_row for row, new_row in zip(old.rows, new.rows, strict=True)
    )
    return GuardrailAnswer(
        action="GUARDRAIL_INTERVENED",
        texts=new.texts,
        structured_messages=new.rows if needs_rows else None,
        tools=new.tools if new.tools != old.tools else None,
        tool_calls=new.tool_calls if new.tool_calls != old.tool_calls else None,
    )


def _changed_part(part: dict[str, Any], change: Change, depth: int = 0) -> dict[str, Any]:
    """A chat row, or a part of one, such as a tool call. Roles, ids, types and the names of tools stay."""
    names_tool = part.get("role") in ("tool", "function") or "arguments" in part or "input" in part
    return {
        name: value if name == "name" and names_tool else _changed_field(name, value, change, depth)
        for name, value in part.items()
    }


def _changed_field(name: str, value: Any, change: Change, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidField(f"structured_messages: more than {_MAX_DEPTH} levels deep", param="structured_messages")
    if _is_opaque(name, value):
        return value
    if isinstance(value, str):
        return _changed_string(name, value, change)
    if name in ("input", "arguments"):
        return changed(value, change, name=name)
    if isinstance(value, list):
        return [_changed_field(name, one, change, depth + 1) for one in value]
    return _changed_part(value, change, depth + 1) if isinstance(value, dict) else value


def _changed_string(name: str, text: str, change: Change) -> str:
    if name == "arguments":
        return changed_json(text, change)
    if name in _PROSE:
        return change(text, None)
    return text if name in _ROW_NAMES else change(text, name)


def _is_opaque(name: str, value: Any) -> bool:
    """Whether a field is an image, audio or a file."""
    if isinstance(value, dict):
        return name in _OPAQUE or (name == "source" and value.get("type") in ("base64", "url"))
    return name == "image_url"


def _with_texts(old: Mapping[str, Any], new: Mapping[str, Any], known: Collection[str]) -> Mapping[str, Any]:
    """A row as LiteLLM changes it by `texts` alone. known: the texts that were sent."""
    content = old.get("content")
    if isinstance(content, str) and content in known:
        return {**old, "content": new["content"]}
    if not isinstance(content, list):
        return old
    parts = [
        {**part, "text": new_part["text"]} if isinstance(part, dict) and _text_of(part) in known else part
        for part, new_part in zip(content, new["content"], strict=True)
    ]
    return {**old, "content": parts}


def _text_of(part: Mapping[str, Any]) -> str | None:
    text = part.get("text")
    return text if isinstance(text, str) else None


def _has_unread(parts: Any) -> bool:
    """Whether any of the rows, or of the parts of their content, is not text."""
    return isinstance(parts, list) and any(
        isinstance(part, dict)
        and (
            _has_unread(part.get("content"))
            or not ("role" in part or _text_of(part) is not None or part.get("type") in _READ)
        )
        for part in parts
    )


def _is_of_schema(name: str, value: Any) -> bool:
    """Whether a field of a tool's definition stays."""
    return isinstance(value, (int, float)) or (isinstance(value, str) and name in _SCHEMA_NAMES)


def _by_text(texts: Sequence[str], starts: Sequence[int], entities: Sequence[Entity]) -> Iterator[Extraction]:
    """What of the entities of a document is in each of its texts, which begin at `starts`. In linear time."""
    found: list[list[Entity]] = [[] for _ in texts]
    for entity in entities:
        first, last = max(0, bisect_right(starts, entity.start) - 1), bisect_left(starts, entity.end)
        for index in range(first, last):
            if entity.start < starts[index] + len(texts[index]):
                found[index].append(_clipped(entity, texts[index], starts[index]))
    return map(Extraction, found)


def _clipped(entity: Entity, text: str, start: int) -> Entity:
    """The part of an entity that is inside a text, which begins at `start`."""
    first, last = max(0, entity.start - start), min(len(text), entity.end - start)
    return dataclasses.replace(entity, start=first, end=last, text=text[first:last])


def _keys(body: GuardrailRequest, tenant: str) -> list[bytes]:
    """Where the mapping waits: first under the call's id, then under the conversation's. Only the same caller finds
    it: ids may come from callers."""
    caller = (body.request_data.user_api_key_hash if body.request_data else None) or ""
    ids = (("call", body.litellm_call_id), ("trace", body.litellm_trace_id))
    return [
        sha256(repr((tenant, caller, kind, one)).encode("utf-8", "surrogatepass")).digest() for kind, one in ids if one
    ]


async def _opened(gateway: Gateway, keys: Sequence[bytes], mappings: redaction.Mappings) -> dict[str, str]:
    """The mapping that waits under the first of the keys that has one; an empty one if none has. Raises
    `StorageUnavailable`."""
    for sealed in await gateway.waiting.get(keys):
        with contextlib.suppress(InvalidField):  # expired, or sealed with a key that was replaced
            return mappings.open(sealed)
    return {}


def _restored(body: GuardrailRequest, mapping: Mapping[str, str], max_chars: int) -> GuardrailAnswer:
    """The answer to a response. In a stream, `texts` grow from call to call: the end of one is held back as long as it
    may be the beginning of a placeholder. Raises TooLarge for more than `max_chars`."""
    restorer = Restorer(mapping, CharBudget(2 * max_chars))  # each text is restored twice
    texts, held = [], []
    for text in body.texts or ():
        form = _form(text)
        whole, (final, _) = restorer.restore(text, form), restorer.restore_chunk(text, form)
        texts.append(whole)
        held.append(len(whole) - len(final) if whole.startswith(final) else len(whole))
    calls = body.tool_calls or []
    new_calls = [_changed_part(call, lambda text, _name: restorer.restore(text)) for call in calls]
    if texts == (body.texts or []) and not any(held) and new_calls == calls:
        return _NOTHING
    return GuardrailAnswer(
        action="GUARDRAIL_INTERVENED",
        texts=texts,
        tool_calls=new_calls if new_calls != calls else None,
        stream_holdback_chars=held,
    )


def _form(text: str) -> Form:
    """What a text is, also while only its beginning is known."""
    return "json" if re.match(r"\s*(?:\{|\[\s*[{\[\"])", text) else "text"


_TEXT = "Ask Ada Lovelace, ada@example.com, for the tickets."
_FORMAT = WireFormat(
    examples={
        GuardrailRequest: {
            "input_type": "request",
            "texts": [_TEXT],
            "structured_messages": [{"role": "user", "content": _TEXT}],
            "litellm_call_id": "8f1c",
            "request_data": {"user_api_key_hash": "88dc"},
            "additional_provider_specific_params": {"block": ["credit card number"], "images": "pass"},
        }
    }
)


def endpoints(_options: GatewayOptions) -> list[Endpoint]:
    """The route that LiteLLM adds to `api_base`."""
    return [
        _FORMAT.post(
            "/beta/litellm_basic_guardrail_api",
            _guard,
            "litellm_guardrail",
            "LiteLLM's Generic Guardrail API: redact a request to a language model, restore its response",
            request=GuardrailRequest,
            response=GuardrailAnswer,
            errors=extract_errors(),
        )
    ]
