"""Sub-word tokens: a private, thread-safe tokenizer for one encoder, with its special tokens and maximum length."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.text.subword_cache import CachedSubwords, encoded, ids_of_each, is_exact
from gliner_bento.errors import InvalidField

logger = logging.getLogger(__name__)

_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """The model's maximum lengths. words, tokens: of one pass. label_tokens: of one label of a bi-encoder."""

    words: int
    tokens: int
    label_tokens: int


class Subwords:
    """Encodes words for the text encoder. Safe to call from several threads.

    prefix, suffix: the special tokens at both ends of every sequence, if `framed`. markers: tokens that the model
    reserves for labels and relations. of_words: the tokens of each word of a text, as the bytes of int32s; raises
    InvalidField (`text`) for a marker among them. cached: whether `of_words` has a cache (only if `is_exact`).
    """

    def __init__(self, processor: Any, max_tokens: int, markers: set[int], *, framed: bool) -> None:
        self.max_tokens = max_tokens
        self.markers = markers
        self._tokenizer = unpadded(processor.transformer_tokenizer)
        self.prefix, self.suffix = self._special_tokens() if framed else ((), ())
        self.cached = is_exact(self._tokenizer)
        self.of_words = CachedSubwords(self._encode) if self.cached else self._encode
        if not self.cached:
            logger.warning(
                "the tokenizer encodes a word differently alone and in a sentence: sub-words are not cached, and "
                "preparing texts is slower"
            )

    def _encode(self, words: Sequence[str]) -> list[bytes]:
        encoding = encoded(self._tokenizer, words)
        if self.markers.intersection(encoding.ids):
            raise InvalidField("text: contains a marker that the model reserves for its labels", param="text")
        return ids_of_each(encoding, len(words))

    def ids(self, words: Sequence[str]) -> tuple[int, ...]:
        """The tokens of the words, each encoded on its own, without special tokens."""
        return tuple(encoded(self._tokenizer, words).ids)

    def each(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """`ids` of each of the words."""
        encoding = encoded(self._tokenizer, words)
        return [tuple(np.frombuffer(ids, np.int32).tolist()) for ids in ids_of_each(encoding, len(words))]

    def room(self, prompt: Sequence[int]) -> int:
        """The number of tokens left for a text after `prompt`."""
        return self.max_tokens - len(self.prefix) - len(prompt) - len(self.suffix)

    def check_marker(self, marker: str, key: str, index: int) -> None:
        """Raises ModelError unless the tokenizer encodes the marker of labels or relations as the token `index`, which
        gliner_config.json has under `key`. A negative `index` is not checked: only the ONNX file has the right one."""
        ids = self.ids([marker])
        if index >= 0 and ids != (index,):
            raise ModelError(
                f"{key} of gliner_config.json is {index}, but the tokenizer encodes {marker} as {list(ids)}; use the "
                "tokenizer that was saved with the checkpoint"
            )

    def check_name(self, ids: Sequence[int], name: str, param: str) -> None:
        """Raises InvalidField for a name without tokens, which would shift gliner's word count, and for a name with a
        marker inside, which the model would read as two names."""
        if not ids or self.markers.intersection(ids):
            raise InvalidField(
                f"{param}: the model cannot encode {shortened(name)}: it has no tokens, or a reserved marker",
                param=param,
            )

    def _special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens before and after every sequence, found around a word."""
        bare = self.ids(["a"])
        full = tuple(self._tokenizer.encode(["a"], is_pretokenized=True).ids)
        at = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
        return full[:at], full[at + len(bare) :]


def unpadded(tokenizer: Any) -> Tokenizer:
    """A private copy of a transformers tokenizer's backend that neither pads nor truncates.

    transformers sets padding and truncation on a backend that all callers share. Raises ModelError for a tokenizer
    without a backend.
    """
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} does not say which token belongs to which word, which GLiNER "
            "models need; only tokenizers that have a tokenizer.json, or can be converted to one, are served"
        )
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    return copy


def shortened(name: str) -> str:
    """A name in the form that error messages show."""
    return repr(name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}…")


def check_unicode(texts: Sequence[str], param: str) -> None:
    """Raises InvalidField for lone surrogates, which no tokenizer and no JSON encoder takes."""
    try:
        for text in texts:
            if not text.isascii():
                text.encode()
    except UnicodeEncodeError as error:
        raise InvalidField(f"{param}: is not valid Unicode (a lone surrogate)", param=param) from error
