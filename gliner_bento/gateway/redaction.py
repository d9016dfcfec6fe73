"""Redacts and restores texts, for all wire formats. All or nothing: an error of one text is the request's error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gliner_bento.errors import InvalidField
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.gateway import Gateway, check_number
from gliner_bento.gateway.offload import offloaded
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.privacy.conversation import OnePlaceholder, RedactedConversation, redact_conversation
from gliner_bento.privacy.json_texts import Reading, reading
from gliner_bento.privacy.lists import NO_LISTS, Listed, Lists
from gliner_bento.privacy.personal import lowers_persons, personal_labels, personal_spans
from gliner_bento.privacy.plausible import SURE
from gliner_bento.privacy.recognizers.folding import shown
from gliner_bento.privacy.recognizers.labels import PRESIDIO_LABELS
from gliner_bento.privacy.redact import CharBudget
from gliner_bento.privacy.restoring import Form, Restorer
from gliner_bento.privacy.sealing import Sealer
from gliner_bento.privacy.spans import LabeledSpan, spans_of
from gliner_bento.privacy.styles import Placeholders, Replace, hashes, mask, remove, tag
from gliner_bento.privacy.written_placeholders import canonical, reserved_in
from gliner_bento.redact_types import RedactedEntity, RedactResult, Style
from gliner_bento.tasks.base import ExtractionWarning, Limits
from gliner_bento.tasks.extraction import (
    ExtractBatchResponse,
    Extraction,
    ExtractionOptions,
    Request,
    extraction_of,
    results_or_raise,
)
from gliner_bento.tasks.labels import Labels
from gliner_bento.tasks.recognition import enabled

_RESTORABLE = ("placeholder", "hash")
_MAX_LABEL_CHARS = 100
"""Of a label, because it is in each placeholder and each entity of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionOptions:
    """What to replace in texts, and by what. Fields that are None have defaults for personal data: `RedactRequest`."""

    labels: Labels | None = None
    recognizers: bool | list[str] | dict[str, str] | None = None
    phone_regions: Sequence[str] | None = None
    threshold: float | None = None
    adapter_id: str | None = None
    style: Style = "placeholder"
    lists: Lists = NO_LISTS
    conversation: str | None = None

    @property
    def hashed(self) -> bool:
        """Whether placeholders are hashes."""
        return self.style == "hash" or self.conversation is not None

    def spans(self, text: str, extraction: Extraction) -> Sequence[LabeledSpan]:
        """What to replace in a text. With labels of the request, everything that was found."""
        found = spans_of(text, extraction.entities)
        if self.labels is not None:
            return found
        sure = SURE if self.threshold is None else self.threshold
        return personal_spans(text, found, announced=self.recognizers is not False, sure=sure)

    def extraction(self, limits: Limits) -> ExtractionOptions:
        """The options of the extraction that finds the values: long texts are read whole, and limits are errors.
        Raises `InvalidField` for a label that is too long, and a conversation without placeholders."""
        self._check_labels()
        if self.conversation is not None and self.style not in _RESTORABLE:
            message = f"conversation: the style {self.style} has no placeholders"
            raise InvalidField(message, param="conversation")
        running = enabled(limits.recognizers)
        recognizers = self.recognizers
        if recognizers is None or recognizers is True:
            recognizers = {name: PRESIDIO_LABELS.get(name, name) for name in running}
        labels = self.labels
        if labels is None:
            lowered = lowers_persons(self.threshold, limits.default_threshold, limits.label_thresholds)
            names = [*recognizers] if recognizers else ()
            labels = personal_labels(names, max_labels=limits.max_labels, lowered=lowered)
        return ExtractionOptions(
            labels=labels if isinstance(labels, Mapping) else [*labels],
            threshold=self.threshold,
            across_empty_lines=True,  # see `spans_of`
            recognizers=recognizers or False,
            phone_regions=None if self.phone_regions is None else [*self.phone_regions],
            adapter_id=self.adapter_id,
            on_limit="error",
            long_text="window",
        )

    def _check_labels(self) -> None:
        named = self.recognizers.values() if isinstance(self.recognizers, Mapping) else ()
        denied = (entry.label for entry in self.lists.deny)
        for field, labels in (("labels", self.labels or ()), ("recognizers", named), ("deny_list", denied)):
            if (chars := max(map(len, labels), default=0)) > _MAX_LABEL_CHARS:
                raise InvalidField(
                    f"{field}: a label has {chars} characters; the limit for labels of placeholders is "
                    f"{_MAX_LABEL_CHARS}. What else the model is to read can be its description",
                    param=field,
                )


