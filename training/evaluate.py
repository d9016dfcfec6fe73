"""Scores on the dev split, through GLiNER's own inference: exact-match micro-F1 of entities and relations by source."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gliner import GLiNER

from training.model import MAX_WIDTH
from training.ontology import Ontology
from training.questions import QUESTIONS, read_questions
from training.records import Record, read_records
from training.templates import Writer, load_library

HELD_OUT = "held_out"
ASKED = "questions"
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


@dataclass(slots=True)
class Answer:
    """What a model was asked about a text, and the score of each prediction beside the gold answers."""

    source: str
    words: list[str]
    types: list[str]
    relations: list[str]
    entities: dict[Any, float]
    gold: set[Any]
    related: dict[Any, float]
    gold_related: set[Any]


def ask(
    model: Any, text: str, types: list[str], relations: list[str], threshold: float
) -> tuple[dict[Any, float], dict[Any, float]]:
    """The score of each entity (start, end, type), and of each relation (head span, name, tail span)."""
    asked = {"relations": relations} if relations else {}
    found = model.inference([text], types, threshold=threshold, **asked)
    entities, related = found if isinstance(found, tuple) else (found, [[]])
    triples = {(_ends(one["head"]), one["relation"], _ends(one["tail"])): float(one["score"]) for one in related[0]}
    return {(*_ends(one), one["label"]): float(one["score"]) for one in entities[0]}, triples


def evaluate(model_folder: Path, data: Path, threshold: float = 0.5) -> Scores:
    """Entity and relation counts of the development split by source, plus "all"."""
    model = GLiNER.from_pretrained(str(model_folder), local_files_only=True)
    return count(dev_answers(model, data, threshold))


def evaluate_held_out(model: Any, threshold: float = 0.5, texts: int = 5) -> Scores:
    """The same for `data/held_out`, whose types and relations are never trained: `texts` of each template."""
    return count(held_out_answers(model, threshold, texts))


def dev_answers(model: Any, data: Path, threshold: float) -> Iterator[Answer]:
    """Answers to the development split."""
    for record in read_records(data / "dev.jsonl.gz", MAX_WIDTH):
        if record.relations or not record.partial:
            yield _answer(model, record, threshold)


def held_out_answers(model: Any, threshold: float, texts: int = 5) -> Iterator[Answer]:
    """Answers about types and relations that are never trained."""
    ontology = Ontology()
    library = load_library(ontology, held_out=True)
    writer, rng = Writer(library, ontology), random.Random(17)
    for template in [one for one in library.templates if one.domain == HELD_OUT] * texts:
        yield _answer(model, replace(writer.write(template, rng), source=HELD_OUT), threshold)


def question_answers(model: Any, threshold: float) -> Iterator[Answer]:
    """Answers to `data/questions`."""
    for one in read_questions(QUESTIONS):
        found, triples = ask(model, one.text, one.types, one.relations, threshold)
        yield Answer(ASKED, one.text.split(), one.types, one.relations, found, one.entities, triples, one.related)


def count(answers: Iterable[Answer]) -> Scores:
    """Counts by source, plus "all"."""
    scores: Scores = defaultdict(lambda: (Counts(), Counts()))
    for answer in answers:
        for entities, relations in (scores[answer.source], scores["all"]):
            entities.add(set(answer.entities), answer.gold)
            if answer.relations:
                relations.add(set(answer.related), answer.gold_related)
    return dict(scores)


def _prompt(present: set[str], pool: frozenset[str], rng: random.Random) -> list[str]:
    """The present names and some that are absent, in a drawn order."""
    absent = sorted(pool - present)
    names = sorted(present) + rng.sample(absent, min(NEGATIVES, len(absent)))
    rng.shuffle(names)
    return names


def _answer(model: Any, record: Record, threshold: float) -> Answer:
    text = " ".join(record.words)
    rng = random.Random(text)
    offsets, position = [], 0
    for word in record.words:
        offsets.append((position, position + len(word)))
        position += len(word) + 1
    ends = [(offsets[m.first][0], offsets[m.last][1]) for m in record.mentions]
    relations = _prompt({name for _, _, name in record.relations} | record.asked, record.rel_pool, rng)
    types = _prompt({m.type for m in record.mentions if m.type}, record.pool, rng) or ["person"]
    found, triples = ask(model, text, types, relations, threshold)
    gold = {(*ends[i], m.type) for i, m in enumerate(record.mentions) if m.type}
    gold_related = {(ends[head], name, ends[tail]) for head, tail, name in record.relations}
    unknown = {(ends[head], ends[tail]) for head, tail in record.unknown_pairs}
    triples = {key: value for key, value in triples.items() if key in gold_related or (key[0], key[2]) not in unknown}
    if record.partial:
        found, gold = {}, set()
    return Answer(record.source, record.words, types, relations, found, gold, triples, gold_related)


def _ends(mention: dict[str, Any]) -> tuple[int, int]:
    return int(mention["start"]), int(mention["end"])


def report(scores: Scores) -> str:
    """A table of the scores."""
    lines = ["| source | entities F1 | entities | relations F1 | relations |", "|---|---|---|---|---|"]
    for name, (entities, relations) in sorted(scores.items()):
        shown = f"{relations.f1:.3f}" if relations.gold else "-"
        lines.append(f"| {name} | {entities.f1:.3f} | {entities.gold} | {shown} | {relations.gold} |")
    return "\n".join(lines)
