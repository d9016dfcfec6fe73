"""From an item to what the model reads in a pass: sub-word tokens, the words they stand for, and what does not fit.

Owns the prompt (built by gliner's own processor) and both of the model's limits, words and tokens. Makes no tensors.

    prefix │ [ENT] label [ENT] label [SEP] │ text words … │ suffix          uni-encoders
    prefix │ text words … │ suffix       and one sequence for each label     bi-encoders

Every word is encoded on its own by a tokenizer that is never changed after construction, so any thread may use it and
the parts may be joined: gliner's `tokenizer(words, is_split_into_words=True)` gives the same tokens.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import regex
from tokenizers import Tokenizer

from gliner_bento.engine.windows import Word
from gliner_bento.errors import InvalidField

_CACHED_PROMPTS = 1024
_SHOWN_CHARS = 60
# Of a text that has next to no words that can be read, no more is looked at in one go.
_MOST_CHUNKS = 8
_GRAPHEME = regex.compile(r"\X")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the model reads of one text. `label_tokens` is a bi-encoder's limit for one label."""

    words: int
    tokens: int
    label_tokens: int


@dataclass(frozen=True, slots=True)
class Tokenized:
    """What the model reads of one item.

    token_ids: one sequence, special tokens and prompt included.
    words_mask: for each token the word that it stands for, counted from 1; 0 for tokens that stand for none.
    words: [start, end) of each word, in characters of the text.
    labels: a bi-encoder's token ids of each label; empty for a uni-encoder, whose labels are in the prompt.
    """

    token_ids: list[int]
    words_mask: list[int]
    words: list[tuple[int, int]]
    labels: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """What of a pass is not its text.

    token_ids: before the text, of a uni-encoder. labels: see `Tokenized`.
    room: tokens that are left for the text.
    """

    token_ids: tuple[int, ...]
    labels: tuple[tuple[int, ...], ...]
    room: int


class _NoRoom(Exception):
    """A prompt is as long as what the model reads."""


