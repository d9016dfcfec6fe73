"""Plans the passes of an item: words per window, groups of labels, cost.

If an item takes several passes, a group of labels has at most half as many tokens as the model's maximum length. If the
item has relations, a group of labels, or of relations, has at most a quarter. An item that fits one pass has no such
limit. The names of classifications and structures are not divided: one pass of each window has them all.

Every plan leaves each window at least a few tokens (`PassPlanner.groups`), so that all of the text is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gliner_bento.engine.base import AdapterLease, Prepared, Steps
from gliner_bento.engine.text.label_groups import grouped
from gliner_bento.engine.text.prompts import Prompt
from gliner_bento.engine.text.relation_windows import RelationWindows
from gliner_bento.engine.text.subwords import shortened
from gliner_bento.engine.text.tokenize import ItemTokenizer, Tokenized
from gliner_bento.errors import InvalidField
from gliner_bento.tasks.extraction import OPTIONAL_PARTS
from gliner_bento.tasks.extraction import ExtractionItem as Item

Names = tuple[str, ...]

# The unit of cost is a token of a short text (measured on a CPU). Attention, which grows with the square of the length,
# doubles the cost of a text of `_DOUBLE_COST_TOKENS` tokens. `_SCORES_PER_TOKEN` pairs of a word and a label cost 1.
_DOUBLE_COST_TOKENS = 200
_SCORES_PER_TOKEN = 2500

_NAMES_PER_STEP = 16

# The default overlap is at most the words of a window divided by this.
_DEFAULT_OVERLAP_DIVISOR = 4

# An item of several passes leaves at least so many tokens for its windows: a single character may have more than one
# token, and a window costs as much as its prompt. A model of a very short maximum length: a quarter of it.
_MIN_ROOM = 16


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Limits of one pass. words: maximum number of words. max_labels: maximum number of labels, and of relations; None:
    no limit.

    window_words, window_overlap_words, relation_windows: defaults for requests.
    """

    words: int
    window_words: int
    window_overlap_words: int
    max_labels: int | None
    relation_windows: RelationWindows | None


@dataclass(frozen=True, slots=True)
class Groups:
    """The labels and relations of the passes over a window, by name.

    labels: the labels of each entity pass.
    relations: the relations of each relation pass; empty if the entity passes score the relations.
    prompted: relations in the prompt of the entity passes; these scores are used in windows without relation passes.
    tokens: the number of tokens of each label.
    half_labels, half_tokens: if one relation pass cannot take all labels, each pass takes two sets of them (see
        `chunked`). These are the maximum numbers of labels, and of their tokens, in one set.
    room: tokens that every pass leaves for its window.
    """

    labels: Sequence[Names]
    relations: Sequence[Names]
    prompted: Names
    tokens: Mapping[str, int]
    half_labels: int
    half_tokens: int
    room: int