class Mappings:
    """The mappings of one tenant, sealed. On a server that cannot tell its callers apart, all of them are one tenant:
    an address may be a proxy's, or another one for the next turn. They are of one request. budget: of its texts."""

    def __init__(self, sealer: Sealer, tenant: Tenant, options: GatewayOptions) -> None:
        self._sealer = sealer
        self.budget = CharBudget(options.max_body_bytes)
        self.tenant = tenant.name if options.api_keys or options.tenant_header else ""

    def open(self, sealed: str | None) -> dict[str, str]:
        """The content of a sealed mapping; of None, an empty one. Raises `InvalidField`."""
        return {} if sealed is None else self._sealer.open(self.tenant, sealed)

    def seal(self, mapping: Mapping[str, str]) -> str:
        """Seal a mapping. Raises `TooLarge`."""
        return self._sealer.seal(self.tenant, mapping)

    def replace_of(
        self, options: RedactionOptions, texts: Sequence[str], mapping: Mapping[str, str], labels: Iterable[str]
    ) -> Replace:
        """Makes new placeholders, or whatever else the style prescribes. labels: of what is replaced."""
        if options.style == "mask":
            return mask
        if options.style == "remove":
            return remove
        if options.hashed:
            return hashes(self._sealer.hash_key(self.tenant, options.conversation))
        reserved = reserved_in(texts, {tag(label) for label in labels}).union(map(canonical, mapping))
        return Placeholders(lambda placeholder: canonical(placeholder) in reserved)


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in texts, the name of the model that read them, and what lists say about them."""

    extractions: Sequence[Extraction]
    model: str
    listed: Sequence[Listed]


async def mappings_of(gateway: Gateway, context: Context) -> Mappings:
    """The mappings of the request's tenant. Raises `StorageUnavailable`."""
    return Mappings(await gateway.sealing.sealer(), context.tenant, gateway.options)


async def read(gateway: Gateway, context: Context, texts: Sequence[str]) -> list[Reading]:
    """The texts as they are read. One that is too long will be refused, and stays."""
    max_chars = (await gateway.served(context)).limits.max_text_chars
    return await offloaded(
        sum(map(len, texts)),
        lambda: [reading(text) if len(text) <= max_chars else Reading.plain(text) for text in texts],
    )


async def find(
    gateway: Gateway,
    context: Context,
    texts: Sequence[str],
    options: RedactionOptions,
    request: Request,
    *,
    single: bool = False,
) -> Found:
    """Find the values to replace in texts, as they are read. request: has the id, the deadline and the priority.
    single: whether the only text was not sent in a list. Raises the error of the first text that failed."""
    if single:
        served = await gateway.served(context)
        extraction = options.extraction(served.limits)
        gateway.check_text(texts[0], served.limits)
        listed = await gateway.listed(context, options.lists, texts)
        if not (extraction.labels or extraction.recognizers):
            return Found([Extraction(())], (await served.info()).model, listed)
        inputs = [(shown(texts[0]), extraction)]
        answer = await gateway.run(context, replace(request, inputs=inputs, all_found=True, listed=listed))
        return Found([answer], answer.model, listed)
    answers, listed = await find_each(gateway, context, texts, options, request)
    return Found(results_or_raise(answers), answers.model, listed)


async def find_each(
    gateway: Gateway, context: Context, texts: Sequence[str], options: RedactionOptions, request: Request
) -> tuple[ExtractBatchResponse, list[Listed]]:
    """As `find`, with one result or error per text, and what lists say about the texts."""
    served = await gateway.served(context)
    extraction = options.extraction(served.limits)
    check_number(served.limits, len(texts))
    # A text that is too long has an error, and is not searched.
    searched = [text if len(text) <= served.limits.max_text_chars else "" for text in texts]
    listed = await gateway.listed(context, options.lists, searched)
    if not (extraction.labels or extraction.recognizers):  # only what `deny_list` has
        return await gateway.unread_batch(context, request, texts), listed
    inputs = [(shown(text), extraction) for text in texts]
    answers = await gateway.run_batch(context, replace(request, inputs=inputs, all_found=True, listed=listed))
    return answers, listed


