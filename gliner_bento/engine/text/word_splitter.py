"""Splits a text into words with gliner's word splitter; every word gets a position, and no text is left out.

Most splitters wrap a library for some languages. Some of these libraries leave text out, or return words that are not
in it; some are not thread-safe, or slow for long texts.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import numpy as np
from gliner.data_processing.tokenizer import WhitespaceTokenSplitter
from huggingface_hub import constants
from numpy.typing import NDArray

from gliner_bento.engine.text.sentences import sentence_ends

logger = logging.getLogger(__name__)

SplitWord = tuple[str, int, int]
"""A word, and its [start, end) in characters of the text."""

WordColumns = tuple[list[str], NDArray[np.int64]]
"""Words, and the [start, end) of each, shape (words, 2)."""

PIECE_CHARS = 10_000
"""A longer text is split in pieces of at most this length: the time of some splitters grows with its square."""

PLAIN_PIECE_CHARS = 50_000  # likewise, for the whitespace splitter

GLINER2 = "gliner2"

_WHITESPACE_SPLITTER = WhitespaceTokenSplitter()

# One lock for all models: langdetect loads profiles for the whole process on its first call, spaCy's memory zone is for
# one thread, and janome's cache has a race (an entry may be evicted before it is deleted).
_LOCK = threading.Lock()


class WordSplitter:
    """gliner's word splitter of one model, or gliner2's. Safe to call from several threads."""

    def __init__(self, splitter: Any, kind: str) -> None:
        """splitter: gliner's `WordsSplitter`. kind: the configuration's `words_splitter_type`, or `gliner2` for GLiNER2
        models, which read words in lower case."""
        self._split = splitter
        plain = kind in ("whitespace", GLINER2)
        # The group makes `split` return the words, too, not only the text between them.
        self._plain = re.compile(f"({splitter.splitter.whitespace_pattern.pattern})") if plain else None
        self._lowers = kind == GLINER2
        # A word of gliner2 may have any characters, so `plain_pieces` could split it. Its pattern takes quadratic time
        # for a run of dots; pieces are short.
        self._pieces = pieces if kind == GLINER2 else plain_pieces
        self._spacy = _spacy_of(splitter, kind)
        self._stanza = getattr(splitter, "splitter", None) if kind == "stanza" else None
        self._without_model: set[str] = set()
        if self._stanza is not None:
            self._stanza.download_on_missing = not constants.HF_HUB_OFFLINE

    def __call__(self, text: str) -> Iterator[SplitWord]:
        """The words of a text, in order, split on demand by the splitter's library."""
        for start, end in pieces(text):
            piece = text[start:end]
            if not piece.isspace():
                for word, word_start, word_end in with_positions(piece, self._words(piece)):
                    yield word, start + word_start, start + word_end

    def chunks(self, text: str, words: int) -> Iterator[WordColumns]:
        """The words of a text, in order and split on demand, at most `words` at a time."""
        return self._plain_chunks(self._plain, text, words) if self._plain else self._library_chunks(text, words)

    def _library_chunks(self, text: str, words: int) -> Iterator[WordColumns]:
        """See `chunks`."""
        split = iter(self(text))
        while chunk := list(islice(split, words)):
            yield [word for word, _, _ in chunk], np.array([bounds for _, *bounds in chunk], np.int64)

    def _plain_chunks(self, pattern: re.Pattern[str], text: str, words: int) -> Iterator[WordColumns]:
        """See `chunks`: one call of the pattern per chunk, and no Python code per word."""
        for piece_start, piece_end in self._pieces(text):
            start, rest = piece_start, text[piece_start:piece_end]
            while rest and len(parts := pattern.split(rest, words)) > 1:  # space, word, space, word, ..., rest
                rest = parts.pop()
                lengths = np.fromiter(map(len, parts), np.int64, len(parts))
                lengths[0] += start
                ends = lengths.cumsum()
                chunk = list(map(str.lower, parts[1::2])) if self._lowers else parts[1::2]
                yield chunk, ends.reshape(-1, 2)  # ends of a space and of the word after it: the word's start and end
                start = int(ends[-1])

    def _words(self, piece: str) -> list[Any]:
        with _LOCK, self._memory_zone():
            words = list(self._split(piece))
            if self._stanza is not None:
                self._warn_of_missing_models(self._stanza)
        return words

    def _memory_zone(self) -> AbstractContextManager[Any]:
        """spaCy's memory zone (from version 3.8). Outside of it, spaCy keeps every new word forever."""
        zone: AbstractContextManager[Any] = getattr(self._spacy, "memory_zone", nullcontext)()
        return zone

    def _warn_of_missing_models(self, stanza: Any) -> None:
        missing = {language for language, pipeline in stanza._pipelines.items() if pipeline is None}
        for language in sorted(missing - self._without_model):
            logger.warning(
                "stanza has no model for the language %r: its texts are split as %r. "
                "Install it: python -c \"import stanza; stanza.download('%s', processors='tokenize')\"",
                language,
                stanza.default_lang,
                language,
            )
        self._without_model |= missing


