"""Searches a file for texts of which none may be left in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD_END = re.compile(r"\w(?=\w)")


class Originals:
    """Texts that were replaced. A search takes time with the length of the text, and not with their number."""

    def __init__(self, originals: Iterable[str]) -> None:
        self._originals = {stripped for original in originals if (stripped := original.strip())}
        lengths: dict[str, set[int]] = {}
        for original in self._originals:
            token = _TOKEN.search(original)
            assert token is not None
            lengths.setdefault(token[0], set()).add(len(original))
        self._lengths = lengths  # of the originals that begin with a token

    def is_in(self, text: str) -> bool:
        """Whether the text has one of the originals, not as a part of a word."""
        return any(candidate in self._originals for candidate in self.candidates(text))

    def candidates(self, text: str) -> Iterator[str]:
        """Pieces that begin with the first token of an original, have its length, and end with a word."""
        for token in _TOKEN.finditer(text):
            for length in self._lengths.get(token[0], ()):
                end = token.start() + length
                if end <= len(text) and not _WORD_END.match(text, end - 1):
                    yield text[token.start() : end]