def redacted(
    texts: Sequence[Reading],
    extractions: Sequence[Extraction],
    listed: Sequence[Listed],
    options: RedactionOptions,
    mappings: Mappings,
    mapping: Mapping[str, str],
) -> tuple[RedactResult, Mapping[str, str]]:
    """Replace what was found, and what deny lists have. Returns the result without its sealed mapping, and the mapping.
    Raises `TooLarge`. Takes as long as the texts are: call it in a thread."""
    spans = [options.spans(text.text, one) for text, one in zip(texts, extractions, strict=True)]
    labels = {span.label for of_text in (*spans, *(one.denied for one in listed)) for span in of_text}
    one = OnePlaceholder(mappings.replace_of(options, [text.written for text in texts], mapping, labels), mapping)
    style: Replace = one if options.style in _RESTORABLE else one.make
    conversation = redact_conversation(
        texts, spans, style, mapping=mapping, listed=listed, hashed=options.hashed, budget=mappings.budget
    )
    entities = _entities(conversation)
    warnings: dict[ExtractionWarning, None] = dict.fromkeys(
        warning for extraction in extractions for warning in extraction.warnings
    )
    result = RedactResult(
        texts=[text.text for text in conversation.texts],
        mapping=None,
        entities=entities,
        counts=Counter(entity.label for entity in entities),
        warnings=[*warnings],
    )
    return result, one.mapping


async def redact(
    gateway: Gateway,
    context: Context,
    texts: Sequence[str],
    options: RedactionOptions,
    *,
    mapping: str | None = None,
    request: Request | None = None,
    single: bool = False,
) -> tuple[RedactResult, Found]:
    """Redact the texts of one conversation. mapping: the sealed one of earlier turns. request, single: see `find`.

    Raises the error of the first text that failed, and errors about the mapping.
    """
    if mapping is not None and options.style not in _RESTORABLE:
        raise InvalidField(f"mapping: the style {options.style} has no placeholders", param="mapping")
    mappings = await mappings_of(gateway, context)
    opened = mappings.open(mapping)
    readings = await read(gateway, context, texts)
    request = request or extraction_of([], ExtractionOptions())
    found = await find(gateway, context, [one.text for one in readings], options, request, single=single)
    size = sum(map(len, texts)) + chars_of(opened)
    work = partial(_sealed, readings, found.extractions, found.listed, options, mappings, opened)
    return await offloaded(size, work), found


def chars_of(mapping: Mapping[str, str]) -> int:
    """The characters of a mapping, whose values are looked for in each text."""
    return sum(map(len, mapping)) + sum(map(len, mapping.values()))


def _sealed(
    texts: Sequence[Reading],
    extractions: Sequence[Extraction],
    listed: Sequence[Listed],
    options: RedactionOptions,
    mappings: Mappings,
    opened: Mapping[str, str],
) -> RedactResult:
    result, mapping = redacted(texts, extractions, listed, options, mappings, opened)
    return replace(result, mapping=mappings.seal(mapping)) if options.style in _RESTORABLE else result


def redact_one(
    text: Reading, extraction: Extraction, listed: Listed, options: RedactionOptions, mappings: Mappings
) -> RedactResult:
    """Redact a text of its own, in which `extraction` was found. Raises `TooLarge`."""
    return _sealed([text], [extraction], [listed], options, mappings, {})


def restore(
    texts: Sequence[str], mapping: Mapping[str, str], form: Form, options: GatewayOptions, *, partial: bool
) -> tuple[Sequence[str], str, Restorer]:
    """The restored texts; what is held back of a partial one; and the restorer, with its counts. Raises `TooLarge`."""
    restorer = Restorer(mapping, CharBudget(options.max_body_bytes))
    if not partial:
        return [restorer.restore(text, form) for text in texts], "", restorer
    restored, held = restorer.restore_chunk(texts[0], form)
    return [restored], held, restorer


def _entities(conversation: RedactedConversation) -> list[RedactedEntity]:
    return [
        RedactedEntity(
            index, span.start, span.end, span.label, span.score, replaced.replacement, replaced.start, replaced.end
        )
        for index, (text, spans) in enumerate(zip(conversation.texts, conversation.spans, strict=True))
        for span, replaced in zip(spans, text.replacements, strict=True)
    ]
