"""The chunked request: a text longer than the model's maximum length, more labels than one pass takes, or relations
that are scored in parts of a text.

    text ──▶ windows ─┬─▶ an entity pass per label group ─▶ entities ─┬─▶ the window's results ──▶ Merger
                      └── relation passes between the entities ◀──────┘

- With one group of labels and at most one of relations, one pass over a window predicts both.
- If relations are scored in parts of a window (`relation_windows`), each part with two entities has a relation pass.
- With several groups, related entities can have labels of different groups, so relations have passes of their own: one
  for each group of relations, whose prompt has the labels of the window's entities. If these labels are too many for
  one pass, they are split into sets of half a pass's size, and each pair of sets has its passes.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, product, starmap
from typing import Any

import numpy as np

from gliner_bento.engine.base import AdapterLease, Prepared
from gliner_bento.engine.heads.predictions import SpanTable
from gliner_bento.engine.heads.typed_relations import AllowedEnds
from gliner_bento.engine.limits import MAX_CANDIDATES, too_many, too_many_candidates, warning_of
from gliner_bento.engine.results import EntityTable, PassResult, with_arguments
from gliner_bento.engine.text.label_groups import grouped
from gliner_bento.engine.text.merge import Merger, RelationKey, add_relations, best_relations
from gliner_bento.engine.text.passes import Groups, Names, one_pass, part_of
from gliner_bento.engine.text.relation_windows import RelationWindows
from gliner_bento.engine.text.tokenize import ItemTokenizer
from gliner_bento.engine.text.windows import Cutter, Window
from gliner_bento.engine.text.words import Words
from gliner_bento.tasks.base import Usage
from gliner_bento.tasks.extraction import PARTS, Entity, Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

# Maximum number of passes that one call of `next_passes` makes: with many labels and relations a window has thousands.
_PASSES_PER_CALL = 8
# About how many characters of a long word one step tokenizes.
_STEP_CHARS = 10_000

_Part = tuple[Words, Names, EntityTable | None]
"""The input of relation passes: words, the labels in the prompt, the entities in the words (None: not needed)."""


@dataclass(slots=True)
class _OpenWindow:
    """A window with unfinished passes.

    missing: number of passes without a result. relations: best scores so far; None until the entity passes are done.
    """

    window: Window
    missing: int
    entity_passes: list[PassResult] = field(default_factory=list)
    relations: dict[RelationKey, float] | None = None

    def add(self, item: Item, result: PassResult) -> None:
        """Add the result of a pass. Raises LimitExceeded."""
        self.missing -= 1
        if self.relations is None:
            self.entity_passes.append(result)
            candidates = sum(len(added.entities) + len(added.suppressed) for added in self.entity_passes)
            if candidates > MAX_CANDIDATES:
                raise too_many_candidates(candidates)
            return
        add_relations(self.relations, result)
        if len(self.relations) > 2 * item.max_relations:
            self.relations = best_relations(item, self.relations)


class PassQueue(ABC):
    """Makes the passes of an item's windows on demand. Base class of `ChunkedRequest`s.

    windows: the item's windows in order, a few at a time.
    """

    def __init__(self, windows: Iterator[Sequence[Any]]) -> None:
        self._lock = threading.Lock()  # protects all state, of derived classes too
        self._new_windows: Iterator[Sequence[Any]] | None = windows  # None: all are open or done
        self._to_make: deque[Iterator[Prepared]] = deque()  # passes of one window each
        self._open: dict[int, Any] = {}  # the window of each pass without a result, by `id(pass)`

    @abstractmethod
    def _begin(self, window: Any) -> Iterator[Prepared]:
        """A window's first passes, as `_passes` yields them."""

    def _passes(self, window: Any, passes: Iterable[Prepared]) -> Iterator[Prepared]:
        """Yield these passes of a window, and note each as open."""
        for prepared in passes:
            self._open[id(prepared)] = window
            yield prepared

    def next_passes(self) -> Sequence[Prepared]:
        """See `ChunkedRequest`. All passes of one call belong to the same window."""
        with self._lock:
            if not self._to_make and self._new_windows:
                windows = next(self._new_windows, None)
                if windows is None:
                    self._new_windows = None
                else:
                    self._to_make.extend(map(self._begin, windows))
            while self._to_make:
                if passes := list(islice(self._to_make[0], _PASSES_PER_CALL)):
                    return passes
                self._to_make.popleft()
            return ()

    @property
    def exhausted(self) -> bool:
        return self._new_windows is None and not self._to_make

    @property
    def done(self) -> bool:
        with self._lock:
            return self.exhausted and not self._open