class ItemTokenizer:
    """Tokenizes items for one model. Safe to call from several threads."""

    def __init__(self, processor: Any, config: Any, limits: Limits) -> None:
        self.limits = limits
        self._processor = processor
        self._tokenizer = unpadded(processor.transformer_tokenizer)
        labels_tokenizer = getattr(processor, "labels_tokenizer", None)
        self._labels_tokenizer = unpadded(labels_tokenizer) if labels_tokenizer is not None else None
        self._has_relations = hasattr(config, "rel_token_index")
        self._markers = {config.class_token_index, getattr(config, "rel_token_index", None)}
        self._pooling = config.subtoken_pooling
        self._prefix, self._suffix = self._special_tokens()
        # Splitters other than gliner's own regular expression wrap libraries that promise nothing about threads.
        self._splitter_lock = None if config.words_splitter_type == "whitespace" else threading.Lock()
        self._prompt = lru_cache(maxsize=_CACHED_PROMPTS)(self._build_prompt)
        self._label = lru_cache(maxsize=_CACHED_PROMPTS)(self._encode_label)

    @property
    def reads_labels(self) -> bool:
        """Whether labels share the model's tokens with the text (uni-encoders)."""
        return self._labels_tokenizer is None

    def prompt(self, labels: Sequence[str], relations: Sequence[str]) -> Prompt:
        """For these descriptions; with no `room` if they leave none.

        Raises InvalidField (`labels`, `relations`) for what cannot be read as a name.
        """
        check_unicode(labels, "labels")
        check_unicode(relations, "relations")
        token_ids: tuple[int, ...] = ()
        label_ids: tuple[tuple[int, ...], ...] = ()
        if self._labels_tokenizer is not None:
            label_ids = tuple(map(self._label, labels))
        elif 2 * (len(labels) + len(relations)) >= self.limits.tokens:  # a marker and a token for each, at least
            return Prompt((), (), 0)
        else:
            try:
                token_ids = self._prompt(tuple(labels), tuple(relations))
            except _NoRoom:
                return Prompt((), (), 0)
        return Prompt(token_ids, label_ids, self._room_beside(token_ids))

    def tokens_of(self, name: str, param: str) -> int:
        """Tokens of a label or relation in a prompt, its marker included. Raises InvalidField (`param`)."""
        check_unicode((name,), param)
        return 1 + len(self._readable(name, param))

    def read(self, text: str, room: int, most: int) -> tuple[list[Word], bool]:
        """The words that fit: `most` of them, of `room` tokens; and whether more come. Raises InvalidField (`text`).

        A word that does not fit ends the reading, also where it is a whole sentence written without spaces.
        """
        words: list[Word] = []
        for number, chunk in enumerate(self.chunks(text, most + 1)):
            if number == _MOST_CHUNKS:
                return words, True
            for word in chunk:
                room -= len(word.token_ids)
                if room < 0 or len(words) == most:
                    return words, True
                words.append(word)
        return words, False

    def chunks(self, text: str, size: int) -> Iterator[list[Word]]:
        """The text's words, `size` of the splitter's at a time. Raises InvalidField (`text`).

        Words without tokens (control characters, lone combining marks) are left out: gliner would count them, and
        give every later word its neighbour's place.
        """
        check_unicode((text,), "text")
        split = self._split(text)
        while chunk := list(islice(split, size)):
            encoded = self._tokenizer.encode(
                [word for word, _, _ in chunk], is_pretokenized=True, add_special_tokens=False
            )
            if self._markers.intersection(encoded.ids):
                raise InvalidField("text: contains a marker that the model reserves for its labels", param="text")
            counts = Counter(encoded.word_ids)
            words, position = [], 0
            for index, (_, start, end) in enumerate(chunk):
                if count := counts[index]:
                    words.append(Word(encoded.ids[position : position + count], start, end))
                    position += count
            yield words

    def pieces(self, text: str, word: Word, room: int) -> Iterator[Word]:
        """A word of more than `room` tokens in pieces that have no more, cut between graphemes where that can be."""
        return self._pieces(text, word.start, word.end, room, room)

    def tokenized(self, words: Sequence[Word], prompt: Prompt) -> Tokenized:
        """What the model reads of `words` beside `prompt`."""
        return Tokenized(
            token_ids=[
                *self._prefix,
                *prompt.token_ids,
                *(token for word in words for token in word.token_ids),
                *self._suffix,
            ],
            words_mask=[
                *[0] * (len(self._prefix) + len(prompt.token_ids)),
                *(mark for number, word in enumerate(words, 1) for mark in self._marks(number, len(word.token_ids))),
                *[0] * len(self._suffix),
            ],
            words=[(word.start, word.end) for word in words],
            labels=prompt.labels,
        )

    def _pieces(self, text: str, start: int, end: int, room: int, size: int) -> Iterator[Word]:
        for first, last in _runs(text, start, end, size):
            ids = self._encode([text[first:last]])
            if 0 < len(ids) <= room:
                yield Word(ids, first, last)
            elif ids and last - first > 1:
                yield from self._pieces(text, first, last, room, (last - first + 1) // 2)

    def _split(self, text: str) -> Iterator[tuple[str, int, int]]:
        splitter = self._processor.words_splitter
        if self._splitter_lock is None:
            return iter(splitter(text))
        with self._splitter_lock:
            return iter(list(splitter(text)))

    def _marks(self, number: int, tokens: int) -> list[int]:
        """The mask of a word's tokens: which of them gliner pools to the word's embedding."""
        if self._pooling == "first":
            return [number] + [0] * (tokens - 1)
        if self._pooling == "last":
            return [0] * (tokens - 1) + [number]
        return [number] * tokens

    def _build_prompt(self, labels: tuple[str, ...], relations: tuple[str, ...]) -> tuple[int, ...]:
        for param, names in (("labels", labels), ("relations", relations)):
            for name in names:
                self._readable(name, param)
        more = {"relations": [list(relations)]} if self._has_relations else {}
        prompts, _ = self._processor.prepare_inputs([[]], [list(labels)], **more)
        prompt = self._encode(prompts[0])
        if self._room_beside(prompt) < 1:
            raise _NoRoom  # so that what is of no use is not cached
        return prompt

    def _room_beside(self, prompt: Sequence[int]) -> int:
        """Tokens that are left for a text."""
        return self.limits.tokens - len(self._prefix) - len(prompt) - len(self._suffix)

    def _encode_label(self, label: str) -> tuple[int, ...]:
        assert self._labels_tokenizer is not None
        bare = self._labels_tokenizer.encode(label, add_special_tokens=False).ids
        self._check_readable(bare, label, "labels")
        ids = tuple(self._labels_tokenizer.encode(label).ids)
        if len(ids) > self.limits.label_tokens:
            limit = self.limits.label_tokens
            raise InvalidField(
                f"labels: {shortened(label)} has {len(ids)} tokens; the model reads {limit} of each", param="labels"
            )
        return ids

    def _readable(self, name: str, param: str) -> tuple[int, ...]:
        ids = self._encode([name])
        self._check_readable(ids, name, param)
        return ids

    def _check_readable(self, ids: Sequence[int], name: str, param: str) -> None:
        """A name without tokens shifts gliner's count of words, one with a marker inside is two names to the model."""
        if not ids or self._markers.intersection(ids):
            raise InvalidField(
                f"{param}: {shortened(name)} has nothing in it that the model can read as a name", param=param
            )

    def _encode(self, words: Sequence[str]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False).ids)

    def _special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens before and after every sequence, seen around a word."""
        bare = self._encode(["a"])
        full = tuple(self._tokenizer.encode(["a"], is_pretokenized=True).ids)
        at = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
        return full[:at], full[at + len(bare) :]


def shortened(name: str) -> str:
    """A name as an error message shows it."""
    return repr(name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}…")


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


def unpadded(tokenizer: Any) -> Tokenizer:
    """A private copy of a transformers tokenizer's backend that neither pads nor cuts.

    transformers sets padding and truncation on the backend it shares between all callers.
    """
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    return copy


def check_unicode(texts: Sequence[str], param: str) -> None:
    """Lone surrogates are no characters: no tokenizer takes them, and no answer could carry them."""
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError as error:
        raise InvalidField(f"{param}: is not valid Unicode (a lone surrogate)", param=param) from error
