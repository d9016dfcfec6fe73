"""The chunked request: a text longer than the model's maximum length, or more labels than one pass takes.

    text ──▶ windows ─┬─▶ an entity pass per label group ─▶ entities ─┬─▶ the window's results ──▶ Merger
                      └── several groups: relation passes ◀───────────┘

With one group of labels (and one of relations) a window is one pass, for both. With several, related entities can have
labels of different groups, so relations get passes of their own, over the labels of the window's entities: one pass for
each group of relations. If these labels are too many for one pass, they are split into sets of half a pass's size, and
every pair of sets gets its passes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, product

import numpy as np

from gliner_bento.engine.base import AdapterLease, Prepared
from gliner_bento.engine.limits import MAX_CANDIDATES, too_many_candidates, warning_of
from gliner_bento.engine.results import PassResult, with_arguments
from gliner_bento.engine.text.label_groups import grouped
from gliner_bento.engine.text.merge import Merger, RelationKey, add_relations, best_relations
from gliner_bento.engine.text.passes import Groups, Names, one_pass, part_of
from gliner_bento.engine.text.tokenize import ItemTokenizer
from gliner_bento.engine.text.windows import Cutter, Window
from gliner_bento.engine.text.words import Words
from gliner_bento.tasks.classifications import WindowScores
from gliner_bento.tasks.structures import WindowInstances
from gliner_bento.types import Entity, Extraction, Item, Usage

# Passes that one call makes: with many labels and relations a window has thousands.
_PASSES_AT_ONCE = 8
# The pieces of a long word that one call reads, in characters.
_STEP_CHARS = 10_000


@dataclass(slots=True)
class _OpenWindow:
    """A window with unfinished passes.

    missing: number of passes without a result. relations: of its passes so far; None until its entity passes are done.
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
            candidates = sum(len(one.entities) + len(one.suppressed) for one in self.entity_passes)
            if candidates > MAX_CANDIDATES:
                raise too_many_candidates(candidates)
            return
        add_relations(self.relations, result)
        if len(self.relations) > 2 * item.max_relations:
            self.relations = best_relations(item, self.relations)


