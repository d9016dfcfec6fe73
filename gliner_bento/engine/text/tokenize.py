"""From an item to the input of a pass: words, sub-word tokens, and where the text is cut at the maximum length.

Every word is encoded on its own, so tokens of words can be joined into any window: gliner's
`tokenizer(words, is_split_into_words=True)` gives the same tokens. Makes no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from gliner_bento.engine.base import Steps
from gliner_bento.engine.heads.predictions import SpanTable
from gliner_bento.engine.text.prompts import Prompt, Prompts
from gliner_bento.engine.text.subwords import ModelLimits, Subwords, check_unicode
from gliner_bento.engine.text.word_splitter import WordSplitter
from gliner_bento.engine.text.words import NO_WORDS, TokenIds, Words, token_array
from gliner_bento.frozen import frozen

# `read` stops after this many times `max_words` words of the splitter: in some texts, hardly any word has tokens.
_READ_FACTOR = 8
_CHUNK_WORDS = 256
_CHUNK_CHARS = 4096

MAX_WORD_CHARS = 4096
"""A longer word is tokenized in pieces: a single call could take seconds, and block all other threads."""
OVERLONG = 1 << 40
"""The token count that `chunks` returns for a word longer than `MAX_WORD_CHARS`. Exceeds every limit."""

_GRAPHEME = regex.compile(r"\X")


@frozen(eq=False)
class Tokenized:
    """The input of a pass: one sequence of tokens, that of the prompt followed by those of words. A batch joins the
    sequences of its texts together.

    prompt: as `Prompts` made it. read: the words that the model reads. pooling: which tokens of a word gliner pools to
    its embedding: the `first`, the `last`, or all.
    own: the slice of words that belong to the text; the model may read more words before and after these.
    entities: given entities, between which relations are scored; None: the pass predicts the entities.
    """

    prompt: Prompt
    read: Words
    pooling: str = "first"
    own: slice = field(default_factory=lambda: slice(None))
    entities: SpanTable | None = None

    @property
    def parts(self) -> tuple[TokenIds, ...]:
        """The tokens, special tokens and prompt included, in parts."""
        return self.prompt.token_ids, self.read.token_ids, self.prompt.suffix

    @property
    def token_ids(self) -> TokenIds:
        """(T,): all tokens."""
        return np.concatenate(self.parts)

    @property
    def tokens(self) -> int:
        """How many `token_ids` there are."""
        return sum(map(len, self.parts))

    @property
    def bounds(self) -> NDArray[np.int64]:
        """(W, 2), [start, end) of each word in characters of the text."""
        return self.read.bounds

    @property
    def own_words(self) -> int:
        """The number of words of the text itself."""
        return len(self.bounds[self.own])

    @property
    def words(self) -> list[tuple[int, int]]:
        """`bounds` as tuples."""
        return list(map(tuple, self.bounds.tolist()))

    @property
    def words_mask(self) -> NDArray[np.int64]:
        """For each token the word that it stands for, counted from 1; 0 for other tokens."""
        mask = np.zeros(self.tokens, np.int64)
        positions, numbers = pooled_tokens([self], np.zeros(1, np.int64))
        mask[positions] = numbers + 1
        return mask


def pooled_tokens(texts: Sequence[Tokenized], starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The tokens that gliner pools to the embeddings of words, usually one per word, in a sequence of several texts.

    starts: where each text starts in the sequence. Returns the position of each of these tokens, and the number of its
    word among the words of all texts."""
    counts = np.concatenate([text.read.counts for text in texts])
    token_counts = np.array([len(text.read.token_ids) for text in texts])
    # For each text, the position of a token less its number among the tokens of all words.
    shifts = starts + [len(text.prompt.token_ids) for text in texts] - (token_counts.cumsum() - token_counts)
    numbers, ends = np.arange(len(counts)), counts.cumsum()
    if texts[0].pooling not in ("first", "last"):
        return np.arange(token_counts.sum()) + shifts.repeat(token_counts), numbers.repeat(counts)
    pooled = ends - counts if texts[0].pooling == "first" else ends - 1
    return pooled + shifts.repeat([len(text.read) for text in texts]), numbers