def _spacy_of(splitter: Any, kind: str) -> Any:
    """The spaCy pipeline that the splitter uses; None if it uses none."""
    if kind == "spacy":
        return splitter.splitter.nlp
    return splitter.splitter.universal_splitter.nlp if kind == "universal" else None


def pieces(text: str) -> Iterator[tuple[int, int]]:
    """[start, end) of pieces of at most PIECE_CHARS, which end after a sentence if possible, else after a space."""

    def last_end(middle: int, limit: int) -> int:
        ends = sentence_ends(text, middle, limit)
        return ends[-1] if ends else next((i for i in range(limit, middle, -1) if text[i - 1].isspace()), limit)

    return _cut(len(text), PIECE_CHARS, last_end)


def plain_pieces(text: str) -> Iterator[tuple[int, int]]:
    """[start, end) of pieces of at most PLAIN_PIECE_CHARS, which split no word of the whitespace splitter, unless it is
    longer than half a piece. One search of the splitter may scan a whole piece, and other threads wait meanwhile."""

    def last_end(middle: int, limit: int) -> int:
        return next((i for i in range(limit, middle, -1) if not (text[i].isalnum() or text[i] in "-_")), limit)

    return _cut(len(text), PLAIN_PIECE_CHARS, last_end)


def _cut(chars: int, size: int, last_end: Callable[[int, int], int]) -> Iterator[tuple[int, int]]:
    """[start, end) of pieces of at most `size` characters. last_end: (middle, limit) of a piece -> its end."""
    start = 0
    while chars - start > size:
        end = last_end(start + size // 2, start + size)
        yield start, end
        start = end
    if start < chars:
        yield start, chars


def with_positions(text: str, words: Iterable[tuple[str, int | None, int | None]]) -> Iterator[SplitWord]:
    """A splitter's words with their positions. Text that it leaves out is split by gliner's whitespace splitter.

    A word has no position if it is not in the text: stanza splits "du" into "de" and "le"; gliner's search for a
    normalized word returns -1. If the text between the words before and after it is a single run without white space,
    the word gets the position of that run; else it is dropped.
    """
    done, without_position = 0, []
    for word, start, end in words:
        if start is None or end is None or not done <= start < end:
            without_position += [word] if word else []
            continue
        yield from _left_out(text, done, start, without_position)
        yield word, start, end
        done, without_position = end, []
    yield from _left_out(text, done, len(text), without_position)


def _left_out(text: str, start: int, end: int, without_position: list[str]) -> Iterator[SplitWord]:
    """The words of `text[start:end]`, where the splitter found none."""
    gap = text[start:end]
    runs = [match.span() for match in re.finditer(r"\S+", gap)]
    if without_position and len(runs) == 1:
        words = [(word, *runs[0]) for word in without_position]
    else:
        words = list(_WHITESPACE_SPLITTER(gap))
    for word, word_start, word_end in words:
        yield word, start + word_start, start + word_end
