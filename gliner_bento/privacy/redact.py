"""Replaces spans of a text, and restores them: for files and for Presidio's `/anonymize`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gliner_bento.errors import TooLarge
from gliner_bento.mentions import normalized
from gliner_bento.privacy.placeholder_names import unescaped
from gliner_bento.privacy.spans import LabeledSpan
from gliner_bento.privacy.styles import PLACEHOLDER


class RestoreError(ValueError):
    """A text cannot be restored; the message says why."""


MAX_NEW_CHARS = 32 * 2**20
"""Default of `CharBudget`: as many characters as the default of `max_body_bytes` has bytes."""


@dataclass(slots=True)
class CharBudget:
    """Counts the characters of the texts that one request makes. They may be many times longer than its body, because
    a short placeholder may stand for a long original, and the other way round."""

    max_chars: float = MAX_NEW_CHARS
    used: int = 0

    def take(self, chars: int) -> None:
        """Count `chars` more characters. Raises `TooLarge`."""
        self.used += chars
        if self.used > self.max_chars:
            message = f"text: the result would have more than {self.max_chars} characters (max_body_bytes)"
            raise TooLarge(message, param="text")


@dataclass(frozen=True, slots=True)
class ReplacedText:
    """A span that was replaced. start: offset in the redacted text. text: the original."""

    start: int
    label: str
    replacement: str
    text: str

    @property
    def end(self) -> int:
        """Offset after the replacement, in the redacted text."""
        return self.start + len(self.replacement)


@dataclass(frozen=True, slots=True)
class Redacted:
    """A redacted text, and what was replaced in it, in order."""

    text: str
    replacements: Sequence[ReplacedText]


def substituted(
    text: str,
    redactions: Iterable[tuple[LabeledSpan, str]],
    budget: CharBudget | None = None,
    quote_of: Callable[[LabeledSpan], str] = lambda _span: "",
) -> Redacted:
    """Replace spans, which must be in order and not overlap. quote_of: what is written on both sides of what
    replaces a span. Raises `TooLarge` if a budget is exceeded."""
    pieces: list[str] = []
    replacements = []
    position = chars = 0  # position: in the original; chars: of the redacted text so far
    for span, replacement in redactions:
        quote = quote_of(span)
        chars += span.start - position + len(quote)
        replacements.append(ReplacedText(chars, span.label, replacement, text[span.start : span.end]))
        pieces += [text[position : span.start], quote, replacement, quote]
        chars += len(replacement) + len(quote)
        if budget is not None:
            budget.take(span.start - position + len(replacement) + 2 * len(quote))
        position = span.end
    return Redacted("".join([*pieces, text[position:]]), replacements)


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored text. left: its placeholders and hashes whose original is unknown, in order."""

    text: str
    left: Sequence[str] = ()


def restore(text: str, replacements: Iterable[ReplacedText]) -> Restored:
    """The original of a text that has not changed since it was redacted. Raises RestoreError."""
    pieces, kept = [], []
    position = 0
    for replaced in replacements:
        start, end = replaced.start, replaced.end
        if start < position or text[start:end] != replaced.replacement:
            raise RestoreError(f"character {start} is not {replaced.replacement!r}: the text is not the redacted one")
        kept.append(text[position:start])
        pieces += [kept[-1], replaced.text]
        position = end
    kept.append(text[position:])
    return Restored("".join([*pieces, kept[-1]]), [found for piece in kept for found in _placeholders_in(piece)])


def restore_anyway(text: str, replacements: Sequence[ReplacedText], *, unchanged: bool = False) -> Restored:
    """Restore a text; if it was edited, only the placeholders that are still in it. Raises RestoreError.

    unchanged: the text is the redacted one, and these are all replacements: what else looks like a placeholder is of
    the original.
    """
    try:
        restored = restore(text, replacements)
    except RestoreError:
        return restore_placeholders(text, replacements)
    return Restored(restored.text) if unchanged else restored


def restore_placeholders(text: str, replacements: Iterable[ReplacedText]) -> Restored:
    """See `PlaceholderOriginals`, which is for several texts. Raises RestoreError."""
    return PlaceholderOriginals(replacements).restored(text)


class PlaceholderOriginals:
    """Replaces each placeholder and hash of edited texts by its first original.

    Raises RestoreError if text was masked or removed.
    """

    def __init__(self, replacements: Iterable[ReplacedText]) -> None:
        self._originals: dict[str, str] = {}
        self._ambiguous = set()
        for replaced in replacements:
            if not is_placeholder(replaced.replacement):
                raise RestoreError("the text has changed, and only placeholders and hashes can be found in it again")
            original = self._originals.setdefault(replaced.replacement, replaced.text)
            if normalized(original) != normalized(replaced.text):
                self._ambiguous.add(replaced.replacement)
        self._lengths = sorted({len(placeholder) for placeholder in self._originals}, reverse=True)

    def found(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Start and end of each placeholder of a text, which may have escapes of JSON, and its original. Raises
        RestoreError if it has several."""
        read, places = unescaped(text)
        end = 0
        for bracket in re.finditer(r"\[", read):
            start = bracket.start()
            pieces = (read[start : start + length] for length in self._lengths)
            placeholder = next((piece for piece in pieces if piece in self._originals), "") if start >= end else ""
            if placeholder in self._ambiguous:
                raise RestoreError(f"the text has changed, and {placeholder} has several originals")
            if placeholder:
                end = start + len(placeholder)
                yield places[start], places[end], self._originals[placeholder]

    def restored(self, text: str) -> Restored:
        """The text with the originals. Raises RestoreError if a placeholder has several."""
        pieces, position = [], 0
        for start, end, original in self.found(text):
            pieces += [text[position:start], original]
            position = end
        return Restored("".join([*pieces, text[position:]]), self.left(text))

    def left(self, text: str) -> list[str]:
        """The placeholders whose original is unknown."""
        return [placeholder for placeholder in _placeholders_in(text) if placeholder not in self._originals]


def _placeholders_in(text: str) -> list[str]:
    """What `Placeholders` and `hashes` may have written into a text: their names are in capitals."""
    return [*filter(is_written_by_us, PLACEHOLDER.findall(unescaped(text)[0]))]


def is_written_by_us(placeholder: str) -> bool:
    """Whether a match of `PLACEHOLDER` may be of `Placeholders` or `hashes`: their names are in capitals."""
    name = placeholder.rpartition("_")[0]
    return name == name.upper()


def is_placeholder(replacement: str) -> bool:
    """Whether a replacement can be found in an edited text: a placeholder or a hash, not a mask."""
    return re.fullmatch(r"\[.+_\w+\]", replacement, re.DOTALL) is not None
