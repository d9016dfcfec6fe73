"""The text that recognizers read: characters that a reader does not see are left out, and spaces, dashes and digits of
Unicode are ASCII ones. It knows no kind of personal data."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

_UNSEEN_ASCII = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_LINE_ENDS = "\v\f\x85\u2028\u2029"


@cache
def _unseen() -> Any:
    """Finds characters that are not shown, and marks on the character before them, such as a line through a digit."""
    import regex  # noqa: PLC0415  # the Python client alone needs only httpx and pydantic

    return regex.compile(r"[[\p{Default_Ignorable_Code_Point}\p{M}\p{Cf}\p{Cc}]--[\t-\r\x85]]+", regex.VERSION1)


@dataclass(frozen=True, slots=True)
class Folded:
    """A text for recognizers. Its character `i` stands for the characters [starts[i], ends[i]) of the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """[start, end) in the original of some characters."""
        return self.starts[start], self.ends[end - 1]

    def replaced(self, parts: Iterable[tuple[int, int, str | None]]) -> Folded:
        """A text of parts of this one: [start, end) as it is (None), or as the character or the empty string in its
        place. A character that is left out belongs to the one before it if it is a mark (`is_mark`)."""
        texts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for start, end, char in parts:
            if char is None:
                texts.append(self.text[start:end])
                starts.extend(self.starts[start:end])
                ends.extend(self.ends[start:end])
            elif char:
                texts.append(char)
                starts.append(self.starts[start])
                ends.append(self.ends[end - 1])
            elif ends and ends[-1] == self.starts[start] and any(map(is_mark, self.text[start:end])):
                ends[-1] = self.ends[end - 1]
        return Folded("".join(texts), starts, ends)


def folded(text: str) -> Folded:
    """The text that recognizers read."""
    whole = Folded(text, range(len(text)), range(1, len(text) + 1))
    if text.isascii():
        return _without_unseen(whole) if _UNSEEN_ASCII.search(text) else whole
    shown_text = Folded(shown(text), whole.starts, whole.ends)
    has_unseen = _UNSEEN_ASCII.search(text) or _unseen().search(text)
    return _without_unseen(shown_text) if has_unseen else shown_text


def shown(text: str) -> str:
    """A text of the same length in which characters of other forms, such as bold or wide letters, are plain ones."""
    if text.isascii():
        return text
    table = {ord(char): folded_char for char in set(text) if not char.isascii() and (folded_char := fold(char))}
    return text.translate(table)


def _without_unseen(text: Folded) -> Folded:
    return text.replaced(around(text.text, ((*found.span(), "") for found in _unseen().finditer(text.text))))


def around(text: str, spots: Iterable[tuple[int, int, str]]) -> Iterable[tuple[int, int, str | None]]:
    """The spots in a text, [start, end) with their replacements, and what is between them; for `Folded.replaced`."""
    end = 0
    for spot in spots:
        yield end, spot[0], None
        yield spot
        end = spot[1]
    yield end, len(text), None


def is_mark(char: str) -> bool:
    """Whether a character is a mark on the one before it."""
    return unicodedata.category(char)[0] == "M"


def fold(char: str) -> str:
    """The replacement of a character: one character, or the empty string."""
    if _unseen().match(char):
        return ""
    kind = unicodedata.category(char)
    if kind == "Zs" or char == "\u2800":  # the Braille pattern without dots
        return " "
    if kind == "Pd" or char == "\u2212":
        return "-"
    if kind == "Nd":
        return str(unicodedata.decimal(char))
    if char in _LINE_ENDS:
        return "\n"
    plain = unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 else char
