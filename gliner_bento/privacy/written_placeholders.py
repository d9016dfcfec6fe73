"""Placeholders as texts have them: `[PERSON_1]`, and what language models and people make of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gliner_bento.privacy.placeholder_names import PlaceholderNames, unescaped
from gliner_bento.privacy.styles import PLACEHOLDER

_PAIRS = {"[": "]", "\\[": "\\]", "<": ">", "{": "}", "&lt;": "&gt;", "%5b": "%5d", "【": "】", "［": "］"}
# Each alternative of `_OPENING` begins with a character: `re` looks for those first.
_OPENING, _CLOSING = r"(?:\[|\\\[|<|\{|&lt;|%5[Bb]|【|［)", r"(?:\\?\]|>|\}|&gt;|%5[Dd]|】|］)"
_OPEN, _CLOSE = re.compile(rf"{_OPENING}\s?\Z"), re.compile(rf"\s?{_CLOSING}")
_OPEN_CHARS = 5  # of the longest match of `_OPEN`
_WITHOUT_ID = re.compile(rf"{_OPENING}([^\W\d_](?:[\w\s\\-]*[^\W\d_])?){_CLOSING}")
_ESCAPE = re.compile(r"(?:\\(?:[bfnrt]|u[0-9a-fA-F]{4})|%[0-9a-fA-F]{2})\Z")
_ESCAPE_CHARS = 6


@dataclass(slots=True)
class Written:
    """A placeholder as a text has it, at [start, end). inner: without brackets and escapes of JSON. opened: its opening
    bracket, if it has both; then they are a part of it. is_word: see `begins_word`."""

    text: str
    start: int
    end: int
    inner: str
    opened: str
    is_word: bool

    @classmethod
    def at(cls, text: str, start: int, end: int) -> Written:
        """The placeholder whose inner part is at [start, end)."""
        inner, _ = unescaped(text[start:end])
        if start and text[start - 1] == "[" and text[end : end + 1] == "]":
            return cls(text, start - 1, end + 1, inner, "[", is_word=True)
        opening = _OPEN.search(text, max(0, start - _OPEN_CHARS), start)
        closing = _CLOSE.match(text, end)
        if opening and closing:
            opened = opening[0].strip().lower()
            if _PAIRS[opened] == closing[0].strip().lower():
                return cls(text, opening.start(), closing.end(), inner, opened, is_word=True)
        return cls(text, start, end, inner, "", begins_word(text, start))

    @property
    def exact(self) -> str:
        """The placeholder as we write it, if nothing but brackets and backslashes was changed."""
        return f"[{self.inner.replace(chr(92), '')}]"

    @property
    def may_be_one(self) -> bool:
        """Whether it has brackets, or is a word that has the form of a placeholder's inner part."""
        return bool(self.opened) or (self.is_word and PLACEHOLDER.fullmatch(self.exact) is not None)

    @property
    def is_upper(self) -> bool:
        """Whether it has no small letters, as placeholders with numbers."""
        return self.inner == self.inner.upper()


def canonical(placeholder: str) -> str:
    """A placeholder without brackets, separators and case: what is left of it in the words of a language model."""
    return re.sub(r"[\W_]+", "", placeholder).casefold()


def reserved_in(texts: Iterable[str], kinds: Iterable[str]) -> set[str]:
    """What texts have that would be restored if it were a placeholder, in canonical form: no new placeholder may be
    read as one of these. kinds: of new placeholders, such as `PERSON`."""
    names = PlaceholderNames(kinds)
    return {
        canonical(written.inner)
        for text in texts
        for start, end in names.all_matches(text)
        if (written := Written.at(text, start, end)).opened or (written.may_be_one and written.is_upper)
    }


def kinds_in(text: str) -> Iterator[str]:
    """The names of what a text has in the form of a placeholder without its number, such as `[PERSON]`."""
    for match in _WITHOUT_ID.finditer(text):
        if match[1] == match[1].upper():
            yield match[1]


def begins_word(text: str, start: int) -> bool:
    """Whether a placeholder without brackets, which is in capitals, may begin there: not behind other capitals, digits
    or underscores. `9` in `\\u00e9PERSON_1` and `0` in `%20PERSON_1` are none."""
    before = text[start - 1 : start]
    return not (before.isascii() and (before.isupper() or before.isdigit() or before == "_")) or (
        _ESCAPE.search(text, max(0, start - _ESCAPE_CHARS), start) is not None
    )
