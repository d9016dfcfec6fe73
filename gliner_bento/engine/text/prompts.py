"""Where a model's labels go: into the prompt before the text (uni-encoders), or into sequences of their own.

    prefix │ [ENT] label [ENT] label [SEP] │ text words … │ suffix          InlineLabels
    prefix │ text words … │ suffix       and one sequence per label         SeparateLabels

Prompts are built by gliner's own processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from gliner_bento.engine.text.subwords import ModelLimits, Subwords, check_unicode, shortened, unpadded
from gliner_bento.engine.text.words import TokenIds, token_array
from gliner_bento.errors import InvalidField

_CACHED_PROMPTS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What a pass holds beside its text.

    token_ids: before the text, with inline labels. labels: the token ids of each separate label.
    room: tokens left for the text; less than 1 if the labels do not fit.
    """

    token_ids: TokenIds
    labels: tuple[tuple[int, ...], ...]
    room: int


_NO_TOKENS = token_array()
_NO_ROOM = Prompt(_NO_TOKENS, (), 0)


class Prompts(Protocol):
    """Encodes labels and relations. Thread-safe.

    inline: whether they share the maximum length with the text.
    """

    inline: bool

    def __init__(self, processor: Any, subwords: Subwords, limits: ModelLimits, *, relations: bool) -> None: ...

    def prompt(self, labels: Sequence[str], relations: Sequence[str]) -> Prompt:
        """Encode these descriptions. Raises InvalidField (`labels`, `relations`) for what the model cannot encode."""

    def tokens_of(self, name: str, param: str) -> int:
        """Tokens that a label or relation takes in a prompt, its marker included. Raises InvalidField (`param`)."""


class InlineLabels:
    """See `Prompts`."""

    inline = True

    def __init__(self, processor: Any, subwords: Subwords, limits: ModelLimits, *, relations: bool) -> None:
        self._processor = processor
        self._subwords = subwords
        self._max_tokens = limits.tokens
        self._relations = relations
        config = processor.config
        subwords.check_marker(config.ent_token, "class_token_index", config.class_token_index)
        if relations:
            subwords.check_marker(config.rel_token, "rel_token_index", config.rel_token_index)
        self._cached = lru_cache(maxsize=_CACHED_PROMPTS)(self._build)

    def prompt(self, labels: Sequence[str], relations: Sequence[str]) -> Prompt:
        """See `Prompts`."""
        check_unicode(labels, "labels")
        check_unicode(relations, "relations")
        if 2 * (len(labels) + len(relations)) >= self._max_tokens:  # at least a marker and a token each
            return _NO_ROOM
        try:
            return self._cached(tuple(labels), tuple(relations))
        except _DoesNotFit:
            return _NO_ROOM

    def tokens_of(self, name: str, param: str) -> int:
        """See `Prompts`."""
        check_unicode((name,), param)
        return 1 + len(self._ids(name, param))

    def _build(self, labels: tuple[str, ...], relations: tuple[str, ...]) -> Prompt:
        tokens = 0
        for param, names in (("labels", labels), ("relations", relations)):
            for name in names:
                tokens += 1 + len(self._ids(name, param))
                if tokens > self._max_tokens:
                    raise _DoesNotFit  # an exception, so that the cache does not keep it
        more = {"relations": [list(relations)]} if self._relations else {}
        prompts, _ = self._processor.prepare_inputs([[]], [list(labels)], **more)
        token_ids = self._subwords.ids(prompts[0])
        room = self._subwords.room(token_ids)
        if room < 1:
            raise _DoesNotFit
        return Prompt(token_array(token_ids), (), room)

    def _ids(self, name: str, param: str) -> tuple[int, ...]:
        ids = self._subwords.ids([name])
        self._subwords.check_name(ids, name, param)
        return ids


class SeparateLabels:
    """See `Prompts`."""

    inline = False

    def __init__(self, processor: Any, subwords: Subwords, limits: ModelLimits, *, relations: bool) -> None:
        assert not relations
        self._subwords = subwords
        self._tokenizer = unpadded(processor.labels_tokenizer)
        self._max_tokens = limits.label_tokens
        self._cached = lru_cache(maxsize=_CACHED_PROMPTS)(self._encode)

    def prompt(self, labels: Sequence[str], relations: Sequence[str]) -> Prompt:
        """See `Prompts`."""
        check_unicode(labels, "labels")
        check_unicode(relations, "relations")
        return Prompt(_NO_TOKENS, tuple(map(self._cached, labels)), self._subwords.room(()))

    def tokens_of(self, name: str, param: str) -> int:
        """See `Prompts`: they take none."""
        check_unicode((name,), param)
        self._cached(name)
        return 0

    def _encode(self, label: str) -> tuple[int, ...]:
        self._subwords.check_name(self._tokenizer.encode(label, add_special_tokens=False).ids, label, "labels")
        ids = tuple(self._tokenizer.encode(label).ids)
        if len(ids) > self._max_tokens:
            raise InvalidField(
                f"labels: {shortened(label)} has {len(ids)} tokens; the maximum length of a label is "
                f"{self._max_tokens} tokens",
                param="labels",
            )
        return ids


class _DoesNotFit(Exception):
    """A prompt leaves no token for a text."""
