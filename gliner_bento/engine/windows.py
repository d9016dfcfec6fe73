"""Long texts: how they are cut into overlapping windows, and how what was found in these is put together. No model.

    words ──▶ Cutter ──▶ windows:   ├────────────┤
                                              ├────────────┤
                                                        ├────────────┤ ──▶ Merger ──▶ entities, relations

A window ends at the end of a sentence where one ends in its last quarter, else at a word. The *context* of a span in a
window is the text that the window shows on its shorter side; an end of the text itself is no lack of context.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from gliner_bento.engine.decode import MAX_CANDIDATES, Span, chosen, too_many
from gliner_bento.engine.results import PairRelation, PassResult
from gliner_bento.engine.sentences import sentence_ends
from gliner_bento.types import Entity

Boundary = tuple[int, int]


class Word(NamedTuple):
    """A word that the model reads: its tokens, and its place in the text, [start, end) in characters."""

    token_ids: Sequence[int]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a text.

    number: counted from 0. words: its words, of which the first `repeated` are in the window before, too.
    next_start: the character at which the next window begins; None: this one is the last.
    """

    number: int
    words: Sequence[Word]
    repeated: int = 0
    next_start: int | None = None

    @property
    def start(self) -> int:
        """Its first character."""
        return self.words[0].start

    @property
    def end(self) -> int:
        """One past its last character."""
        return self.words[-1].end


