"""Training examples: packs records into one text, draws the label prompt, and lays out targets.

The prompt is drawn over canonical types first; a mention's target is the most specific prompted type that it has ("most
specific wins"), and what the annotation cannot decide is masked.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from training.naming import Namer, NameStyle
from training.ontology import CONVERSES, SYMMETRIC, Ontology, relation_families
from training.records import Mention, Record

DECIDED = frozenset({"year"})
"""Types that the text itself decides, so that a mention of the parent type that is not one is a negative."""

Signatures = dict[str, Counter[tuple[str, str]]]

RELATION_FREE = 0.25
"""Share of the texts with relation labels that are shown without them, as entity-only requests are."""


@dataclass(slots=True)
class Example:
    """One training text with its prompt and targets; spans are (first, last) word positions, inclusive.

    `positives` and `masked` hold (first, last, entity label position); `blank` holds (first word, last word, label
    position or None for all) regions to mask; `overlap` spans are negatives even inside a blank region.
    `pairs` holds (head, tail, relation label position, target), with target -1 for masked; unlisted pairs are negative.
    """

    words: list[str]
    labels: list[str]
    relations: list[str]
    positives: list[tuple[int, int, int]] = field(default_factory=list)
    masked: list[tuple[int, int, int]] = field(default_factory=list)
    blank: list[tuple[int, int, int | None]] = field(default_factory=list)
    overlap: list[tuple[int, int]] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    pairs: list[tuple[int, int, int, int]] = field(default_factory=list)


class Sampler:
    """Draws examples from packs of records of one source."""

    def __init__(
        self, ontology: Ontology, signatures: Signatures, rng: random.Random, *, one_way: bool = False
    ) -> None:
        """`signatures`: as `relation_signatures` returns them. one_way: ask for no relation of `CONVERSES`."""
        self._one_way = one_way
        self._onto = ontology
        self._signatures = signatures
        self._families = relation_families()
        self._rng = rng
        self._namer = Namer(ontology, rng)

    def example(self, pack: Sequence[Record]) -> Example:
        """One training example from records that are concatenated in the given order."""
        types = self._draw_types(pack)
        style = self._namer.style()
        labels = [self._namer.type_name(name, types, style) for name in types]
        result = Example([], _distinct(labels, types), [])
        offsets: list[int] = []
        for record in pack:
            offsets.append(len(result.words))
            result.words.extend(record.words)
        for record, offset in zip(pack, offsets, strict=True):
            self._lay_out(record, offset, types, result)
        self._relations(pack, result, style)
        return result

    # -- entity types ------------------------------------------------------------------------------------------------

    def _draw_types(self, pack: Sequence[Record]) -> list[str]:
        """The canonical types of the prompt, shuffled: present types at varying depth, and negatives."""
        rng, onto = self._rng, self._onto
        present = sorted({m.type for record in pack for m in record.mentions if m.type})
        keep = 1.0 if rng.random() < 0.7 else rng.uniform(0.4, 1.0)
        related = any(record.relations for record in pack)
        chosen: dict[str, None] = {}
        for name in present:
            if not related and rng.random() > keep:
                continue
            lineage = onto.lineage(name)
            chosen[name if len(lineage) == 1 or rng.random() < 0.7 else rng.choice(lineage[1:])] = None
            if len(lineage) > 1 and rng.random() < 0.25:
                chosen[rng.choice(lineage)] = None
        pool = frozenset.intersection(*(record.pool for record in pack))
        banned = {other for name in present for kind in onto.lineage(name) for other in onto.name_set(kind)}
        candidates = [name for name in sorted(pool - set(chosen)) if self._is_negative(name, present, banned)]
        count = rng.choice((0, 1, 2, 3, 4, 5, 6, 8, 10, 12)) if len(chosen) < 12 else 2
        for name in rng.sample(candidates, min(count, len(candidates))):
            chosen[name] = None
        names = list(chosen) or ["person"]
        rng.shuffle(names)
        return names[:20]

    def _is_negative(self, name: str, present: Sequence[str], banned: set[str]) -> bool:
        """Whether a type is a safe negative: no ancestor and no namesake of a present type."""
        if any(name in self._onto.lineage(kind) for kind in present):
            return False
        return not (self._onto.name_set(name) & banned)

    def _lay_out(self, record: Record, offset: int, types: Sequence[str], out: Example) -> None:
        """Targets of one record's mentions, and regions where its annotation says nothing."""
        end = offset + len(record.words) - 1
        if record.partial:
            out.blank.append((offset, end, None))
            out.overlap.extend((m.first + offset, m.last + offset) for m in record.mentions)
        closure = {kind for name in record.pool for kind in self._onto.lineage(name)}
        out.blank.extend((offset, end, i) for i, name in enumerate(types) if name not in closure)
        for mention in record.mentions:
            span = (mention.first + offset, mention.last + offset)
            out.spans.append(span)
            for i, target in enumerate(self._targets(mention, record, types)):
                if target:
                    (out.positives if target > 0 else out.masked).append((*span, i))

    def _targets(self, mention: Mention, record: Record, types: Sequence[str]) -> list[int]:
        """Target of a mention for each prompted type: 1, 0 or -1 (unknown)."""
        if mention.type is None or mention.type == "entity":
            return [1 if name == mention.type else -1 for name in types]
        lineage = self._onto.lineage(mention.type)
        best = next((name for name in lineage if name in types), None)
        return [1 if name == best else -1 if self._is_unknown(mention, record, name) else 0 for name in types]

    def _is_unknown(self, mention: Mention, record: Record, name: str) -> bool:
        """Whether the annotation leaves open that a mention has another type than its own."""
        if mention.type == "miscellaneous":
            return name not in record.pool
        finer = mention.type in self._onto.ancestors(name) and name not in DECIDED
        return finer and (record.source == "templates" or name not in record.pool)

    # -- relations ---------------------------------------------------------------------------------------------------

    def _relations(self, pack: Sequence[Record], out: Example, style: NameStyle) -> None:
        """Relation labels with hard negatives, and the target of every pair that is not plainly negative."""
        rng = self._rng
        pool = sorted(frozenset.intersection(*(r.rel_pool | r.soft_rel_pool for r in pack)))
        if not pool or len(out.spans) < 2 or rng.random() < RELATION_FREE:
            return
        held = sorted({name for record in pack for _, _, name in record.relations})
        asked = sorted({name for record in pack for name in record.asked} - set(held))
        shown = [name for name in [*held, *asked] if rng.random() < 0.9]
        names = shown + self._negative_relations(pack, [*held, *asked], pool)
        if self._one_way:
            names = [name for name in names if name not in CONVERSES]
        rng.shuffle(names)
        backwards = [not self._one_way and self._namer.backwards(name) for name in names]
        labels = [self._namer.relation_name(n, b, style) for n, b in zip(names, backwards, strict=True)]
        order = [i for i, label in enumerate(labels) if label not in labels[:i]]
        names, backwards = [names[i] for i in order], [backwards[i] for i in order]
        out.relations = [labels[i] for i in order]
        base = 0
        for record in pack:
            self._pairs(record, base, names, backwards, out)
            base += len(record.mentions)

    def _negative_relations(self, pack: Sequence[Record], held: Sequence[str], pool: Sequence[str]) -> list[str]:
        """One to ten relations that do not hold, about two thirds with a type signature found in the text."""
        rng, onto = self._rng, self._onto
        banned = {other for name in held for other in onto.relation_names(name)}
        free = [name for name in pool if name not in held and not (onto.relation_names(name) & banned)]
        found = set()
        for record in pack:
            roots = [onto.lineage(m.type)[-1] for m in record.mentions if m.type]
            found |= {(a, b) for a in roots for b in roots}
        hard = [name for name in free if self._signatures.get(name, Counter()).keys() & found]
        count = rng.randint(1, 10) if held else rng.randint(1, 5)
        picked = self._often(hard, round(count * 2 / 3))
        rest = [name for name in free if name not in picked]
        return picked + self._often(rest, count - len(picked))

    def _often(self, names: Sequence[str], count: int) -> list[str]:
        """Up to `count` different names; those that are often true are often drawn, so that they are as often false."""
        weights = {name: self._signatures.get(name, Counter()).total() ** 0.5 + 1 for name in names}
        return heapq.nlargest(count, names, key=lambda name: self._rng.random() ** (1 / weights[name]))

    def _pairs(self, record: Record, base: int, names: Sequence[str], backwards: Sequence[bool], out: Example) -> None:
        stated = dict.fromkeys(record.relations)
        stated.update(((tail, head, name), None) for head, tail, name in record.relations if name in SYMMETRIC)
        true: dict[tuple[int, int], set[str]] = {}
        for head, tail, name in stated:
            true.setdefault((head, tail), set()).add(name)
        for i, name in enumerate(names):
            targets = {pair: self._pair_target(name, holding, record) for pair, holding in true.items()}
            targets.update((pair, -1) for pair in record.unknown_pairs if name not in true.get(pair, ()))
            for head, tail in list(targets):
                if targets[head, tail] == -1 and (tail, head, name) in stated:
                    targets[head, tail] = 0
            targets.update(((head, tail), -1) for head, tail, other in record.undecided if other == name)
            for (head, tail), target in targets.items():
                if target:
                    ends = (tail, head) if backwards[i] else (head, tail)
                    out.pairs.append((ends[0] + base, ends[1] + base, i, target))

    def _pair_target(self, name: str, holding: set[str], record: Record) -> int:
        if name in holding:
            return 1
        if record.source == "templates":
            return -1 if name in record.soft_rel_pool else 0
        return -1 if self._families.get(name, frozenset()) & holding else 0


def _distinct(labels: list[str], types: Sequence[str]) -> list[str]:
    """Names shown in the prompt, falling back to the canonical one where two types drew the same."""
    return [types[i] if label in labels[:i] else label for i, label in enumerate(labels)]


def relation_signatures(records: Sequence[Record], ontology: Ontology) -> Signatures:
    """For each relation how often it is seen with which (head, tail) root types."""
    seen: Signatures = {}
    for record in records:
        for head, tail, name in record.relations:
            ends = record.mentions[head].type, record.mentions[tail].type
            if ends[0] and ends[1]:
                roots = (ontology.lineage(ends[0])[-1], ontology.lineage(ends[1])[-1])
                seen.setdefault(name, Counter())[roots] += 1
    return seen
