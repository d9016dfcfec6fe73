"""From an item to the input of a pass: words, sub-word tokens, and where the text is cut at the maximum length.

Every word is encoded on its own, so tokens of words can be joined into any window: gliner's
`tokenizer(words, is_split_into_words=True)` gives the same tokens. Makes no tensors.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from gliner_bento.engine.base import Steps
from gliner_bento.engine.text.prompts import Prompt, Prompts
from gliner_bento.engine.text.subwords import ModelLimits, Subwords, check_unicode
from gliner_bento.engine.text.windows import Word
from gliner_bento.engine.text.word_splitter import SplitWord, WordSplitter
from gliner_bento.errors import InvalidField

# Maximum number of the splitter's words that `read` tokenizes, over those that it may return: a text may have hardly
# any words with tokens.
_WORDS_READ = 8
_CHUNK_WORDS = 256
_CHUNK_CHARS = 4096

MAX_WORD_CHARS = 4096
"""A longer word is processed in pieces: tokenizing it could take seconds, and hold up all other threads."""
OVERLONG = range(sys.maxsize)
"""In place of the tokens of such a word: more than any limit."""

_GRAPHEME = regex.compile(r"\X")


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The input of a pass.

    token_ids: one sequence, special tokens and prompt included.
    words_mask: for each token the word that it stands for, counted from 1; 0 for other tokens.
    words: [start, end) of each word, in characters of the text.
    labels: the token ids of each label, with separate labels (see `prompts`).
    """

    token_ids: list[int]
    words_mask: list[int]
    words: list[tuple[int, int]]
    labels: tuple[tuple[int, ...], ...] = ()


class ItemTokenizer:
    """Tokenizes items for one model. Safe to call from several threads.

    prompts: the kind of labels. relations: whether the model has relation markers.
    """

    def __init__(
        self, processor: Any, config: Any, limits: ModelLimits, prompts: type[Prompts], *, relations: bool = False
    ) -> None:
        self.limits = limits
        self._subwords = Subwords(processor, config, limits.tokens, relations=relations)
        self._prompts = prompts(processor, self._subwords, limits, relations=relations)
        self._pooling = config.subtoken_pooling
        self._split = WordSplitter(processor.words_splitter, config.words_splitter_type)

    @property
    def inline_labels(self) -> bool:
        """Whether labels share the model's maximum length with the text (uni-encoders)."""
        return self._prompts.inline

    def prompt(self, labels: Sequence[str], relations: Sequence[str]) -> Prompt:
        """See `Prompts`."""
        return self._prompts.prompt(labels, relations)

    def tokens_of(self, name: str, param: str) -> int:
        """See `Prompts`."""
        return self._prompts.tokens_of(name, param)

    def read(self, text: str, room: int, max_words: int) -> Steps[tuple[list[Word], bool]]:
        """The first words that fit `max_words` and `room` tokens; whether more follow. Raises InvalidField (`text`).

        Ends before the first word that does not fit, even if that word is a whole sentence without spaces.
        """
        words: list[Word] = []
        unread = _WORDS_READ * (max_words + 1)
        for split, chunk in self._chunks(text):
            for word in chunk:
                room -= len(word.token_ids)
                if room < 0 or len(words) == max_words:
                    return words, True
                words.append(word)
            unread -= split
            if unread < 0:
                return words, True
            yield
        return words, False

    def chunks(self, text: str) -> Iterator[list[Word]]:
        """The text's words, in chunks that take a few ms. Raises InvalidField (`text`).

        Words without tokens (control characters, lone combining marks) are left out: gliner would count them, and
        shift the position of every later word. A word of more than `MAX_WORD_CHARS` is `OVERLONG`.
        """
        return (words for _, words in self._chunks(text))

    def _chunks(self, text: str) -> Iterator[tuple[int, list[Word]]]:
        """The number of the splitter's words in each chunk, and the words."""
        check_unicode((text,), "text")
        chunk: list[SplitWord] = []
        chars = 0
        for word in self._split(text):
            if len(word[0]) > MAX_WORD_CHARS:
                yield len(chunk) + 1, [*self._encoded(chunk), Word(OVERLONG, word[1], word[2])]
                chunk, chars = [], 0
                continue
            chunk.append(word)
            chars += len(word[0])
            if len(chunk) == _CHUNK_WORDS or chars >= _CHUNK_CHARS:
                yield len(chunk), self._encoded(chunk)
                chunk, chars = [], 0
        if chunk:
            yield len(chunk), self._encoded(chunk)

    def _encoded(self, chunk: Sequence[SplitWord]) -> list[Word]:
        encoded = self._subwords.encode([word for word, _, _ in chunk])
        if self._subwords.markers.intersection(encoded.ids):
            raise InvalidField("text: contains a marker that the model reserves for its labels", param="text")
        counts = Counter(encoded.word_ids)
        words, position = [], 0
        for index, (_, start, end) in enumerate(chunk):
            if count := counts[index]:
                words.append(Word(encoded.ids[position : position + count], start, end))
                position += count
        return words

    def pieces(self, text: str, word: Word, room: int) -> Iterator[Word]:
        """A word of more than `room` tokens, in pieces of at most that, cut between graphemes where possible."""
        return self._pieces(text, word.start, word.end, room, room)

    def tokenized(self, words: Sequence[Word], prompt: Prompt) -> Tokenized:
        """The input of a pass over `words`."""
        prefix, suffix = self._subwords.prefix, self._subwords.suffix
        return Tokenized(
            token_ids=[
                *prefix,
                *prompt.token_ids,
                *(token for word in words for token in word.token_ids),
                *suffix,
            ],
            words_mask=[
                *[0] * (len(prefix) + len(prompt.token_ids)),
                *(mark for number, word in enumerate(words, 1) for mark in self._marks(number, len(word.token_ids))),
                *[0] * len(suffix),
            ],
            words=[(word.start, word.end) for word in words],
            labels=prompt.labels,
        )

    def _pieces(self, text: str, start: int, end: int, room: int, size: int) -> Iterator[Word]:
        for first, last in _runs(text, start, end, size):
            ids = self._subwords.ids([text[first:last]])
            if 0 < len(ids) <= room:
                yield Word(ids, first, last)
            elif ids and last - first > 1:
                yield from self._pieces(text, first, last, room, (last - first + 1) // 2)

    def _marks(self, number: int, tokens: int) -> list[int]:
        """The mask of a word's tokens: those that gliner pools to the word's embedding."""
        if self._pooling == "first":
            return [number] + [0] * (tokens - 1)
        if self._pooling == "last":
            return [0] * (tokens - 1) + [number]
        return [number] * tokens


def _runs(text: str, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """`[start, end)` in runs of at most `size` characters, cut between graphemes unless one is longer."""
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
