"""Redacts the texts of a conversation as one: a value that is found in one of them is replaced in all of them, and has
one placeholder, also in later turns.

`Mapping` here: the original of each placeholder, which `sealing` seals and `restoring` uses.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from gliner_bento.mentions import normalized
from gliner_bento.privacy.json_texts import JsonScalars, Reading, is_json
from gliner_bento.privacy.known_values import Effort, KnownValues, Tokens
from gliner_bento.privacy.lists import NOTHING, Listed
from gliner_bento.privacy.redact import CharBudget, Redacted, is_written_by_us, substituted
from gliner_bento.privacy.spans import LabeledSpan, merged
from gliner_bento.privacy.styles import PLACEHOLDER, Replace

_ROUNDS = 4
"""How often values that became longer by joining spans are looked for again."""
_WORDS = re.compile(r"[^\W_]+")
_MIN_WITH_DIGITS = 4
"""Letters and digits of the shortest value with a digit that is looked for elsewhere."""
_HASHED = re.compile(r"\[[^\W_]\w*_(?=\d*[a-f])[0-9a-f]{16}\]")
"""A hash of `hashes`. One of digits only, which is rare, may be the number of a card."""


class OnePlaceholder:
    """A `Replace` that gives a value one placeholder, whatever its label is where it is found again.

    make: makes the placeholder of a new value. mapping: the originals of earlier turns.
    """

    def __init__(self, make: Replace, mapping: Mapping[str, str]) -> None:
        self.make = make
        self.mapping = dict(mapping)
        self._by_value = {normalized(original): placeholder for placeholder, original in mapping.items()}

    def __call__(self, text: str, span: LabeledSpan) -> str:
        original = text[span.start : span.end]
        value = normalized(original)
        placeholder = self._by_value.get(value)
        if placeholder is None:
            placeholder = self._by_value[value] = self.make(text, span)
            self.mapping[placeholder] = original
        return placeholder


@dataclass(frozen=True, slots=True)
class RedactedConversation:
    """The redacted texts, and for each the spans that were replaced in it, in order."""

    texts: Sequence[Redacted]
    spans: Sequence[Sequence[LabeledSpan]]


def redact_conversation(
    texts: Sequence[Reading],
    found: Sequence[Iterable[LabeledSpan]],
    style: Replace,
    *,
    mapping: Mapping[str, str],
    listed: Sequence[Listed],
    hashed: bool,
    budget: CharBudget,
) -> RedactedConversation:
    """Redact texts. found: the spans of each text, as it is read. mapping: the originals of earlier turns, which are
    replaced, too.

    listed: what the lists say about each text, as it is read. hashed: whether the texts may have hashes of earlier
    turns that the mapping does not have; they are kept, unless a deny list has a part of one. budget: of the redacted
    texts. Raises `TooLarge`, LimitExceeded.
    """
    read = [one.text for one in texts]
    kept = [
        _placeholders_in(text, mapping, of_text.denied, hashed=hashed)
        for text, of_text in zip(read, listed, strict=True)
    ]
    spans = [
        [part for span in of_text.applied(own) for part in outside(text, span, placeholders)]
        for text, own, of_text, placeholders in zip(read, found, listed, kept, strict=True)
    ]
    known = [(original, _label_span(_kind(placeholder))) for placeholder, original in mapping.items()]
    scalars = [JsonScalars(one.written) if is_json(one.written) else None for one in texts]
    spans = _everywhere(read, _inside(texts, scalars, spans), known, listed, kept)
    spans = [merged(own) for own in _inside(texts, scalars, spans)]
    redacted = [
        _redacted(one, own, of_text, style, budget) for one, own, of_text in zip(texts, spans, scalars, strict=True)
    ]
    return RedactedConversation(redacted, [[*map(one.in_written, own)] for one, own in zip(texts, spans, strict=True)])


def _inside(
    texts: Sequence[Reading], scalars: Sequence[JsonScalars | None], spans: Sequence[Sequence[LabeledSpan]]
) -> list[Sequence[LabeledSpan]]:
    """The spans of each text, in one that is JSON inside its values."""
    return [
        own if of_text is None else [*map(one.in_read, of_text.inside(map(one.in_written, own)))]
        for one, of_text, own in zip(texts, scalars, spans, strict=True)
    ]


def _redacted(
    text: Reading, spans: Sequence[LabeledSpan], scalars: JsonScalars | None, style: Replace, budget: CharBudget
) -> Redacted:
    if scalars is None and text.text == text.written:
        return substituted(text.text, ((span, style(text.text, span)) for span in spans), budget)

    def redaction(span: LabeledSpan) -> tuple[LabeledSpan, str]:
        value, written = text.text[span.start : span.end], text.in_written(span)
        if json.dumps(value, ensure_ascii=False) != f'"{value}"':  # it stays escaped inside a text or a string
            value = text.written[written.start : written.end] if scalars is None else scalars.value(written)
        return written, style(value, span.at(0, len(value)))

    redactions = map(redaction, spans)
    return substituted(text.written, redactions, budget, scalars.quote if scalars else lambda _span: "")


@dataclass(frozen=True, slots=True)
class Finds:
    """What was found in a text, and what the lists say about it."""

    spans: Sequence[LabeledSpan]
    listed: Listed = NOTHING


def redact_document(texts: Sequence[str], finds: Sequence[Finds], style: Replace) -> RedactedConversation:
    """Redact the texts of a document: a value that is found in one of them is replaced in all of them. finds: of each
    text. Raises LimitExceeded."""
    spans, budget = document_spans(texts, finds), CharBudget(float("inf"))
    readings = map(Reading.plain, texts)
    return RedactedConversation(
        [_redacted(text, own, None, style, budget) for text, own in zip(readings, spans, strict=True)], spans
    )


def document_spans(texts: Sequence[str], finds: Sequence[Finds]) -> list[list[LabeledSpan]]:
    """What `redact_document` replaces in each text, in order and joined. Raises LimitExceeded."""
    listed = [one.listed for one in finds]
    spans = [of_text.applied(one.spans) for one, of_text in zip(finds, listed, strict=True)]
    return _everywhere(texts, spans, (), listed, [()] * len(texts), Effort.of_file(sum(map(len, texts))))


def outside(text: str, span: LabeledSpan, placeholders: Sequence[tuple[int, int]]) -> list[LabeledSpan]:
    """The parts of a span that are outside all placeholders, which are in order and do not overlap."""
    first = bisect_right(placeholders, span.start, key=itemgetter(1))
    inside = placeholders[first : bisect_left(placeholders, span.end, lo=first, key=itemgetter(0))]
    if not inside:
        return [span]
    starts, ends = [span.start, *(end for _, end in inside)], [*(start for start, _ in inside), span.end]
    parts = (span.at(start, end) for start, end in zip(starts, ends, strict=True) if start < end)
    return [part for part in parts if any(map(str.isalnum, text[part.start : part.end]))]


def _everywhere(
    texts: Sequence[str],
    spans: Sequence[Sequence[LabeledSpan]],
    known: Iterable[tuple[str, LabeledSpan]],
    listed: Sequence[Listed],
    kept: Sequence[Sequence[tuple[int, int]]],
    effort: Effort | None = None,
) -> list[list[LabeledSpan]]:
    """The joined spans, with every further occurrence of their texts and of `known` that are distinctive. effort: of
    all texts; None: each has that of a request. Raises LimitExceeded."""
    looked_for = {value: span for value, span in known if _is_distinctive(value)}
    new = looked_for
    for text, own in zip(texts, spans, strict=True):
        for span in own:
            if _is_distinctive(value := text[span.start : span.end]):
                new.setdefault(value, span)
    joined = [merged(own) for own in spans]
    for _ in range(_ROUNDS):
        for text, own in zip(texts, joined, strict=True):
            for span in own:
                value = text[span.start : span.end]
                if value not in looked_for and _is_distinctive(value):
                    looked_for[value] = new[value] = span
        finders = _finders(new)
        if not any(finders):
            break
        new = {}
        joined = [
            merged([*own, *_occurrences(text, finders, of_text, placeholders, effort)])
            for text, own, of_text, placeholders in zip(texts, joined, listed, kept, strict=True)
        ]
    return joined


def _is_distinctive(value: str) -> bool:
    """Whether a value stands for the same thing wherever it is: no short number, as of an age, and no initials. `A.` is
    also a vitamin, `91` a pressure, and `I.E.` no person."""
    words = _WORDS.findall(value)
    if any(map(str.isdigit, value)):
        return sum(map(len, words)) >= _MIN_WITH_DIGITS
    return any(len(word) > 1 or word.lower() == word.upper() for word in words)


def _occurrences(
    text: str,
    finders: Iterable[KnownValues],
    listed: Listed,
    placeholders: Sequence[tuple[int, int]],
    effort: Effort | None,
) -> Iterator[LabeledSpan]:
    """Where values are in a text, without what is allowed, and without placeholders."""
    tokens = Tokens(text)
    for finder in finders:
        for span in finder.spans_in(tokens, effort):
            if not listed.allows(span.start, span.end):
                yield from outside(text, span, placeholders)


def _finders(values: Mapping[str, LabeledSpan]) -> list[KnownValues]:
    """Of values: a single word is found as it is, because it may be another word in another case, as `May` is."""
    return [
        KnownValues(
            ((value, span) for value, span in values.items() if value.isalpha() is is_word), ignores_case=not is_word
        )
        for is_word in (True, False)
    ]


def _placeholders_in(
    text: str, mapping: Mapping[str, str], denied: Iterable[LabeledSpan], *, hashed: bool
) -> list[tuple[int, int]]:
    """Where a text has placeholders of earlier turns: those of the mapping, and what can only be a hash."""
    refused = merged(denied) if hashed else []

    def is_hash(match: re.Match[str]) -> bool:
        before = bisect_left(refused, match.end(), key=attrgetter("start"))
        is_denied = before > 0 and refused[before - 1].end > match.start()
        return _HASHED.fullmatch(match[0]) is not None and is_written_by_us(match[0]) and not is_denied

    return [match.span() for match in PLACEHOLDER.finditer(text) if match[0] in mapping or (hashed and is_hash(match))]


def _kind(placeholder: str) -> str:
    """The label that a placeholder shows: `phone number` for [PHONE_NUMBER_1]."""
    return placeholder.strip("[]").rpartition("_")[0].replace("_", " ").lower()


def _label_span(label: str) -> LabeledSpan:
    return LabeledSpan(0, 0, label, by_recognizer=True, score=1.0)
