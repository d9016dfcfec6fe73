"""Finds given values in texts, as whole words: those of lists, and those that were found elsewhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gliner_bento.errors import LimitExceeded
from gliner_bento.privacy.spans import LabeledSpan

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts that write words without spaces between them, or endings without spaces after them: each of their characters
is a token, so that a name is found beside other characters."""
_MIN_CHARS = 2
"""Shorter values, such as a digit, are not looked for elsewhere."""
_MAX_COMPARISONS = 5_000_000
"""Of values with the words of a text. Each takes about 0.3 us."""
_MAX_FOUND = 100_000


@cache
def _token() -> Any:
    import regex  # noqa: PLC0415  # as in `recognizers.folding`

    return regex.compile(rf"[{_UNSPACED}]|[[\w]--[_{_UNSPACED}]]+", regex.V1)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value as it is compared: its tokens, the characters between the first and the last, and those around them."""

    tokens: Sequence[str]
    core: str
    before: str
    after: str
    span: LabeledSpan


class KnownValues:
    """Finds values in texts. White space in a value stands for any white space.

    values: each with a span that has its label and score. ignores_case: whether a value is found in any case, and in
    any compatible form (Unicode NFKC). min_chars: length of the shortest value that is looked for.
    """

    def __init__(
        self,
        values: Iterable[tuple[str, LabeledSpan]],
        *,
        ignores_case: bool = False,
        min_chars: int = _MIN_CHARS,
    ) -> None:
        self._ignores_case = ignores_case
        self._by_first: dict[tuple[str, ...], list[_Value]] = {}  # by the first two tokens
        for text, span in values:
            stripped = self._folded(" ".join(text.split()))
            tokens = [*_token().finditer(stripped)]
            if tokens and len(stripped) >= min_chars:
                start, end = tokens[0].start(), tokens[-1].end()
                names = [token[0] for token in tokens]
                value = _Value(names, stripped[start:end], stripped[:start], stripped[end:], span)
                self._by_first.setdefault(tuple(names[:2]), []).append(value)

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def spans_in(self, text: str) -> Iterator[LabeledSpan]:
        """Where the values are in a text; the spans may overlap. Raises LimitExceeded."""
        if not self._by_first:
            return
        tokens = [*_token().finditer(text)]
        names = [self._folded(token[0]) for token in tokens]
        comparisons = found = 0
        for index, name in enumerate(names):
            values = self._by_first.get((name,), [])
            if index + 1 < len(names):
                values = values + self._by_first.get((name, names[index + 1]), [])
            comparisons += len(values)
            if comparisons > _MAX_COMPARISONS or found > _MAX_FOUND:
                raise LimitExceeded("text: it has values of lists, or words that begin some, too often", param="text")
            for value in values:
                last = index + len(value.tokens) - 1
                if last >= len(tokens) or names[index : last + 1] != value.tokens:
                    continue
                start, end = tokens[index].start(), tokens[last].end()
                if last > index and self._folded(" ".join(text[start:end].split())) != value.core:
                    continue
                start, after = start - len(value.before), end + len(value.after)
                around = text[max(0, start) : tokens[index].start()], text[end:after]
                if tuple(map(self._folded, around)) == (value.before, value.after):
                    found += 1
                    yield replace(value.span, start=start, end=after)

    def _folded(self, text: str) -> str:
        if not self._ignores_case:
            return text
        return (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()
