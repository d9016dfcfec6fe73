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
_OWN = ("[", "\\[", "%5b")
"""Brackets as ours. Further ones around them are the text's: `[Ada]` becomes `[[PERSON_1]]`."""
MAX_BRACKETS = 3
"""Of another kind around a placeholder, as in `{{PERSON_1}}`: all of them are a part of it."""
_WITHOUT_ID = re.compile(rf"{_OPENING}([^\W\d_](?:[\w\s\\-]*[^\W\d_])?){_CLOSING}")
_ESCAPE = re.compile(r"(?:\\(?:[bfnrt]|u[0-9a-fA-F]{4})|%[0-9a-fA-F]{2})\Z")
_ESCAPE_CHARS = 6

_MAX_UNDERSCORES = 3


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
            opened, closed = opening[0].strip().lower(), closing[0].strip().lower()
            if _PAIRS[opened] == closed:
                more = 0 if opened in _OWN else _further_pairs(text, opening.start(), closing.end(), opened, closed)
                first, last = opening.start() - more * len(opened), closing.end() + more * len(closed)
                return cls(text, first, last, inner, opened, is_word=True)
        return cls(text, start, end, inner, "", begins_word(text, start) or is_between_underscores(text, start, end))

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


def _further_pairs(text: str, start: int, end: int, opened: str, closed: str) -> int:
    """The number of pairs of such brackets right around a bracketed placeholder at [start, end)."""
    pairs = 0
    while pairs < MAX_BRACKETS - 1:
        first, last = start - pairs * len(opened), end + pairs * len(closed)
        before, behind = text[max(0, first - len(opened)) : first], text[last : last + len(closed)]
        if (before.lower(), behind.lower()) != (opened, closed):
            break
        pairs += 1
    return pairs


def is_between_underscores(text: str, start: int, end: int) -> bool:
    """Whether one underscore is on either side, as in `_PERSON_1_`; only before it, it is the end of another name."""
    is_behind = underscores_before(text, start) == 1 and begins_word(text, start - 1)
    return is_behind and (text[end : end + 1] == "_" or text[end : end + 2] == "\\_")


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
    or a single underscore; `__` and `___` begin bold text. `9` in `\\u00e9PERSON_1` and `0` in `%20PERSON_1` are no
    digits."""
    underscores = underscores_before(text, start)
    start -= underscores
    before = text[start - 1 : start]
    return underscores in (0, 2, 3) and (
        not (before.isascii() and (before.isupper() or before.isdigit()))
        or _ESCAPE.search(text, max(0, start - _ESCAPE_CHARS), start) is not None
    )


def underscores_before(text: str, end: int) -> int:
    """The number of underscores right before `end`; at most one more than have a meaning."""
    if text[end - 1 : end] != "_":  # as nearly always
        return 0
    run = text[max(0, end - _MAX_UNDERSCORES - 1) : end]
    return len(run) - len(run.rstrip("_"))
