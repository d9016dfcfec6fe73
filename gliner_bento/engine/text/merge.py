"""Merges the results of a long text's windows. Pure; `windows` cuts the text.

At a low threshold a window has hundreds of thousands of candidates, so they are kept and resolved in columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gliner_bento.engine.heads.overlap import kept_spans
from gliner_bento.engine.heads.predictions import SpanTable
from gliner_bento.engine.heads.typed_relations import AllowedEnds
from gliner_bento.engine.limits import MAX_CANDIDATES, kept_of, too_many_candidates
from gliner_bento.engine.results import EntityTable, PairRelation, PassResult
from gliner_bento.engine.text.windows import CharSpan, Window, context
from gliner_bento.tasks.extraction import Entity
from gliner_bento.tasks.extraction import ExtractionItem as Item

RelationKey = tuple[str, CharSpan, CharSpan]
"""A relation with its head and its tail."""
_Scored = tuple[str, CharSpan, CharSpan, float]
"""A relation with its head, tail and score."""


class _Candidates(NamedTuple):
    """Entities, each as predicted in the window where it has the most context. context: see `windows.context`."""

    entities: EntityTable
    context: NDArray[np.float64]

    def take(self, which: NDArray[np.intp] | slice) -> _Candidates:
        return _Candidates(self.entities.take(which), self.context[which])


class Merger:
    """Merges the results of a text's windows, which may be added in any order.

    - An entity that several windows predict counts once, with the score of the window where it has the most context.
    - An entity at the edge of a window may be a piece of a longer one: it counts only if no other window has more
      context for it.
    - Overlap resolution (greedy, as in gliner) runs over the whole text.
    - A relation counts if both of its entities count. If several windows predict it, it counts once, with the score of
      the window where both have the most context.
    - Of more entities or relations than the item's limits, those with the highest scores count.
    """

    def __init__(self, item: Item, labels: Sequence[str], *, schema: bool) -> None:
        """labels: of the item; of equal scores, the earlier label wins. schema: see `Prompts`."""
        self._item = item
        self._labels = labels
        self._schema = schema
        self._pending: dict[int, tuple[Window, Sequence[EntityTable], Mapping[RelationKey, float]]] = {}
        self._next = 0  # number of the first window that is not collected
        self._windows: list[Window] = []
        self._candidates = _Candidates(self._joined([]), np.empty(0))
        self._relations: dict[RelationKey, tuple[float, float]] = {}  # (context, score)
        self._final: list[EntityTable] = []
        self.cut: set[str] = set()
        """The limits (`max_entities`, `max_relations`) beyond which results were dropped."""

    def add(
        self, window: Window, entity_passes: Sequence[PassResult], relations: Mapping[RelationKey, float]
    ) -> Sequence[Entity]:
        """Add a window: the results of its entity passes, and the scores of its relations. Returns the entities that
        became final, in order; they follow those of earlier calls. With `on_limit` `truncate`, it returns none.

        Raises LimitExceeded.
        """
        tables = [table for result in entity_passes for table in (result.entities, result.suppressed)]
        bounds = Window(window.number, window.words.borders(), next_start=window.next_start)
        self._pending[window.number] = bounds, tables, relations
        final_before = len(self._final)
        while following := self._pending.pop(self._next, None):
            self._next += 1
            self._collect(*following)
            next_start = following[0].next_start
            self._final.append(self._finalize(inf if next_start is None else next_start))
            if len(self._relations) > 2 * self._item.max_relations:
                self._bound_relations()
        final = self._final[final_before:]
        factor = 1 if self._item.on_limit == "error" else 2  # to truncate less often
        if sum(map(len, self._final)) > factor * self._item.max_entities:
            self._final = [self._limited()]
        return () if self._item.on_limit == "truncate" else self._joined(final)

    @property
    def entities(self) -> EntityTable:
        """The final entities. Raises LimitExceeded."""
        return self._limited()

    def relations(self) -> tuple[list[PairRelation], list[CharSpan]]:
        """The relations of the whole text, sorted by head and tail, and the ends that are not entities (GLiNER2).

        Called after the last window. The head and tail of a relation are indexes into `entities` followed by these
        ends. Of several entities of the same span, the first is the head or tail. Raises LimitExceeded."""
        index_of: dict[CharSpan, int] = {}
        for index, span in enumerate(_char_spans(self.entities)):
            index_of.setdefault(span, index)
        allowed = AllowedEnds.of(self._item)
        kept = [
            (name, head, tail, score)
            for (name, head, tail), (_, score) in self._relations.items()
            if (self._schema and not allowed) or (head in index_of and tail in index_of)
        ]
        if allowed:
            kept = self._permitted(kept, index_of, allowed)
        chars = np.array([head[1] - head[0] + tail[1] - tail[0] for _, head, tail, _ in kept], np.int64)
        fitting = kept_of(self._item, "max_relations", np.array([score for *_, score in kept]), chars)
        if fitting is not None:
            kept = [kept[index] for index in fitting.tolist()]
            self.cut.add("max_relations")
        ends = sorted({end for _, head, tail, _ in kept for end in (head, tail)} - index_of.keys())
        index_of |= {end: len(self.entities) + number for number, end in enumerate(ends)}
        relations = [PairRelation(name, score, index_of[head], index_of[tail]) for name, head, tail, score in kept]
        relations.sort(key=lambda relation: (relation.head, relation.tail))
        return relations, ends

    def _permitted(
        self, relations: Sequence[_Scored], index_of: Mapping[CharSpan, int], allowed: AllowedEnds
    ) -> list[_Scored]:
        """The relations whose head and tail have labels that the relation may have."""
        number_of = {name: number for number, name in enumerate(self._item.relations)}
        label_number = {name: number for number, name in enumerate(self._item.labels)}
        entities = self.entities
        labels = [label_number[name] for name in entities.names]
        label_of = {span: labels[entities.label[index]] for span, index in index_of.items()}
        return [
            (name, head, tail, score)
            for name, head, tail, score in relations
            if allowed.permit(number_of[name], label_of[head], label_of[tail])
        ]

    def _collect(self, window: Window, tables: Sequence[EntityTable], relations: Mapping[RelationKey, float]) -> None:
        """Add the next window's entities and relations. Of equal ones, the one with the most context is kept."""
        self._windows.append(window)
        added = self._joined(tables)
        entities = self._joined([self._candidates.entities, added])
        contexts = np.concatenate([self._candidates.context, _contexts(window, added)])
        order = np.lexsort((-contexts, entities.label, entities.end, entities.start))  # stable: earlier windows first
        keys = np.stack([entities.start, entities.end, entities.label])[:, order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
        if (candidates := int(is_first.sum())) > MAX_CANDIDATES:
            raise too_many_candidates(candidates)
        self._candidates = _Candidates(entities, contexts).take(order[is_first])
        for key, score in relations.items():
            _, head, tail = key
            relation_context = context(window, min(head[0], tail[0]), max(head[1], tail[1]))
            if key not in self._relations or self._relations[key][0] < relation_context:
                self._relations[key] = relation_context, score

    def _finalize(self, frontier: float) -> EntityTable:
        """Resolve the candidates that no entity of a later window can equal or overlap.

        frontier: the character at which the next window begins."""
        entities = self._candidates.entities
        final = _first_open(entities, frontier)
        done, self._candidates = self._candidates.take(slice(final)), self._candidates.take(slice(final, None))
        whole = done.context > 0
        # At a window's edge, an entity may be a piece of a longer one. It counts only if no window has context for it.
        whole[~whole] = ~self._have_context(done.entities.take(~whole))
        open_start = min(entities.start[final : final + 1].tolist(), default=inf)
        self._windows = [window for window in self._windows if window.end > min(frontier, open_start)]
        return self._resolved(done.entities.take(whole))

    def _have_context(self, entities: EntityTable) -> NDArray[np.bool_]:
        """Whether some window has context around each entity."""
        have_context = np.zeros(len(entities), np.bool_)
        for window in self._windows if len(entities) else ():
            have_context |= _contexts(window, entities) > 0
        return have_context

    def _resolved(self, entities: EntityTable) -> EntityTable:
        """The entities that overlap resolution keeps, in order of position."""
        lasts = entities.end - 1
        _, ranks = np.unique(np.concatenate([entities.start, lasts]), return_inverse=True)
        spans = SpanTable(ranks[: len(lasts)], ranks[len(lasts) :], entities.label, entities.score)
        return entities.take(kept_spans(spans, self._item, within_labels=self._schema))

    def _limited(self) -> EntityTable:
        """The final entities that the item's limit keeps."""
        entities = self._joined(self._final)
        fitting = kept_of(self._item, "max_entities", entities.score, entities.end - entities.start)
        if fitting is None:
            return entities
        self.cut.add("max_entities")
        return entities.take(fitting)

    def _bound_relations(self) -> None:
        """Drop relations whose ends can no longer become entities. If too many are left, keep the best by score."""
        final = {span for table in self._final for span in _char_spans(table)}
        open_start = min(self._candidates.entities.start[:1].tolist(), default=inf)
        self._relations = {
            key: value
            for key, value in self._relations.items()
            if self._schema or all(span[1] > open_start or span in final for span in key[1:])
        }
        if len(self._relations) > 2 * self._item.max_relations:
            best = best_relations(self._item, {key: score for key, (_, score) in self._relations.items()})
            self._relations = {key: self._relations[key] for key in best}
            self.cut.add("max_relations")

    def _joined(self, tables: Sequence[EntityTable]) -> EntityTable:
        return EntityTable.joined(self._item.text, self._labels, tables)


def _contexts(window: Window, entities: EntityTable) -> NDArray[np.float64]:
    """`context` of each entity in `window`."""
    left, right = entities.start - float(window.start), float(window.end) - entities.end
    nearest = np.minimum(left, right)
    around = np.minimum(
        np.full_like(left, inf) if window.number == 0 else left,
        np.full_like(right, inf) if window.next_start is None else right,
    )
    return np.where(nearest < 0, nearest, around)


def _first_open(entities: EntityTable, frontier: float) -> int:
    """The largest n such that the first n entities, in order of position, end at or before `frontier` and overlap none
    of the entities after them."""
    beyond = np.flatnonzero(entities.end > frontier)
    if not len(beyond):
        return len(entities)
    stop = int(beyond[0])
    reach = np.maximum.accumulate(np.concatenate([[-1], entities.end[:stop]]))
    return int(np.flatnonzero(entities.start[: stop + 1] >= reach)[-1])


def _char_spans(entities: EntityTable) -> Iterator[CharSpan]:
    return zip(entities.start.tolist(), entities.end.tolist(), strict=True)


def add_relations(scores: dict[RelationKey, float], result: PassResult) -> None:
    """Add the relations of a pass to `scores`, the best scores in all passes over its window."""
    spans = [*_char_spans(result.entities), *result.ends] if result.relations else []
    for relation in result.relations:
        key = relation.relation, spans[relation.head], spans[relation.tail]
        scores[key] = max(relation.score, scores.get(key, 0.0))


def best_relations(item: Item, scores: Mapping[RelationKey, float]) -> dict[RelationKey, float]:
    """The relations with the highest scores, as many as the item's limit allows. Raises LimitExceeded."""
    keys = list(scores)
    fitting = kept_of(item, "max_relations", np.array(list(scores.values())), np.zeros(len(keys), np.int64))
    return dict(scores) if fitting is None else {keys[index]: scores[keys[index]] for index in fitting.tolist()}
