"""Finds given values in texts, as whole words: those of lists, and those that were found elsewhere."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from gliner_bento.errors import LimitExceeded
from gliner_bento.mentions import folded
from gliner_bento.privacy.spans import LabeledSpan

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts that write words without spaces between them, or endings without spaces after them: each of their characters
is a token, so that a name is found beside other characters."""
_MIN_CHARS = 2
"""Shorter values, such as a digit, are not looked for elsewhere."""
_FORMS: Sequence[Literal["NFKC", "NFKD"]] = ("NFKC", "NFKD")
_MAX_COMPARISONS = 5_000_000
"""Of words and characters of values with those of a request's texts. Each takes up to 0.3 us."""
_MAX_FOUND = 100_000
"""In the texts of a request."""
_COMPARISONS_PER_CHAR = 200
"""Of a file: many times what is needed, unless it is one word over and over, and values of it in many lengths."""


@dataclass(slots=True)
class Effort:
    """What the search in a request's texts has cost: comparisons, and values that were found. max_comparisons,
    max_found: maximum of each."""

    comparisons: int = 0
    found: int = 0
    max_comparisons: float = field(default_factory=lambda: _MAX_COMPARISONS)
    max_found: float = field(default_factory=lambda: _MAX_FOUND)

    @classmethod
    def of_file(cls, chars: int) -> Effort:
        """Of a file with `chars` characters, which may have any number of values: only the cost per character has a
        maximum."""
        return cls(max_comparisons=_MAX_COMPARISONS + chars * _COMPARISONS_PER_CHAR, max_found=float("inf"))

    def add(self, *, comparisons: int = 0, found: int = 0) -> None:
        """Count what is to be done next. Raises LimitExceeded."""
        self.comparisons += comparisons
        self.found += found
        if self.comparisons > self.max_comparisons or self.found > self.max_found:
            values = "values of lists or of what was found, or words that begin one"
            raise LimitExceeded(f"text: {values}, are in it too often", param="text")


_ASCII_TOKEN = re.compile("[A-Za-z0-9]+")


@cache
def _token() -> Any:
    import regex  # noqa: PLC0415  # as in `recognizers.folding`

    return regex.compile(rf"[{_UNSPACED}]|[[\w]--[_{_UNSPACED}]]+", regex.V1)


def _places(text: str) -> list[tuple[int, int]]:
    """[start, end) of each token of a text."""
    token = _ASCII_TOKEN if text.isascii() else _token()
    return [found.span() for found in token.finditer(text)]


class Tokens:
    """The tokens of a text, for several `KnownValues`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.places = _places(text)
        self._names: dict[bool, tuple[str, ...]] = {}

    def names(self, *, ignores_case: bool) -> tuple[str, ...]:
        """The tokens in the form in which they are compared."""
        if ignores_case not in self._names:
            tokens = (self.text[start:end] for start, end in self.places)
            self._names[ignores_case] = tuple(_folded(token, ignores_case=ignores_case) for token in tokens)
        return self._names[ignores_case]


def _folded(text: str, *, ignores_case: bool) -> str:
    return folded(text) if ignores_case else text


@dataclass(frozen=True, slots=True)
class _Value:
    """A value as it is compared: its tokens, the characters from the first to the last, and those around them. In a
    text, these are `chars_before` and `chars_after` characters."""

    tokens: tuple[str, ...]
    core: str
    before: str
    after: str
    chars_before: int
    chars_after: int
    span: LabeledSpan


class KnownValues:
    """Finds values in texts. White space in a value stands for any white space.

    values: each with a span that has its label and score. ignores_case: whether a value is found in any case, and in
    any compatible form of its words (Unicode NFKC). min_chars: length of the shortest value that is looked for.
    """

    def __init__(
        self,
        values: Iterable[tuple[str, LabeledSpan]],
        *,
        ignores_case: bool = False,
        min_chars: int = _MIN_CHARS,
    ) -> None:
        self._ignores_case = ignores_case
        self._firsts: set[str] = set()  # the first tokens
        # By the first two tokens and the number of tokens: the last ones. These are what most texts do not have.
        self._lasts: dict[tuple[str, ...], dict[int, set[str]]] = {}
        self._by_tokens: dict[tuple[str, ...], list[_Value]] = {}
        for text, span in values:
            stripped = " ".join(text.split())
            if len(self._folded(stripped)) >= min_chars:
                for value in self._values(stripped, span):
                    self._add(value)

    def __bool__(self) -> bool:
        return bool(self._by_tokens)

    def _add(self, value: _Value) -> None:
        tokens = value.tokens
        self._firsts.add(tokens[0])
        self._lasts.setdefault(tokens[:2], {}).setdefault(len(tokens), set()).add(tokens[-1])
        self._by_tokens.setdefault(tokens, []).append(value)

    def spans_in(self, tokens: Tokens, effort: Effort | None = None) -> Iterator[LabeledSpan]:
        """Where the values are in a text; the spans may overlap. effort: of its request so far.

        Raises LimitExceeded.
        """
        if not self._by_tokens:
            return
        effort = effort or Effort()
        text, places, names = tokens.text, tokens.places, tokens.names(ignores_case=self._ignores_case)
        for index, last in self._ends(names, effort):
            for value in self._by_tokens.get(names[index : last + 1], ()):
                start, end = places[index][0] - value.chars_before, places[last][1] + value.chars_after
                effort.add(comparisons=end - start)
                if self._is_at(text, start, end, value):
                    effort.add(found=1)
                    yield value.span.at(start, end)

    def _ends(self, names: tuple[str, ...], effort: Effort) -> Iterator[tuple[int, int]]:
        """The indices of a first and a last token between which a value may be."""
        for index, name in enumerate(names):
            if name not in self._firsts:
                continue
            for first in dict.fromkeys(((name,), names[index : index + 2])):
                for length, lasts in self._lasts.get(first, {}).items():
                    effort.add(comparisons=1)
                    last = index + length - 1
                    if last < len(names) and names[last] in lasts:
                        effort.add(comparisons=length)
                        yield index, last

    def _is_at(self, text: str, start: int, end: int, value: _Value) -> bool:
        """Whether [start, end) is a value, whose tokens are there."""
        if start < 0 or end > len(text):
            return False
        first, last = start + value.chars_before, end - value.chars_after
        return (
            self._folded(text[start:first]) == value.before
            and self._folded(text[last:end]) == value.after
            and (len(value.tokens) == 1 or self._folded(" ".join(text[first:last].split())) == value.core)
        )

    def _values(self, text: str, span: LabeledSpan) -> Iterable[_Value]:
        """A value in the forms that have other tokens: as it is, composed, and decomposed."""
        if text.isascii() or not self._ignores_case:
            return self._in_form(text, span)
        forms = [text, *(unicodedata.normalize(form, text) for form in _FORMS)]
        return dict.fromkeys(value for form in forms for value in self._in_form(form, span))

    def _in_form(self, text: str, span: LabeledSpan) -> Sequence[_Value]:
        if not (places := _places(text)):
            return ()
        start, end = places[0][0], places[-1][1]
        core, before, after = map(self._folded, (text[start:end], text[:start], text[end:]))
        tokens = tuple(self._folded(text[first:last]) for first, last in places)
        return [_Value(tokens, core, before, after, start, len(text) - end, span)]

    def _folded(self, text: str) -> str:
        return _folded(text, ignores_case=self._ignores_case)