class Cutter:
    """Cuts one text, of which the words come little by little; holds no more of them than a window."""

    def __init__(self, text: str, *, max_words: int, max_tokens: int, overlap_words: int) -> None:
        """max_words, max_tokens: of a window; overlap_words: what neighbours share, at most, and below `max_words`."""
        self._text = text
        self._max_words = max_words
        self._max_tokens = max_tokens
        self._overlap_words = overlap_words
        self._words: list[Word] = []
        self._tokens = 0
        self._repeated = 0
        self._windows = 0

    def push(self, words: Iterable[Word]) -> Iterator[Window]:
        """The windows that are whole now. No word has more than `max_tokens` tokens."""
        for word in words:
            self._words.append(word)
            self._tokens += len(word.token_ids)
            while len(self._words) > self._max_words or self._tokens > self._max_tokens:
                yield self._cut()

    def close(self) -> Iterator[Window]:
        """The last window, unless there were no words."""
        if self._words:
            yield Window(self._windows, self._words, self._repeated)

    def _cut(self) -> Window:
        """The first words that fit, up to the end of a sentence; what is left of them begins the next window."""
        fit = len(self._words) - 1
        end = self._sentence_start(fit - fit // 4, fit, last=True) or fit
        overlap = min(self._overlap_words, end // 2)
        start = end - overlap
        if overlap:
            start = self._sentence_start(start, end - overlap // 2, last=False) or start
        tokens = sum(len(word.token_ids) for word in self._words[start:])
        while start < end and tokens > self._max_tokens:
            tokens -= len(self._words[start].token_ids)
            start += 1
        window = Window(self._windows, self._words[:end], self._repeated, self._words[start].start)
        self._words, self._tokens, self._repeated = self._words[start:], tokens, end - start
        self._windows += 1
        return window

    def _sentence_start(self, low: int, high: int, *, last: bool) -> int | None:
        """The last or the first word of `low` to `high` that begins a sentence; never the text's or window's first."""
        low = max(1, low)
        ends = sentence_ends(self._text, self._words[low - 1].start, self._words[high].start) if low <= high else []
        starts = [bisect_left(self._words, end, low, high, key=lambda word: word.start) for end in ends]
        if not starts:
            return None
        return starts[-1] if last else starts[0]


@dataclass(slots=True)
class _Seen:
    """A span with a label in the window that shows most around it, of those that it was found in."""

    entity: Entity
    context: float


class Merger:
    """Puts together what the windows of one text have found, in whatever order they come.

    - A span with a label that several windows found counts once, with the score of the one in which it has the most
      context: the model has seen most of what decides there.
    - A span at the edge of a window may be a piece of a longer one: it counts only if no other window shows more.
    - What may stand beside each other is decided over the whole text as gliner does within one, best scores first.
    - A relation counts if both of its ends stand; found in several windows, once, its score by the rule above.
    """

    def __init__(self, labels: Sequence[str], *, flat_ner: bool, multi_label: bool) -> None:
        """labels: in the order in which they are preferred among equal scores."""
        self._places = {label: place for place, label in enumerate(labels)}
        self._flat_ner = flat_ner
        self._multi_label = multi_label
        self._early: dict[int, tuple[Window, Sequence[Entity], Sequence[tuple[PairRelation, Boundary, Boundary]]]] = {}
        self._next = 0
        self._shown: list[Window] = []
        self._open: dict[tuple[int, int, str], _Seen] = {}
        self._related: dict[tuple[str, Boundary, Boundary], tuple[float, float]] = {}
        self.entities: list[Entity] = []

    def add(self, window: Window, found: Sequence[PassResult], related: Sequence[PassResult]) -> list[Entity]:
        """The entities of a window that passes `found`, the relations of those that `related`; gives the entities that
        stand from now on, all before them being settled.

        Raises TooLarge where more spans are above the threshold than can be looked at.
        """
        entities = [entity for one in found for entity in (*one.entities, *one.suppressed)]
        relations = [(relation, *_ends(one.entities, relation)) for one in related for relation in one.relations]
        bare = Window(window.number, (window.words[0], window.words[-1]), next_start=window.next_start)
        self._early[window.number] = bare, entities, relations
        settled: list[Entity] = []
        while early := self._early.pop(self._next, None):
            self._next += 1
            self._see(*early)
            settled += self._settle(inf if early[0].next_start is None else early[0].next_start)
        self.entities += settled
        return settled

    def relations(self) -> list[PairRelation]:
        """Between `entities`, when all windows are in; by head, then tail. The first label of a span stands for it."""
        place: dict[Boundary, int] = {}
        for number, entity in enumerate(self.entities):
            place.setdefault((entity.start, entity.end), number)
        found = [
            PairRelation(name, score, place[head], place[tail])
            for (name, head, tail), (_, score) in self._related.items()
            if head in place and tail in place
        ]
        return sorted(found, key=lambda relation: (relation.head, relation.tail))

    def _see(
        self,
        window: Window,
        entities: Sequence[Entity],
        relations: Sequence[tuple[PairRelation, Boundary, Boundary]],
    ) -> None:
        self._shown.append(window)
        for entity in entities:
            key, around = (entity.start, entity.end, entity.label), context(window, entity.start, entity.end)
            if key not in self._open or self._open[key].context < around:
                self._open[key] = _Seen(entity, around)
        if len(self._open) > MAX_CANDIDATES:
            raise too_many(len(self._open), MAX_CANDIDATES)
        for relation, head, tail in relations:
            around = context(window, min(head[0], tail[0]), max(head[1], tail[1]))
            key_of_relation = relation.relation, head, tail
            if key_of_relation not in self._related or self._related[key_of_relation][0] < around:
                self._related[key_of_relation] = around, relation.score

    def _settle(self, frontier: float) -> list[Entity]:
        """Decide about the spans that later windows, which begin at `frontier`, neither show nor overlap."""
        order = sorted(self._open.values(), key=lambda seen: (seen.entity.start, seen.entity.end))
        settled, reach = 0, -1.0
        for number, seen in enumerate(order):
            if seen.entity.start >= reach:
                settled = number
            if seen.entity.end > frontier:
                break
            reach = max(reach, seen.entity.end)
        else:
            settled = len(order)
        for seen in order[:settled]:
            del self._open[seen.entity.start, seen.entity.end, seen.entity.label]
        whole = [seen for seen in order[:settled] if seen.context > 0 or not self._is_shown_better(seen.entity)]
        unsettled = min((seen.entity.start for seen in order[settled:]), default=inf)
        self._shown = [window for window in self._shown if window.end > min(frontier, unsettled)]
        return self._standing([seen.entity for seen in whole])

    def _is_shown_better(self, entity: Entity) -> bool:
        return any(context(window, entity.start, entity.end) > 0 for window in self._shown)

    def _standing(self, entities: Sequence[Entity]) -> list[Entity]:
        """Those that may stand beside each other, in order of position."""
        if not entities:
            return []
        base = min(entity.start for entity in entities)
        by_span: Mapping[tuple[int, int, int], Entity] = {
            (entity.start - base, entity.end - base - 1, self._places[entity.label]): entity for entity in entities
        }
        spans = [Span(*key, by_span[key].score) for key in sorted(by_span)]
        standing = chosen(spans, flat=self._flat_ner, multi_label=self._multi_label)
        return [by_span[span.first, span.last, span.label] for span in standing]


def context(window: Window, start: int, end: int) -> float:
    """Characters that `window` shows on the shorter side of `[start, end)`; below 0: it does not show all of it."""
    left = start - window.start
    right = window.end - end
    if left < 0 or right < 0:
        return min(left, right)
    return min(inf if window.number == 0 else left, inf if window.next_start is None else right)


def _ends(entities: Sequence[Entity], relation: PairRelation) -> tuple[Boundary, Boundary]:
    head, tail = entities[relation.head], entities[relation.tail]
    return (head.start, head.end), (tail.start, tail.end)
