"""Prompts: a model reads labels before the text (uni-encoders), or each label as a sequence (bi-encoders).

    prefix │ [ENT] label [ENT] label [SEP] │ text words … │ suffix          InlineLabels
    prefix │ text words … │ suffix       and one sequence per label         SeparateLabels

Prompts are built by gliner's own processor. GLiNER2's are in `schema_prompts`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gliner_bento.engine.text.subwords import ModelLimits, Subwords, check_unicode, shortened, unpadded
from gliner_bento.engine.text.words import NO_WORDS, TokenIds, Words, no_positions, token_array
from gliner_bento.errors import InvalidField
from gliner_bento.tasks.extraction import ExtractionItem

CACHED_PROMPTS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """The input of a pass, except for its text.

    token_ids: the tokens before the text, special tokens and inline labels included. suffix: those after the text.
    labels: the token ids of each separate label.
    room: tokens left for the text; less than 1 if the labels do not fit.
    label_positions, relation_positions: positions of the tokens whose embeddings stand for inline labels and relations.
    words: words that the model reads before those of the text.
    """

    token_ids: TokenIds
    labels: tuple[tuple[int, ...], ...]
    room: int
    label_positions: NDArray[np.int64] = field(default_factory=no_positions)
    relation_positions: NDArray[np.int64] = field(default_factory=no_positions)
    words: Words = NO_WORDS
    suffix: TokenIds = field(default_factory=token_array)


NO_ROOM = Prompt(token_array(), (), 0)


class Prompts(ABC):
    """Encodes labels and relations. Thread-safe.

    inline: labels are in one sequence with the text, and share the maximum length with it.
    framed: sequences begin and end with special tokens.
    schema: as in GLiNER2, the model reads the name and the description of a label (others read the description, which
        is the name by default). A span may have several labels, and a relation may be between spans that are no
        entities.
    """

    inline = True
    framed = True
    schema = False

    @abstractmethod
    def __init__(self, processor: Any, subwords: Subwords, limits: ModelLimits, *, relations: bool) -> None: ...

    @staticmethod
    def markers(processor: Any, *, relations: bool) -> set[int]:
        """Tokens that the model reserves."""
        config = processor.config
        return {config.class_token_index, *([config.rel_token_index] if relations else [])}

    @abstractmethod
    def prompt(self, item: ExtractionItem) -> Prompt:
        """The item's labels and relations as a prompt. Raises InvalidField for a name that the model cannot encode."""

    @abstractmethod
    def tokens_of(self, name: str, description: str, param: str) -> int:
        """Tokens that a label or relation takes in a prompt, its marker included. Raises InvalidField (`param`)."""

    def after(self, text: str, words: Words) -> Words:
        """Words that the model reads after these words of the text."""
        return NO_WORDS


class InlineLabels(Prompts):
    """Labels and relations in the prompt, each behind its marker."""

    def __init__(self, processor: Any, subwords: Subwords, limits: ModelLimits, *, relations: bool) -> None:
        self._processor = processor
        self._subwords = subwords
        self._max_tokens = limits.tokens
        self._relations = relations
        self._config = config = processor.config
        subwords.check_marker(config.ent_token, "class_token_index", config.class_token_index)
        if relations:
            subwords.check_marker(config.rel_token, "rel_token_index", config.rel_token_index)
        self._cached = lru_cache(maxsize=CACHED_PROMPTS)(self._build)

    def prompt(self, item: ExtractionItem) -> Prompt:
        labels, relations = tuple(item.labels.values()), tuple(item.relations.values())
        if 2 * (len(labels) + len(relations)) >= self._max_tokens:  # at least a marker and a token each
            return NO_ROOM
        try:
            return self._cached(labels, relations)
        except PromptTooLong:
            return NO_ROOM

    def tokens_of(self, name: str, description: str, param: str) -> int:
        return 1 + len(self._ids(description, param))

    def _build(self, labels: tuple[str, ...], relations: tuple[str, ...]) -> Prompt:
        tokens = 0
        for param, descriptions in (("labels", labels), ("relations", relations)):
            for description in descriptions:
                tokens += 1 + len(self._ids(description, param))
                if tokens > self._max_tokens:
                    raise PromptTooLong  # an exception, so that the cache does not keep it
        options = {"relations": [list(relations)]} if self._relations else {}
        prompts, _ = self._processor.prepare_inputs([[]], [list(labels)], **options)
        token_ids = self._subwords.ids(prompts[0])
        room = self._subwords.room(token_ids)
        if room < 1:
            raise PromptTooLong
        ids, config = token_array((*self._subwords.prefix, *token_ids)), self._config
        # The embedding of a label or relation is that of its marker, or of the token after the marker.
        label_positions = np.flatnonzero(ids == config.class_token_index) + int(not config.embed_ent_token)
        relation_positions = no_positions()
        if self._relations:
            relation_positions = np.flatnonzero(ids == config.rel_token_index) + int(not config.embed_rel_token)
        suffix = token_array(self._subwords.suffix)
        return Prompt(ids, (), room, label_positions, relation_positions, suffix=suffix)

    def _ids(self, description: str, param: str) -> tuple[int, ...]:
        check_unicode((description,), param)
        ids = self._subwords.ids([description])
        self._subwords.check_name(ids, description, param)
        return ids


class SeparateLabels(Prompts):
    """A separate sequence for each label; no relations."""

    inline = False

    def __init__(self, processor: Any, subwords: Subwords, limits: ModelLimits, *, relations: bool) -> None:
        assert not relations
        self._subwords = subwords
        self._tokenizer = unpadded(processor.labels_tokenizer)
        self._prefix, self._suffix = token_array(subwords.prefix), token_array(subwords.suffix)
        self._max_tokens = limits.label_tokens
        self._cached = lru_cache(maxsize=CACHED_PROMPTS)(self._encode)

    def prompt(self, item: ExtractionItem) -> Prompt:
        labels = tuple(map(self._cached, item.labels.values()))
        return Prompt(self._prefix, labels, self._subwords.room(()), suffix=self._suffix)

    def tokens_of(self, name: str, description: str, param: str) -> int:
        """0: a separate label takes no tokens of the prompt. See `Prompts`."""
        self._cached(description)
        return 0

    def _encode(self, label: str) -> tuple[int, ...]:
        check_unicode((label,), "labels")
        self._subwords.check_name(self._tokenizer.encode(label, add_special_tokens=False).ids, label, "labels")
        ids = tuple(self._tokenizer.encode(label).ids)
        if len(ids) > self._max_tokens:
            raise InvalidField(
                f"labels: {shortened(label)} has {len(ids)} tokens; the maximum length of a label is "
                f"{self._max_tokens} tokens",
                param="labels",
            )
        return ids


class PromptTooLong(Exception):
    """A prompt leaves no token for a text."""
