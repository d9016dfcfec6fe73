"""Anonymizes like Presidio's anonymizer (2.2.366): resolves conflicts of spans, and applies an operator to each span.

Encryption is not supported: this server neither stores nor receives encryption keys.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field

from gliner_bento.errors import InvalidField, TooLarge
from gliner_bento.privacy.redact import CharBudget, substituted
from gliner_bento.privacy.spans import LabeledSpan

_DIGESTS = {"sha256": hashlib.sha256, "sha512": hashlib.sha512}
_MIN_SALT_BYTES = 16


class _Operator(BaseModel):
    """Unknown parameters are ignored, as in Presidio."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class Replace(_Operator):
    """Replaces a span with a text; default: its entity type in angle brackets."""

    type: Literal["replace"] = "replace"
    new_value: str | None = None

    def apply(self, _text: str, entity_type: str) -> str:
        """The text that replaces the span."""
        return self.new_value or f"<{entity_type}>"


class Redact(_Operator):
    """Removes a span."""

    type: Literal["redact"]

    def apply(self, _text: str, _entity_type: str) -> str:
        """The text that replaces the span."""
        return ""


class Keep(_Operator):
    """Leaves the text of a span unchanged, and lists the span in the answer."""

    type: Literal["keep"]

    def apply(self, text: str, _entity_type: str) -> str:
        """The text that replaces the span."""
        return text


class Mask(_Operator):
    """Replaces characters of a span, from its start or its end."""

    type: Literal["mask"]
    masking_char: Annotated[str, Field(max_length=1)]
    chars_to_mask: int
    from_end: bool = False

    def apply(self, text: str, _entity_type: str) -> str:
        """The text that replaces the span."""
        masked = max(0, min(len(text), self.chars_to_mask))
        mask = self.masking_char * masked
        return text[: len(text) - masked] + mask if self.from_end else mask + text[masked:]


class Hash(_Operator):
    """Replaces a span with its digest. salt: at least 16 bytes; default: a random salt per span."""

    type: Literal["hash"]
    hash_type: Literal["sha256", "sha512"] = "sha256"
    salt: str | None = None

    def apply(self, text: str, _entity_type: str) -> str:
        """The text that replaces the span."""
        salt = os.urandom(32) if self.salt is None else self.salt.encode()
        if len(salt) < _MIN_SALT_BYTES:
            raise InvalidField(f"salt: must have at least {_MIN_SALT_BYTES} bytes", param="salt")
        return _DIGESTS[self.hash_type](text.encode() + salt).hexdigest()


Operator = Annotated[Replace | Redact | Keep | Mask | Hash, Discriminator("type")]
OPERATORS = ("hash", "keep", "mask", "redact", "replace")


@dataclass(frozen=True, slots=True)
class Detected:
    """A span with its entity type."""

    start: int
    end: int
    entity_type: str
    score: float


@dataclass(frozen=True, slots=True)
class Anonymized:
    """A replaced span. text: its replacement. start, end: its offsets in the anonymized text."""

    start: int
    end: int
    entity_type: str
    text: str
    operator: str
    score: float


@dataclass(frozen=True, slots=True)
class AnonymizedText:
    """The answer of `POST /anonymize`. text: the anonymized text. items: by position, from the last to the first."""

    text: str
    items: Sequence[Anonymized]


def anonymize(
    text: str, detected: Sequence[Detected], operators: Mapping[str, Operator], max_chars: int
) -> AnonymizedText:
    """Apply to each span the operator of its entity type, else the operator DEFAULT, else `replace`.

    Raises `InvalidField` for a span outside the text, and `TooLarge` if the spans together, or the result, have more
    than `max_chars` characters.
    """
    for index, span in enumerate(detected):
        if not 0 <= span.start <= span.end <= len(text):
            param = f"analyzer_results.{index}"
            raise InvalidField(f"{param}: not a span of the text, which has {len(text)} characters", param=param)
    default = operators.get("DEFAULT") or Replace()
    spans = _resolved(text, detected)
    if sum(span.end - span.start for span in spans) > max_chars:  # spans of different types may overlap
        raise TooLarge(f"analyzer_results: together longer than {max_chars} characters", param="analyzer_results")
    chosen = [operators.get(span.entity_type) or default for span in spans]
    replacements = (
        operator.apply(text[span.start : span.end], span.entity_type)
        for operator, span in zip(chosen, spans, strict=True)
    )
    limits = [*(span.start for span in spans[1:]), len(text)]  # an overlapping span is cut where the next one starts
    ends = [min(span.end, limit) for span, limit in zip(spans, limits, strict=False)]
    disjoint = (LabeledSpan(span.start, end, span.entity_type) for span, end in zip(spans, ends, strict=True))
    result = substituted(text, zip(disjoint, replacements, strict=True), CharBudget(max_chars))
    items = [
        Anonymized(replaced.start, replaced.end, replaced.label, replaced.replacement, operator.type, span.score)
        for replaced, operator, span in zip(result.replacements, chosen, spans, strict=True)
    ]
    return AnonymizedText(result.text, items[::-1])


def _resolved(text: str, detected: Sequence[Detected]) -> list[Detected]:
    """The spans without conflicts, by position. Spans of one type that overlap, or have only spaces between them, are
    merged; a span inside another one is dropped."""
    kept: list[Detected] = []
    for span in _outermost(_merged(detected)):
        previous = kept[-1] if kept else None
        gap = text[previous.end : span.start] if previous and previous.entity_type == span.entity_type else ""
        if previous and gap and not gap.strip(" "):
            kept[-1] = replace(span, start=previous.start)
        else:
            kept.append(span)
    return kept


def _merged(detected: Sequence[Detected]) -> list[Detected]:
    """Merge overlapping spans of one type. A merged span has the highest score of its parts, and takes the position of
    its last part in the returned list."""
    merged: list[tuple[int, Detected]] = []
    ordered = sorted(detected, key=lambda span: (span.start, span.end))
    by_type = sorted(enumerate(ordered), key=lambda indexed: indexed[1].entity_type)
    for _, group in groupby(by_type, key=lambda indexed: indexed[1].entity_type):
        (current_index, current), *others = group
        for index, span in others:
            if min(current.end, span.end) > max(current.start, span.start):
                current = replace(current, end=max(current.end, span.end), score=max(current.score, span.score))
            else:
                merged.append((current_index, current))
                current = span
            current_index = index
        merged.append((current_index, current))
    return [span for _, span in sorted(merged, key=lambda indexed: indexed[0])]


def _outermost(spans: Sequence[Detected]) -> list[Detected]:
    """The spans by position, without those inside another one. Of equal spans, the one with the highest score is kept;
    of equal scores, the last."""
    kept: list[Detected] = []
    for span in sorted(reversed(spans), key=lambda span: (span.start, -span.end, -span.score)):
        if not kept or span.end > kept[-1].end:
            kept.append(span)
    return kept