class WindowedRequest(PassQueue):
    """A `ChunkedRequest` for entities and relations. Holds the text, the open windows, and the merged result.

    truncated_at: the character behind the last window, if the rest of the text is left out.
    """

    def __init__(
        self,
        item: Item,
        tokenizer: ItemTokenizer,
        groups: Groups,
        windows: Iterator[Sequence[Window]],
        relation_windows: RelationWindows | None,
        lease: AdapterLease | None,
        *,
        truncated_at: int | None = None,
    ) -> None:
        super().__init__(windows)
        self._item = item
        self._tokenizer = tokenizer
        self._groups = groups
        self._relation_windows = relation_windows
        self._allowed = AllowedEnds.of(item)
        self._lease = lease
        label_order = list(groups.labels[0]) if len(groups.labels) == 1 else sorted(item.labels)
        self._merger = Merger(item, label_order, schema=tokenizer.prompts.schema)
        self._truncated_at = truncated_at
        self._merged = [(part, part.windows()) for part in PARTS if part.windows]
        self._windows = self._words = self._tokens = self._ended_passes = 0  # counters for `usage`

    def add(self, prepared: Prepared, result: PassResult) -> Sequence[Entity]:
        """See `ChunkedRequest`. The time is proportional to the window, not to the text."""
        with self._lock:
            opened: _OpenWindow = self._open.pop(id(prepared))
            self._tokens += result.tokens
            for part, windows in self._merged:
                windows.add(opened.window.number, result.parts.get(part.result, {}))
            self._ended_passes += 1
            opened.add(self._item, result)
            if result.cut and opened.relations is not None:
                self._merger.cut.add("max_relations")
            if opened.missing:
                return ()
            if opened.relations is None:
                opened.relations = {}
                parts = self._parts(opened)
                if parts:
                    opened.missing = len(parts) * len(self._groups.relations)
                    inputs = product(parts, self._groups.relations)
                    self._to_make.appendleft(self._passes(opened, starmap(self._relation_pass, inputs)))
                    return ()
                if parts is None:
                    for entity_pass in opened.entity_passes:
                        self._add_relations_of(entity_pass, opened.relations)
            return self._merger.add(opened.window, opened.entity_passes, opened.relations)

    def result(self) -> Extraction:
        entities = list(self._merger.entities)
        found, ends = self._merger.relations()
        relations = with_arguments(found, entities, self._item.text, ends)
        return Extraction(
            entities=entities,
            relations=relations,
            **{part.result: windows.results(getattr(self._item, part.option)) for part, windows in self._merged},
            warnings=[warning_of(limit) for limit in sorted(self._merger.cut)],
            truncated=self._truncated_at is not None,
            truncated_at=self._truncated_at,
            usage=Usage(
                words=self._words,
                tokens=self._tokens,
                windows=self._windows,
                passes=self._ended_passes,
                label_groups=len(self._groups.labels),
                relation_groups=len(self._groups.relations) or int(bool(self._item.relations)),
            ),
        )

    def _begin(self, window: Window) -> Iterator[Prepared]:
        """A window's first passes."""
        self._windows += 1
        self._words += len(window.words) - window.repeated
        labels = self._groups.labels
        prompted = self._groups.prompted
        items = (part_of(self._item, group, prompted, rest=number == 0) for number, group in enumerate(labels))
        if self._groups.relations:  # `_parts` may discard relations of entity passes, so too many are no error yet
            items = (replace(item, on_limit="truncate") for item in items)
        passes = (self._pass(item, window.words) for item in items)
        return self._passes(_OpenWindow(window, len(labels)), passes)

    def _add_relations_of(self, result: PassResult, relations: dict[RelationKey, float]) -> None:
        """Add the relations that an entity pass predicted to `relations`. Raises LimitExceeded."""
        if result.cut and self._item.on_limit == "error":
            raise too_many(self._item, "max_relations")
        if result.cut:
            self._merger.cut.add("max_relations")
        add_relations(relations, result)

    def _parts(self, opened: _OpenWindow) -> list[_Part] | None:
        """The parts of a window that have relation passes; None if its entity passes predict the relations."""
        if not self._groups.relations:
            return None
        names, words = tuple(self._item.labels), opened.window.words
        if self._tokenizer.prompts.schema:  # relations need no entities
            return [(words, (), None)]
        entities = EntityTable.joined(self._item.text, names, (done.entities for done in opened.entity_passes))
        entities = entities.take(np.lexsort((entities.end, entities.start)))
        ranges = [(0, len(words))]
        if self._relation_windows:
            spans = np.stack([entities.start, entities.end])
            ranges = self._relation_windows.parts(self._item.text, words, spans)
        if self._groups.prompted and ranges == [(0, len(words))]:
            return None
        parts: list[_Part] = []
        for start, end in ranges:
            part = words[start:end]
            inside = entities.take((entities.start >= part.start) & (entities.end <= part.end))
            parts += [(part, labels, inside) for labels in self._label_sets(inside)]
        return parts

    def _label_sets(self, entities: EntityTable) -> list[Names]:
        """The labels of each relation pass over a part with these entities; no pass if there can be no relation."""
        numbers = np.unique(entities.label)
        spans = {(start, end) for start, end in zip(entities.start.tolist(), entities.end.tolist(), strict=True)}
        if len(spans) < 2 or (self._allowed and not self._allowed.pairs(numbers).any()):
            return []
        if len(self._groups.labels) == 1 and self._groups.prompted:
            return [tuple(self._item.labels)]
        labels = [entities.names[number] for number in numbers.tolist()]
        label_tokens = {label: self._groups.tokens[label] for label in labels}
        half_labels, half_tokens = self._groups.half_labels, self._groups.half_tokens
        label_sets = grouped(label_tokens, max_labels=2 * half_labels, max_tokens=2 * half_tokens)
        if len(label_sets) > 1:
            halves = grouped(label_tokens, max_labels=half_labels, max_tokens=half_tokens)
            label_sets = [tuple(sorted(first + second)) for first, second in combinations(halves, 2)]
        return label_sets

    def _relation_pass(self, part: _Part, relations: Names) -> Prepared:
        """A relation pass over a part: between its entities that have a label in the prompt, or any spans (GLiNER2)."""
        words, labels, entities = part
        item = part_of(self._item, labels, relations, rest=False)
        if entities is None:
            return self._pass(item, words)
        label_number = np.array([labels.index(name) if name in labels else -1 for name in entities.names], np.int64)
        label = label_number[entities.label]
        first, last = words.bounds[:, 0].searchsorted(entities.start), words.bounds[:, 1].searchsorted(entities.end)
        return self._pass(item, words, SpanTable(first, last, label, entities.score).take(label >= 0))

    def _pass(self, item: Item, words: Words, entities: SpanTable | None = None) -> Prepared:
        """A pass over `words`. entities: see `Tokenized`."""
        prompt = self._tokenizer.prompts.prompt(item)
        if prompt.room < len(words.token_ids):  # the plan is wrong: without this check, the answer would be
            raise RuntimeError(f"a pass has room for {prompt.room} tokens, its words have {len(words.token_ids)}")
        tokenized = self._tokenizer.tokenized(item.text, words, prompt)
        return one_pass(item, replace(tokenized, entities=entities), self._lease, is_pass=True)