class PassPlanner:
    """Plans the passes of items for one model."""

    def __init__(self, tokenizer: ItemTokenizer, limits: PassLimits) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._default_windows = self._windows(Item(""))

    def fits(self, item: Item) -> Prompt | None:
        """The prompt of an item whose labels fit one pass and leave room for text; else None."""
        max_labels = self._limits.max_labels
        if self._tokenizer.prompts.inline and max_labels and max(len(item.labels), len(item.relations)) > max_labels:
            return None
        prompt = self._tokenizer.prompts.prompt(item)
        return prompt if prompt.room else None

    def windows(self, item: Item) -> tuple[int, int]:
        """See `windows_of`."""
        is_default = item.window_words is None and item.window_overlap_words is None
        return self._default_windows if is_default else self._windows(item)

    def _windows(self, item: Item) -> tuple[int, int]:
        limits = self._limits
        return windows_of(item, limits.window_words, limits.window_overlap_words, limits.words, "words")

    def relation_windows(self, item: Item) -> RelationWindows | None:
        """See `RelationWindows.chosen`; also None for an item without relations."""
        chosen = RelationWindows.chosen(
            item.relation_window,
            item.relation_window_sentences,
            item.relation_window_overlap_sentences,
            self._limits.relation_windows,
        )
        if chosen and self._tokenizer.prompts.schema:
            raise InvalidField("relation_window: this model supports only `whole`", param="relation_window")
        return chosen if item.relations else None

    def one_group(self, item: Item, room: int, *, divided: bool) -> Groups:
        """The groups of an item whose names fit one pass. divided: relations have passes of their own."""
        names = tuple(item.relations)
        relations = [names] if divided else []
        return Groups([tuple(item.labels)], relations, names, tokens={}, half_labels=0, half_tokens=0, room=room)

    def tokenize_labels(self, item: Item) -> Steps[None]:
        """Tokenize labels that are sequences of their own, in steps; `prompt` then finds them in its cache."""
        if not self._tokenizer.prompts.inline:
            yield from self._tokens(item.labels, "labels", self._tokenizer.limits.tokens)

    def groups(self, item: Item, *, divided: bool) -> Steps[Groups]:
        """Group the names of an item of several passes. Raises InvalidField (the option's name) for a long name, and
        for names that leave no tokens for the text."""
        groups = yield from self._groups(item, divided=divided)
        if groups.room < max(1, min(_MIN_ROOM, self._tokenizer.limits.tokens // 4)):
            raise self.no_room(item)
        return groups

    def no_room(self, item: Item) -> InvalidField:
        """The error for an item whose names leave no tokens for the text. Names the option that is too long."""
        abilities = item.abilities
        params = [part.option for part in OPTIONAL_PARTS if part.option in abilities] or list(abilities)
        alone: dict[str, dict[str, Any]] = {
            param: {other: {} for other in abilities if other != param} for param in params
        }
        rooms = {param: self._tokenizer.prompts.prompt(replace(item, **alone[param])).room for param in params}
        param = min(rooms, key=rooms.__getitem__)
        names = "labels" if param == "classifications" else "fields and choices" if param == "structures" else "names"
        return InvalidField(
            f"{param}: the {names} leave no tokens for the text (the model's maximum length is "
            f"{self._tokenizer.limits.tokens} tokens); use fewer or shorter ones",
            param=param,
        )

    def _groups(self, item: Item, *, divided: bool) -> Steps[Groups]:
        if not self._tokenizer.prompts.inline:
            return self.one_group(item, self._room(item, tuple(item.labels)), divided=False)
        share = self._tokenizer.limits.tokens // (4 if item.relations else 2)
        tokens = yield from self._tokens(item.labels, "labels", share)
        labels = self._grouped(tokens, share) or [()]
        relation_tokens = yield from self._tokens(item.relations, "relations", share)
        relations = self._grouped(relation_tokens, share)
        if len(labels) == 1 and len(relations) <= 1:  # in the request's order, as in a text that fits one pass
            return self.one_group(item, self._room(item, tuple(item.labels), tuple(item.relations)), divided=divided)
        half_labels = max(1, (self._limits.max_labels or len(tokens)) // 2)
        half_tokens = max([share // 2, *tokens.values()])
        room = self._tokenizer.limits.tokens
        for number, group in enumerate(labels):
            room = min(room, self._room(item, group, rest=number == 0))
            yield
        longest: Names = ()  # of the labels in the prompt of a relation pass
        excess = 0
        if not self._tokenizer.prompts.schema:
            longest = max(labels, key=lambda group: sum(tokens[name] for name in group))
            # The labels of a relation pass, two sets, may have more tokens than those of the longest entity pass.
            excess = max(0, 2 * half_tokens - sum(tokens[name] for name in longest))
        for group in relations:
            room = min(room, self._room(item, longest, group, rest=False) - excess)
            yield
        return Groups(labels, relations, (), tokens, half_labels, half_tokens, room)

    def _tokens(self, names: Mapping[str, str], param: str, limit: int) -> Steps[dict[str, int]]:
        """The number of tokens of each name, at most `limit`. Raises InvalidField (`param`)."""
        tokens: dict[str, int] = {}
        for name, description in names.items():
            tokens[name] = count = self._tokenizer.prompts.tokens_of(name, description, param)
            if count > limit:
                raise InvalidField(
                    f"{param}: {shortened(name)} has {count} tokens; the limit in a request of several passes is "
                    f"{limit} (the model's maximum length is {self._tokenizer.limits.tokens} tokens)",
                    param=param,
                )
            if len(tokens) % _NAMES_PER_STEP == 0:
                yield
        return tokens

    def _grouped(self, tokens: Mapping[str, int], share: int) -> list[Names]:
        return grouped(tokens, max_labels=self._limits.max_labels or len(tokens), max_tokens=share) if tokens else []

    def _room(self, item: Item, labels: Names, relations: Names = (), *, rest: bool = True) -> int:
        return self._tokenizer.prompts.prompt(part_of(item, labels, relations, rest=rest)).room


def windows_of(item: Item, words: int, overlap_words: int, limit: int, unit: str) -> tuple[int, int]:
    """Numbers of words of a window and of an overlap.

    words, overlap_words: defaults. limit: the model's maximum, in `unit`.

    Raises InvalidField (`window_words`, `window_overlap_words`)."""
    window, overlap = item.window_words or words, item.window_overlap_words
    if window > limit:
        message = f"window_words: {window}; the model's maximum length is {limit} {unit}"
        raise InvalidField(message, param="window_words")
    if overlap is None:
        return window, min(overlap_words, window // _DEFAULT_OVERLAP_DIVISOR)
    if overlap >= window:
        message = f"window_overlap_words: {overlap} must be less than window_words, {window}"
        raise InvalidField(message, param="window_overlap_words")
    return window, overlap


def part_of(item: Item, labels: Names, relations: Names, *, rest: bool = True) -> Item:
    """The item with only these labels and relations. rest: also with its other parts."""
    others: dict[str, Any] = {} if rest else {part.option: {} for part in OPTIONAL_PARTS}
    return replace(
        item,
        labels={name: item.labels[name] for name in labels},
        relations={name: item.relations[name] for name in relations},
        relation_heads={},  # applied after merging, because another window may give a span another label
        relation_tails={},
        **others,
    )


def one_pass(
    item: Item,
    tokenized: Tokenized,
    lease: AdapterLease | None = None,
    *,
    truncated_at: int | None = None,
    is_pass: bool = False,
) -> Prepared:
    """One pass over `tokenized`, with its cost. is_pass: it is a pass of a chunked request, not the whole item."""
    tokens, words = tokenized.tokens, len(tokenized.read)
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
    """The cost of a pass, in tokens of a short text. The number of scored spans is proportional to words."""
    return tokens + tokens * tokens // _DOUBLE_COST_TOKENS + words * labels // _SCORES_PER_TOKEN