class ItemTokenizer:
    """Tokenizes items for one model. Safe to call from several threads.

    prompts: how labels are encoded. relations: whether the model has relation markers.
    """

    def __init__(
        self, processor: Any, config: Any, limits: ModelLimits, prompts: type[Prompts], *, relations: bool = False
    ) -> None:
        self.limits = limits
        markers = prompts.markers(processor, relations=relations)
        self.subwords = Subwords(processor, limits.tokens, markers, framed=prompts.framed)
        self.prompts = prompts(processor, self.subwords, limits, relations=relations)
        self._pooling = config.subtoken_pooling
        self._splitter = WordSplitter(processor.words_splitter, config.words_splitter_type)

    def read(self, text: str, room: int, max_words: int) -> Steps[tuple[Words, bool]]:
        """The first words that fit `max_words` and `room` tokens, and whether more follow.

        Ends before the first word that does not fit, even if that word is a whole sentence without spaces. Raises
        InvalidField (`text`).
        """
        parts: list[Words] = []
        words_left = _READ_FACTOR * (max_words + 1)
        for number, (split, words) in enumerate(self._chunks(text)):
            if number:
                yield
            fit = words.fitting(max_words, room)
            if fit < len(words):
                return Words.joined([*parts, words[:fit]]), True
            parts.append(words)
            max_words -= fit
            room -= len(words.token_ids)
            words_left -= split
            if words_left < 0:
                return Words.joined(parts), True
        return Words.joined(parts), False

    def chunks(self, text: str) -> Iterator[Words]:
        """The text's words, in chunks that take a few ms. Raises InvalidField (`text`).

        Words without tokens (control characters, lone combining marks) are left out: gliner would count them, and
        shift the position of every later word. A word of more than `MAX_WORD_CHARS` is a chunk of its own, without
        tokens: its count is `OVERLONG`.
        """
        return (words for _, words in self._chunks(text))

    def _chunks(self, text: str) -> Iterator[tuple[int, Words]]:
        """For each chunk, the number of words that the splitter returned, and the words as `chunks` yields them."""
        check_unicode((text,), "text")
        for words, bounds in self._splitter.chunks(text, _CHUNK_WORDS):
            for start, end in _parts(words, bounds):
                if len(words[start]) > MAX_WORD_CHARS:
                    yield 1, Words(NO_WORDS.token_ids, np.array([OVERLONG]), bounds[start:end])
                else:
                    yield end - start, Words.of(self.subwords.of_words(words[start:end]), bounds[start:end])

    def pieces(self, text: str, start: int, end: int, room: int, size: int | None = None) -> Iterator[Words]:
        """A word, `text[start:end]`, in pieces of at most `room` tokens, cut between graphemes where possible.

        A character that has more tokens is left out. room: at least 1. size: characters of the longest piece that is
        tried; default: `room`. An empty `Words` stands for a piece without tokens, so that a caller can pause."""
        if room < 1:
            raise ValueError("no room for a token")
        for first, last in _runs(text, start, end, size or room):
            ids = self.subwords.ids([text[first:last]])
            if 0 < len(ids) <= room:
                yield Words(token_array(ids), np.array([len(ids)]), np.array([[first, last]]))
            elif ids and last - first > 1:
                yield from self.pieces(text, first, last, room, (last - first + 1) // 2)
            else:
                yield NO_WORDS

    def tokenized(self, text: str, words: Words, prompt: Prompt) -> Tokenized:
        """The input of a pass over `words` of the text."""
        before = len(prompt.words)
        own = slice(before, before + len(words))
        if (after := self.prompts.after(text, words)) or before:
            words = Words.joined([prompt.words, words, after])
        return Tokenized(prompt, words, self._pooling, own)


def _parts(words: Sequence[str], bounds: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """[start, end) of parts of at most `_CHUNK_CHARS` characters. A longer word is a part of its own."""
    if bounds[-1, 1] - bounds[0, 0] <= _CHUNK_CHARS or sum(map(len, words)) <= _CHUNK_CHARS:
        yield 0, len(words)
        return
    start = chars = 0
    for index, word in enumerate(words):
        if index > start and chars + len(word) > _CHUNK_CHARS:
            yield start, index
            start, chars = index, 0
        chars += len(word)
    yield start, len(words)


def _runs(text: str, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Divide `text[start:end]` into runs of at most `size` characters; cuts a grapheme only if it is longer."""
    at = start
    for grapheme in _GRAPHEME.finditer(text, start, end):
        if grapheme.end() - at > size and grapheme.start() > at:
            yield at, grapheme.start()
            at = grapheme.start()
        while grapheme.end() - at > size:
            yield at, at + size
            at += size
    if at < end:
        yield at, end
