"""Items that take several passes of the model: texts longer than it reads at once, more labels than it is asked for.

    text ──▶ windows ─┬─▶ a pass for each group of labels ─▶ entities ─┬─▶ all of the window ──▶ Merger
                      └── several groups: passes for relations between the labels found ◀─┘

With one group of labels (and one of relations) a window is one pass, which finds both. With several, two labels that
may be related can be in different groups, so the relations come from passes of their own: over the labels that the
window was found to hold, two halves of them at a time if they are many, and each group of relations.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations

from gliner_bento.engine.base import AdapterLease, Prepared
from gliner_bento.engine.label_groups import grouped
from gliner_bento.engine.passes import Groups, Names, descriptions, one_pass
from gliner_bento.engine.results import PassResult, with_arguments
from gliner_bento.engine.tokenize import ItemTokenizer
from gliner_bento.engine.windows import Cutter, Merger, Window, Word
from gliner_bento.types import Entity, Extraction, Item, Usage


@dataclass(slots=True)
class _Open:
    """A window under way. passes: how many have not been added; related: passes for relations alone."""

    window: Window
    passes: int = 0
    found: list[PassResult] = field(default_factory=list)
    related: list[PassResult] | None = None


class LongTextRequest:
    """The passes of one item: a `ChunkedRequest`. Holds the text, the windows under way, and what was found."""

    def __init__(self, item: Item, tokenizer: ItemTokenizer, groups: Groups, lease: AdapterLease | None) -> None:
        self._item = item
        self._tokenizer = tokenizer
        self._groups = groups
        self._lease = lease
        self._lock = threading.Lock()
        in_order = list(groups.labels[0]) if len(groups.labels) == 1 else sorted(item.labels)
        self._merger = Merger(in_order, flat_ner=item.flat_ner, multi_label=item.multi_label)
        self._to_read: Iterator[Sequence[Window]] | None = None
        self._to_relate: list[Prepared] = []
        self._open: dict[int, _Open] = {}  # by the id of a pass
        self._truncated_at: int | None = None
        self._windows = self._words = self._tokens = 0

    def read_windows(self, window_words: int, overlap_words: int) -> None:
        """Read the whole text."""
        self._to_read = self._cut(window_words, overlap_words)

    def read_words(self, words: Sequence[Word], truncated_at: int | None) -> None:
        """Read these words alone, at once."""
        self._to_read = iter([[Window(0, words)] if words else []])
        self._truncated_at = truncated_at

    def next_passes(self) -> Sequence[Prepared]:
        """The passes over a window's worth of words, or for the relations in a window that has been read."""
        with self._lock:
            if self._to_relate:
                made, self._to_relate = self._to_relate, []
                return made
            windows = next(self._to_read, None) if self._to_read else None
            if windows is None:
                self._to_read = None
                return ()
            return list(chain.from_iterable(map(self._begin, windows)))

    @property
    def exhausted(self) -> bool:
        """See `ChunkedRequest`."""
        return self._to_read is None and not self._to_relate

    @property
    def done(self) -> bool:
        """See `ChunkedRequest`."""
        with self._lock:
            return self.exhausted and not self._open

    def add(self, made: Prepared, found: PassResult) -> Sequence[Entity]:
        """See `ChunkedRequest`; takes time with a window's length, not with the text's."""
        with self._lock:
            window = self._open.pop(id(made))
            self._tokens += found.tokens
            (window.found if window.related is None else window.related).append(found)
            window.passes -= 1
            if window.passes:
                return ()
            if self._groups.relations and window.related is None:
                window.related = []
                self._to_relate += (passes := self._relate(window))
                if passes:
                    return ()
            return self._merger.add(
                window.window, window.found, window.found if window.related is None else window.related
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
        """Its words, `size` at a time; those that no window holds in pieces."""
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
        return self._passes(_Open(window), [(labels, relations) for labels in groups])

    def _relate(self, window: _Open) -> list[Prepared]:
        """Passes for relations between what was found in a window; none where that is less than two spans."""
        entities = [entity for one in window.found for entity in one.entities]
        if len({(entity.start, entity.end) for entity in entities}) < 2:
            return []
        held = {entity.label: self._groups.tokens[entity.label] for entity in entities}
        names, tokens = self._groups.half
        together = grouped(held, max_labels=2 * names, max_tokens=2 * tokens)
        if len(together) > 1:
            halves = grouped(held, max_labels=names, max_tokens=tokens)
            together = [tuple(sorted(one + other)) for one, other in combinations(halves, 2)]
        return self._passes(
            window, [(labels, relations) for labels in together for relations in self._groups.relations]
        )

    def _passes(self, window: _Open, asked: Sequence[tuple[Names, Names]]) -> list[Prepared]:
        passes = [self._pass(window.window, labels, relations) for labels, relations in asked]
        window.passes = len(passes)
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
