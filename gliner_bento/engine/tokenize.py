"""From an item to what the model reads of it: sub-word tokens, the words they stand for, and where the text is cut.

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

from tokenizers import Tokenizer

from gliner_bento.engine.base import Item
from gliner_bento.errors import InvalidField

_CACHED_PROMPTS = 1024


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
    truncated: the text goes on after the last word.
    """

    token_ids: list[int]
    words_mask: list[int]
    words: list[tuple[int, int]]
    labels: tuple[tuple[int, ...], ...] = ()
    truncated: bool = False


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

    def __call__(self, item: Item) -> Tokenized:
        """What the model reads of `item`; no words where the text has none that it can read.

        Raises InvalidField (`text`, `labels`, `relations`) for what cannot be read, and (`labels`, `relations`)
        for a prompt that leaves no room for a text.
        """
        labels, relations = tuple(item.labels.values()), tuple(item.relations.values())
        check_unicode(labels, "labels")
        check_unicode(relations, "relations")
        check_unicode((item.text,), "text")
        prompt: Sequence[int] = ()
        label_ids: tuple[tuple[int, ...], ...] = ()
        if self._labels_tokenizer is None:
            if 2 * (len(labels) + len(relations)) >= self.limits.tokens:  # a marker and a token for each, at least
                raise self._no_room(labels, relations)
            prompt = self._prompt(labels, relations)
        else:
            label_ids = tuple(map(self._label, labels))
        word_ids, words, truncated = self._read_words(item.text, self._room_beside(prompt))
        return Tokenized(
            token_ids=[*self._prefix, *prompt, *(token for ids in word_ids for token in ids), *self._suffix],
            words_mask=[
                *[0] * (len(self._prefix) + len(prompt)),
                *(mark for number, ids in enumerate(word_ids, 1) for mark in self._marks(number, len(ids))),
                *[0] * len(self._suffix),
            ],
            words=words,
            labels=label_ids,
            truncated=truncated,
        )

    def _no_room(self, labels: Sequence[str], relations: Sequence[str]) -> InvalidField:
        param = "labels" if sum(map(len, labels)) >= sum(map(len, relations)) else "relations"
        limit = self.limits.tokens
        return InvalidField(
            f"{param}: they leave no room for the text; the model reads {limit} tokens in all", param=param
        )

    def _read_words(self, text: str, room: int) -> tuple[list[list[int]], list[tuple[int, int]], bool]:
        """Tokens and offsets of the words that fit, and whether more were to come.

        A word that does not fit ends the reading, also where it is a whole sentence written without spaces.

        Words without tokens (control characters, lone combining marks) are left out: gliner would count them, and
        give every later word its neighbour's place.
        """
        word_ids: list[list[int]] = []
        words: list[tuple[int, int]] = []
        for ids, span in self._readable_words(text):
            room -= len(ids)
            if room < 0 or len(words) == self.limits.words:
                return word_ids, words, True
            if self._markers.intersection(ids):
                raise InvalidField("text: contains a marker that the model reserves for its labels", param="text")
            word_ids.append(ids)
            words.append(span)
        return word_ids, words, False

    def _readable_words(self, text: str) -> Iterator[tuple[list[int], tuple[int, int]]]:
        """Tokens and offsets of the words that have tokens, encoded as many at a time as may be needed."""
        words = self._split(text)
        while chunk := list(islice(words, self.limits.words + 1)):
            encoded = self._tokenizer.encode(
                [word for word, _, _ in chunk], is_pretokenized=True, add_special_tokens=False
            )
            counts = Counter(encoded.word_ids)
            position = 0
            for index, (_, start, end) in enumerate(chunk):
                if count := counts[index]:
                    yield encoded.ids[position : position + count], (start, end)
                    position += count

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
                self._check_readable(self._encode([name]), name, param)
        more = {"relations": [list(relations)]} if self._has_relations else {}
        prompts, _ = self._processor.prepare_inputs([[]], [list(labels)], **more)
        prompt = self._encode(prompts[0])
        if self._room_beside(prompt) < 1:
            raise self._no_room(labels, relations)  # here, so that what is refused is not cached
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
            raise InvalidField(f"labels: one has {len(ids)} tokens; the model reads {limit} of each", param="labels")
        return ids

    def _check_readable(self, ids: Sequence[int], name: str, param: str) -> None:
        """A name without tokens shifts gliner's count of words, one with a marker inside is two names to the model."""
        if not ids or self._markers.intersection(ids):
            raise InvalidField(f"{param}: {name!r} has nothing in it that the model can read as a name", param=param)

    def _encode(self, words: Sequence[str]) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False).ids)

    def _special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens before and after every sequence, seen around a word."""
        bare = self._encode(["a"])
        full = tuple(self._tokenizer.encode(["a"], is_pretokenized=True).ids)
        at = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
        return full[:at], full[at + len(bare) :]


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