def one_window(words: Words) -> Iterator[Sequence[Window]]:
    """A text as a single window; no window if it has no words."""
    return iter([[Window(0, words)] if words else []])


def cut_text(
    tokenizer: ItemTokenizer, text: str, room: int, *, window_words: int, overlap_words: int
) -> Iterator[Sequence[Window]]:
    """Cut a text. Reads a chunk of words at a time, and yields the windows that end in it. room: tokens of a window."""
    cutter = Cutter(text, max_words=window_words, max_tokens=room, overlap_words=overlap_words)
    for chunk in tokenizer.chunks(text):
        for words in _fitting(tokenizer, text, chunk, window_words, room):
            yield list(cutter.push(words))
    yield list(cutter.close())


def _fitting(tokenizer: ItemTokenizer, text: str, words: Words, window_words: int, room: int) -> Iterator[Words]:
    """The words, at most a window at a time; a word with more tokens than a window is split."""
    while words:
        fit = words.fitting(window_words, room)
        yield from [words[:fit]] if fit else _pieces(tokenizer, text, words[:1], window_words, room)
        words = words[fit or 1 :]


def _pieces(tokenizer: ItemTokenizer, text: str, word: Words, window_words: int, room: int) -> Iterator[Words]:
    """The pieces of a long word, about a window's tokens at a time."""
    pieces: list[Words] = []
    tokens = 0
    max_pieces = max(1, min(window_words, _STEP_CHARS // room))  # a piece has at most `room` characters
    for piece in tokenizer.pieces(text, word.start, word.end, room):
        pieces.append(piece)
        tokens += len(piece.token_ids)
        if len(pieces) == max_pieces or tokens > room:
            yield Words.joined(pieces)
            pieces, tokens = [], 0
    yield Words.joined(pieces)