class WindowedRequest:
    """A `ChunkedRequest`. Holds the text, the open windows, and the merged result."""

    def __init__(self, item: Item, tokenizer: ItemTokenizer, groups: Groups, lease: AdapterLease | None) -> None:
        self._item = item
        self._tokenizer = tokenizer
        self._groups = groups
        self._lease = lease
        self._lock = threading.Lock()
        in_order = list(groups.labels[0]) if len(groups.labels) == 1 else sorted(item.labels)
        self._merger = Merger(item, in_order, schema=tokenizer.prompts.schema)
        self._windows_to_come: Iterator[Sequence[Window]] | None = None
        self._to_make: deque[Iterator[Prepared]] = deque()  # passes of one window each, those for relations first
        self._open: dict[int, _OpenWindow] = {}  # by the id of a pass
        self._truncated_at: int | None = None
        self._classes, self._instances = WindowScores(), WindowInstances()
        self._windows = self._words = self._tokens = 0  # counters for `usage`

    def process_windows(self, window_words: int, overlap_words: int) -> None:
        """Process the whole text."""
        self._windows_to_come = self._cut(window_words, overlap_words)

    def process_words(self, words: Words, truncated_at: int | None) -> None:
        """Process these words only, as one window."""
        self._windows_to_come = iter([[Window(0, words)] if words else []])
        self._truncated_at = truncated_at

    def next_passes(self) -> Sequence[Prepared]:
        """A few passes, of a window whose passes for relations can be made, else of the next windows."""
        with self._lock:
            if not self._to_make and self._windows_to_come:
                windows = next(self._windows_to_come, None)
                if windows is None:
                    self._windows_to_come = None
                else:
                    self._to_make.extend(map(self._begin, windows))
            while self._to_make:
                if passes := list(islice(self._to_make[0], _PASSES_AT_ONCE)):
                    return passes
                self._to_make.popleft()
            return ()

    @property
    def exhausted(self) -> bool:
        """See `ChunkedRequest`."""
        return self._windows_to_come is None and not self._to_make

    @property
    def done(self) -> bool:
        """See `ChunkedRequest`."""
        with self._lock:
            return self.exhausted and not self._open

    def add(self, prepared: Prepared, result: PassResult) -> Sequence[Entity]:
        """See `ChunkedRequest`. Takes time in proportion to the window, not to the text."""
        with self._lock:
            window = self._open.pop(id(prepared))
            self._tokens += result.tokens
            self._classes.add(window.window.number, result.classes)
            self._instances.add(window.window.number, result.structures)
            window.add(self._item, result)
            if result.cut:
                self._merger.cut.add("max_relations")
            if window.missing:
                return ()
            if window.relations is None:
                window.relations = {}
                if self._groups.relations and (label_sets := self._label_sets(window)):
                    window.missing = len(label_sets) * len(self._groups.relations)
                    self._to_make.appendleft(self._passes(window, product(label_sets, self._groups.relations)))
                    return ()
                for one in window.entity_passes:
                    add_relations(window.relations, one)
            return self._merger.add(window.window, window.entity_passes, window.relations)

    def result(self) -> Extraction:
        """See `ChunkedRequest`."""
        entities = list(self._merger.entities)
        found, ends = self._merger.relations()
        relations = with_arguments(found, entities, self._item.text, ends)
        return Extraction(
            entities=entities,
            relations=relations,
            classifications=self._classes.results(self._item.classifications),
            structures=self._instances.results(self._item.structures),
            warnings=[warning_of(limit) for limit in sorted(self._merger.cut)],
            truncated=self._truncated_at is not None,
            truncated_at=self._truncated_at,
            usage=Usage(
                words=self._words,
                tokens=self._tokens,
                windows=self._windows,
                label_groups=len(self._groups.labels),
                relation_groups=len(self._groups.relations) or int(bool(self._item.relations)),
            ),
        )

    def _cut(self, window_words: int, overlap_words: int) -> Iterator[Sequence[Window]]:
        """The windows that end in each chunk of the text's words."""
        text = self._item.text
        cutter = Cutter(text, max_words=window_words, max_tokens=self._groups.room, overlap_words=overlap_words)
        for chunk in self._tokenizer.chunks(text):
            for words in self._fitting(chunk, window_words):
                yield list(cutter.push(words))
        yield list(cutter.close())

    def _fitting(self, chunk: Words, size: int) -> Iterator[Words]:
        """The chunk's words, at most `size` and a window's tokens at a time; longer words are split."""
        while chunk:
            fit = chunk.fitting(size, self._groups.room)
            yield from [chunk[:fit]] if fit else self._pieces(chunk[:1], size)
            chunk = chunk[fit or 1 :]

    def _pieces(self, word: Words, size: int) -> Iterator[Words]:
        """The pieces of a long word, about a window's tokens at a time."""
        pieces: list[Words] = []
        tokens = 0
        for piece in self._tokenizer.pieces(self._item.text, word.start, word.end, self._groups.room):
            pieces.append(piece)
            tokens += len(piece.token_ids)
            if len(pieces) == size or tokens > self._groups.room or piece.end - pieces[0].start > _STEP_CHARS:
                yield Words.joined(pieces)
                pieces, tokens = [], 0
        yield Words.joined(pieces)

    def _begin(self, window: Window) -> Iterator[Prepared]:
        """A window's first passes."""
        self._windows += 1
        self._words += len(window.words) - window.repeated
        groups = self._groups.labels
        relations = () if self._groups.relations else tuple(self._item.relations)
        prompts = [(labels, relations) for labels in groups]
        return self._passes(_OpenWindow(window, len(prompts)), prompts, first=True)

    def _label_sets(self, window: _OpenWindow) -> list[Names]:
        """The labels of the passes for relations between the entities of a window; none for fewer than two spans."""
        if self._tokenizer.prompts.schema:  # relations need no labels
            return [()]
        entities = [one.entities for one in window.entity_passes]
        spans = np.concatenate([np.stack([one.start, one.end]) for one in entities], axis=1)
        if not spans.size or (spans == spans[:, :1]).all():
            return []
        labels = {one.names[label] for one in entities for label in np.unique(one.label).tolist()}
        label_tokens = {label: self._groups.tokens[label] for label in labels}
        names, tokens = self._groups.half
        label_sets = grouped(label_tokens, max_labels=2 * names, max_tokens=2 * tokens)
        if len(label_sets) > 1:
            halves = grouped(label_tokens, max_labels=names, max_tokens=tokens)
            label_sets = [tuple(sorted(one + other)) for one, other in combinations(halves, 2)]
        return label_sets

    def _passes(
        self, window: _OpenWindow, prompts: Iterable[tuple[Names, Names]], *, first: bool = False
    ) -> Iterator[Prepared]:
        """A pass of the window for each of these labels and relations, made on demand. first: the first one of these
        is for the rest of the item, too."""
        for number, (labels, relations) in enumerate(prompts):
            prepared = self._pass(window.window, part_of(self._item, labels, relations, rest=first and not number))
            self._open[id(prepared)] = window
            yield prepared

    def _pass(self, window: Window, item: Item) -> Prepared:
        tokenized = self._tokenizer.tokenized(item.text, window.words, self._tokenizer.prompts.prompt(item))
        return one_pass(item, tokenized, self._lease, is_pass=True)
