"""Scores on the dev split, through GLiNER's own inference: exact-match micro-F1 of entities and relations by source."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gliner import GLiNER

from training.model import MAX_WIDTH
from training.ontology import Ontology, load_ontology
from training.records import Record, read_records

NEGATIVES = 8
"""Absent types (and relations) in the prompt of a text, drawn once per text."""


@dataclass(slots=True)
class Counts:
    """Number of predicted, gold and right entities or relations."""

    right: int = 0
    predicted: int = 0
    gold: int = 0

    def add(self, predicted: set[Any], gold: set[Any]) -> None:
        """Count one text."""
        self.right += len(predicted & gold)
        self.predicted += len(predicted)
        self.gold += len(gold)

    @property
    def f1(self) -> float:
        """Micro-F1."""
        return 2 * self.right / max(1, self.predicted + self.gold)


Scores = dict[str, tuple[Counts, Counts]]


def evaluate(model_folder: Path, data: Path, threshold: float = 0.5) -> Scores:
    """Entity and relation counts by source, plus "all"."""
    model = GLiNER.from_pretrained(str(model_folder), local_files_only=True)
    ontology = load_ontology(data / "labels.json")
    scores: Scores = defaultdict(lambda: (Counts(), Counts()))
    for record in read_records(data / "dev.jsonl.gz", MAX_WIDTH):
        if record.partial and not record.relations:
            continue
        _score(model, record, ontology, threshold, scores)
    return dict(scores)


def _prompt(present: set[str], pool: frozenset[str], rng: random.Random) -> list[str]:
    """The present names and some that are absent, in a drawn order."""
    absent = sorted(pool - present)
    names = sorted(present) + rng.sample(absent, min(NEGATIVES, len(absent)))
    rng.shuffle(names)
    return names


def _score(model: Any, record: Record, ontology: Ontology, threshold: float, scores: Scores) -> None:
    text = " ".join(record.words)
    rng = random.Random(text)
    offsets, position = [], 0
    for word in record.words:
        offsets.append((position, position + len(word)))
        position += len(word) + 1
    gold = {(offsets[m.first][0], offsets[m.last][1], m.type) for m in record.mentions if m.type}
    relations = _prompt({name for _, _, name in record.relations}, record.rel_pool, rng)
    types = _prompt({m.type for m in record.mentions if m.type}, record.pool, rng)
    entities, related = model.inference([text], types or ["person"], relations=relations, threshold=threshold)
    both = (scores[record.source], scores["all"])
    predicted = {(e["start"], e["end"], e["label"]) for e in entities[0]}
    for counts, _ in both:
        if not record.partial:
            counts.add(predicted, gold)
    if relations:
        ends = [(offsets[m.first][0], offsets[m.last][1]) for m in record.mentions]
        gold_relations = {(ends[head], name, ends[tail]) for head, tail, name in record.relations}
        predicted_relations = {(_ends(r["head"]), r["relation"], _ends(r["tail"])) for r in related[0]}
        unknown = {(ends[head], ends[tail]) for head, tail in record.unknown_pairs}
        predicted_relations = {r for r in predicted_relations if r in gold_relations or (r[0], r[2]) not in unknown}
        for _, counts in both:
            counts.add(predicted_relations, gold_relations)


def _ends(mention: dict[str, Any]) -> tuple[int, int]:
    return int(mention["start"]), int(mention["end"])


def report(scores: Scores) -> str:
    """A table of the scores."""
    lines = ["| source | entities F1 | entities | relations F1 | relations |", "|---|---|---|---|---|"]
    for name, (entities, relations) in sorted(scores.items()):
        shown = f"{relations.f1:.3f}" if relations.gold else "-"
        lines.append(f"| {name} | {entities.f1:.3f} | {entities.gold} | {shown} | {relations.gold} |")
    return "\n".join(lines)
