"""Merges the results of a long text's windows. Pure; `windows` cuts the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gliner_bento.engine.heads.decode import MAX_CANDIDATES, too_many
from gliner_bento.engine.heads.overlap import resolve_overlaps
from gliner_bento.engine.heads.predictions import Span
from gliner_bento.engine.results import PairRelation, PassResult
from gliner_bento.engine.text.windows import CharSpan, Window, context
from gliner_bento.types import Entity

_LocatedRelation = tuple[PairRelation, CharSpan, CharSpan]
"""A relation with its head and its tail."""


@dataclass(slots=True)
class _Candidate:
    """An entity, as predicted in the window where it has the most context."""

    entity: Entity
    context: float


class Merger:
    """Merges the results of a text's windows, in whatever order they come.

    - An entity that several windows predict counts once, with the score of the window where it has the most context.
    - An entity at the edge of a window may be a piece of a longer one: it counts only if no other window has more
      context for it.
    - Overlap resolution (greedy, as in gliner) runs over the whole text.
    - A relation counts if both of its entities do. If several windows predict it, it counts once, with the score of the
      window where both have the most context.
    """

    def __init__(self, labels: Sequence[str], *, flat_ner: bool, multi_label: bool) -> None:
        """labels: in order of preference among equal scores."""
        self._order = {label: number for number, label in enumerate(labels)}
        self._flat_ner = flat_ner
        self._multi_label = multi_label
        self._pending: dict[int, tuple[Window, Sequence[Entity], Sequence[_LocatedRelation]]] = {}
        self._next = 0
        self._windows: list[Window] = []
        self._candidates: dict[tuple[int, int, str], _Candidate] = {}
        self._relations: dict[tuple[str, CharSpan, CharSpan], tuple[float, float]] = {}
        self.entities: list[Entity] = []

    def add(
        self, window: Window, entity_passes: Sequence[PassResult], relation_passes: Sequence[PassResult]
    ) -> list[Entity]:
        """Add a window: the entities and the relations of these passes. Returns the entities that became final, in
        order; they follow those of earlier calls.

        Raises TooLarge for more spans above the threshold than the limit.
        """
        entities = [entity for one in entity_passes for entity in (*one.entities, *one.suppressed)]
        relations = [
            (relation, *_ends(one.entities, relation)) for one in relation_passes for relation in one.relations
        ]
        bounds = Window(window.number, (window.words[0], window.words[-1]), next_start=window.next_start)
        self._pending[window.number] = bounds, entities, relations
        final: list[Entity] = []
        while following := self._pending.pop(self._next, None):
            self._next += 1
            self._collect(*following)
            final += self._finalize(inf if following[0].next_start is None else following[0].next_start)
        self.entities += final
        return final

    def relations(self) -> list[PairRelation]:
        """Between `entities`, after the last window; by head, then tail. Of a span's labels, the first counts."""
        index_of: dict[CharSpan, int] = {}
        for index, entity in enumerate(self.entities):
            index_of.setdefault((entity.start, entity.end), index)
        relations = [
            PairRelation(name, score, index_of[head], index_of[tail])
            for (name, head, tail), (_, score) in self._relations.items()
            if head in index_of and tail in index_of
        ]
        return sorted(relations, key=lambda relation: (relation.head, relation.tail))

    def _collect(self, window: Window, entities: Sequence[Entity], relations: Sequence[_LocatedRelation]) -> None:
        self._windows.append(window)
        for entity in entities:
            key, around = (entity.start, entity.end, entity.label), context(window, entity.start, entity.end)
            if key not in self._candidates or self._candidates[key].context < around:
                self._candidates[key] = _Candidate(entity, around)
        if len(self._candidates) > MAX_CANDIDATES:
            raise too_many(len(self._candidates), MAX_CANDIDATES)
        for relation, head, tail in relations:
            around = context(window, min(head[0], tail[0]), max(head[1], tail[1]))
            relation_key = relation.relation, head, tail
            if relation_key not in self._relations or self._relations[relation_key][0] < around:
                self._relations[relation_key] = around, relation.score

    def _finalize(self, frontier: float) -> list[Entity]:
        """Resolve the candidates that no later window, from character `frontier` on, can hold or overlap."""
        order = sorted(self._candidates.values(), key=lambda one: (one.entity.start, one.entity.end))
        final, reach = 0, -1.0
        for number, one in enumerate(order):
            if one.entity.start >= reach:
                final = number
            if one.entity.end > frontier:
                break
            reach = max(reach, one.entity.end)
        else:
            final = len(order)
        for one in order[:final]:
            del self._candidates[one.entity.start, one.entity.end, one.entity.label]
        whole = [one.entity for one in order[:final] if one.context > 0 or not self._has_more_context(one.entity)]
        first_open = min((one.entity.start for one in order[final:]), default=inf)
        self._windows = [window for window in self._windows if window.end > min(frontier, first_open)]
        return self._resolved(whole)

    def _has_more_context(self, entity: Entity) -> bool:
        """Whether some window has context around the entity."""
        return any(context(window, entity.start, entity.end) > 0 for window in self._windows)

    def _resolved(self, entities: Sequence[Entity]) -> list[Entity]:
        """The entities that overlap resolution keeps, in order of position."""
        if not entities:
            return []
        base = min(entity.start for entity in entities)
        by_span: Mapping[tuple[int, int, int], Entity] = {
            (entity.start - base, entity.end - base - 1, self._order[entity.label]): entity for entity in entities
        }
        spans = [Span(*key, by_span[key].score) for key in sorted(by_span)]
        kept = resolve_overlaps(spans, flat=self._flat_ner, multi_label=self._multi_label)
        return [by_span[span.first, span.last, span.label] for span in kept]


def _ends(entities: Sequence[Entity], relation: PairRelation) -> tuple[CharSpan, CharSpan]:
    head, tail = entities[relation.head], entities[relation.tail]
    return (head.start, head.end), (tail.start, tail.end)
