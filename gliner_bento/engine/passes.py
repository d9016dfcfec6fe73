"""What the model reads in one pass: how much of a text, which labels together, and what it costs.

A prompt takes no more than half of the tokens that the model reads, a quarter each for labels and relations, wherever
an item takes several passes; one that fits a single pass may use them as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gliner_bento.engine.base import AdapterLease, Prepared
from gliner_bento.engine.label_groups import grouped
from gliner_bento.engine.tokenize import ItemTokenizer, Prompt, Tokenized, shortened
from gliner_bento.errors import InvalidField
from gliner_bento.types import Item

Names = tuple[str, ...]

# What an item costs beside its tokens, in tokens of a short text, as measured on a CPU: attention grows with the
# square of a row's length, scores with its words times its labels.
_TOKENS_OF_DOUBLE_COST = 200
_SCORES_OF_A_TOKEN = 2500

# An overlap that nobody asked for takes no more of a window.
_LEAST_WINDOW_OF_OVERLAP = 4


@dataclass(frozen=True, slots=True)
class PassLimits:
    """What a pass takes at most. words: of a text. max_labels: of labels, and as many relations; None: all there are.
    window_words, window_overlap_words: the settings, where a request names none."""

    words: int
    window_words: int
    window_overlap_words: int
    max_labels: int | None


@dataclass(frozen=True, slots=True)
class Groups:
    """What the passes over a window ask for, by name.

    labels: of each pass for entities. relations: of each pass for relations; empty where the first pass finds both.
    tokens: of each label. half: what half of the labels of a pass for relations may be, in names and in tokens.
    room: tokens that every pass leaves for its window.
    """

    labels: Sequence[Names]
    relations: Sequence[Names]
    tokens: Mapping[str, int]
    half: tuple[int, int]
    room: int


class PassPlanner:
    """Knows one model's limits."""

    def __init__(self, tokenizer: ItemTokenizer, limits: PassLimits) -> None:
        self._tokenizer = tokenizer
        self._limits = limits

    def fits(self, item: Item) -> Prompt | None:
        """The prompt of an item whose labels go into one pass, with room for a text; None: they do not."""
        most = self._limits.max_labels
        if self._tokenizer.reads_labels and most and max(len(item.labels), len(item.relations)) > most:
            return None
        prompt = self._tokenizer.prompt(tuple(item.labels.values()), tuple(item.relations.values()))
        return prompt if prompt.room else None

    def windows(self, item: Item) -> tuple[int, int]:
        """Words of a window, and of what two share. Raises InvalidField (`window_words`, `window_overlap_words`)."""
        window = item.window_words or self._limits.window_words
        if window > self._limits.words:
            most = self._limits.words
            raise InvalidField(f"window_words: {window}; the model reads {most} at once", param="window_words")
        overlap = item.window_overlap_words
        if overlap is None:
            return window, min(self._limits.window_overlap_words, window // _LEAST_WINDOW_OF_OVERLAP)
        if overlap >= window:
            raise InvalidField(
                f"window_overlap_words: {overlap} of a window's {window} words", param="window_overlap_words"
            )
        return window, overlap

    def groups(self, item: Item) -> Groups:
        """For an item that takes several passes. Raises InvalidField (`labels`, `relations`) for a name too long."""
        if not self._tokenizer.reads_labels:
            return Groups([tuple(item.labels)], [], {}, (0, 0), self._room(item, tuple(item.labels)))
        share = self._tokenizer.limits.tokens // (4 if item.relations else 2)
        tokens = self._tokens(item.labels, "labels", share)
        labels = self._grouped(tokens, share)
        relations = self._grouped(self._tokens(item.relations, "relations", share), share)
        if len(labels) == 1 and len(relations) <= 1:  # in the caller's order, as in a text that fits
            return Groups(
                [tuple(item.labels)], [], tokens, (0, 0), self._room(item, tuple(item.labels), tuple(item.relations))
            )
        half = (self._limits.max_labels or len(tokens)) // 2 or 1, max(share // 2, *tokens.values())
        longest = max(labels, key=lambda group: sum(tokens[name] for name in group))
        room = self._room(item, longest)
        longer = max(0, 2 * half[1] - sum(tokens[name] for name in longest))  # than those, in a pass for relations
        for group in relations:
            room = min(room, self._room(item, longest, group) - longer)
        if room < 1:
            raise InvalidField("labels: they leave no room for the text", param="labels")
        return Groups(labels, relations, tokens, half, room)

    def _tokens(self, names: Mapping[str, str], param: str, share: int) -> dict[str, int]:
        tokens = {name: self._tokenizer.tokens_of(described, param) for name, described in names.items()}
        for name, number in tokens.items():
            if number > share:
                limit = self._tokenizer.limits.tokens
                raise InvalidField(
                    f"{param}: {shortened(name)} has {number} tokens; of the {limit} that the model reads at once, "
                    f"one may have {share} where they take several passes",
                    param=param,
                )
        return tokens

    def _grouped(self, tokens: Mapping[str, int], share: int) -> list[Names]:
        return grouped(tokens, max_labels=self._limits.max_labels or len(tokens), max_tokens=share) if tokens else []

    def _room(self, item: Item, labels: Names, relations: Names = ()) -> int:
        return self._tokenizer.prompt(*descriptions(item, labels, relations)).room


def descriptions(item: Item, labels: Names, relations: Names) -> tuple[Names, Names]:
    """What the model reads for these names."""
    return tuple(item.labels[name] for name in labels), tuple(item.relations[name] for name in relations)


def one_pass(
    item: Item,
    tokenized: Tokenized,
    lease: AdapterLease | None = None,
    *,
    truncated_at: int | None = None,
    is_pass: bool = False,
) -> Prepared:
    """A pass over what of `item` is `tokenized`, measured."""
    tokens, words = len(tokenized.token_ids), len(tokenized.words)
    return Prepared(
        item,
        tokens=tokens if words else 0,
        words=words,
        truncated_at=truncated_at,
        payload=tokenized,
        cost_tokens=cost_of(tokens, words, len(item.labels)),
        adapter=lease,
        is_pass=is_pass,
    )


def cost_of(tokens: int, words: int, labels: int) -> int:
    """An item's cost, in tokens of a short text; the spans and words that are scored grow alike."""
    return tokens + tokens * tokens // _TOKENS_OF_DOUBLE_COST + words * labels // _SCORES_OF_A_TOKEN
