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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations

from gliner_bento.engine.base import AdapterLease, Prepared
from gliner_bento.engine.results import PassResult, with_arguments
from gliner_bento.engine.text.label_groups import grouped
from gliner_bento.engine.text.merge import Merger
from gliner_bento.engine.text.passes import Groups, Names, descriptions, one_pass
from gliner_bento.engine.text.tokenize import ItemTokenizer
from gliner_bento.engine.text.windows import Cutter, Window, Word
from gliner_bento.types import Entity, Extraction, Item, Usage


@dataclass(slots=True)
class _OpenWindow:
    """A window with unfinished passes. missing: number of passes without a result. relation_passes: None until made."""

    window: Window
    missing: int = 0
    entity_passes: list[PassResult] = field(default_factory=list)
    relation_passes: list[PassResult] | None = None


class WindowedRequest:
    """A `ChunkedRequest`. Holds the text, the open windows, and the merged result."""

    def __init__(self, item: Item, tokenizer: ItemTokenizer, groups: Groups, lease: AdapterLease | None) -> None:
        self._item = item
        self._tokenizer = tokenizer
        self._groups = groups
        self._lease = lease
        self._lock = threading.Lock()
        in_order = list(groups.labels[0]) if len(groups.labels) == 1 else sorted(item.labels)
        self._merger = Merger(in_order, flat_ner=item.flat_ner, multi_label=item.multi_label)
        self._windows_to_come: Iterator[Sequence[Window]] | None = None
        self._relation_passes: list[Prepared] = []
        self._open: dict[int, _OpenWindow] = {}  # by the id of a pass
        self._truncated_at: int | None = None
        self._windows = self._words = self._tokens = 0  # counters for `usage`

    def process_windows(self, window_words: int, overlap_words: int) -> None:
        """Process the whole text."""
        self._windows_to_come = self._cut(window_words, overlap_words)

    def process_words(self, words: Sequence[Word], truncated_at: int | None) -> None:
        """Process these words only, as one window."""
        self._windows_to_come = iter([[Window(0, words)] if words else []])
        self._truncated_at = truncated_at

    def next_passes(self) -> Sequence[Prepared]:
        """The passes of the next windows, or relation passes of a window whose entity passes are done."""
        with self._lock:
            if self._relation_passes:
                passes, self._relation_passes = self._relation_passes, []
                return passes
            windows = next(self._windows_to_come, None) if self._windows_to_come else None
            if windows is None:
                self._windows_to_come = None
                return ()
            return list(chain.from_iterable(map(self._begin, windows)))

    @property
    def exhausted(self) -> bool:
        """See `ChunkedRequest`."""
        return self._windows_to_come is None and not self._relation_passes

    @property
    def done(self) -> bool:
        """See `ChunkedRequest`."""
        with self._lock:
            return self.exhausted and not self._open

    def add(self, made: Prepared, result: PassResult) -> Sequence[Entity]:
        """See `ChunkedRequest`. Takes time in proportion to the window, not to the text."""
        with self._lock:
            window = self._open.pop(id(made))
            self._tokens += result.tokens
            (window.entity_passes if window.relation_passes is None else window.relation_passes).append(result)
            window.missing -= 1
            if window.missing:
                return ()
            if self._groups.relations and window.relation_passes is None:
                window.relation_passes = []
                self._relation_passes += (passes := self._relation_passes_of(window))
                if passes:
                    return ()
            one_group = window.relation_passes is None
            return self._merger.add(
                window.window, window.entity_passes, window.entity_passes if one_group else window.relation_passes or ()
            )

    def result(self) -> Extraction:
        """See `ChunkedRequest`."""
        return Extraction(
            entities=self._merger.entities,
            relations=with_arguments(self._merger.relations(), self._merger.entities),
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
        for chunk in self._tokenizer.chunks(text, window_words + 1):
            for words in self._fitting(chunk, window_words):
                yield list(cutter.push(words))
        yield list(cutter.close())

    def _fitting(self, chunk: Sequence[Word], size: int) -> Iterator[list[Word]]:
        """The chunk's words, in lists of `size`; words that are longer than a window are split."""
        words: list[Word] = []
        for word in chunk:
            fits = len(word.token_ids) <= self._groups.room
            for piece in (word,) if fits else self._tokenizer.pieces(self._item.text, word, self._groups.room):
                words.append(piece)
                if len(words) == size:
                    yield words
                    words = []
        yield words

    def _begin(self, window: Window) -> list[Prepared]:
        """A window's first passes."""
        self._windows += 1
        self._words += len(window.words) - window.repeated
        groups = self._groups.labels
        relations = () if self._groups.relations else tuple(self._item.relations)
        return self._passes(_OpenWindow(window), [(labels, relations) for labels in groups])

    def _relation_passes_of(self, window: _OpenWindow) -> list[Prepared]:
        """Passes for relations between the entities of a window; none for fewer than two spans."""
        entities = [entity for one in window.entity_passes for entity in one.entities]
        if len({(entity.start, entity.end) for entity in entities}) < 2:
            return []
        label_tokens = {entity.label: self._groups.tokens[entity.label] for entity in entities}
        names, tokens = self._groups.half
        label_sets = grouped(label_tokens, max_labels=2 * names, max_tokens=2 * tokens)
        if len(label_sets) > 1:
            halves = grouped(label_tokens, max_labels=names, max_tokens=tokens)
            label_sets = [tuple(sorted(one + other)) for one, other in combinations(halves, 2)]
        return self._passes(
            window, [(labels, relations) for labels in label_sets for relations in self._groups.relations]
        )

    def _passes(self, window: _OpenWindow, prompts: Sequence[tuple[Names, Names]]) -> list[Prepared]:
        passes = [self._pass(window.window, labels, relations) for labels, relations in prompts]
        window.missing = len(passes)
        self._open.update((id(made), window) for made in passes)
        return passes

    def _pass(self, window: Window, labels: Names, relations: Names) -> Prepared:
        item = replace(
            self._item,
            labels={name: self._item.labels[name] for name in labels},
            relations={name: self._item.relations[name] for name in relations},
        )
        prompt = self._tokenizer.prompt(*descriptions(self._item, labels, relations))
        return one_pass(item, self._tokenizer.tokenized(window.words, prompt), self._lease, is_pass=True)
