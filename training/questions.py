"""Hand-written texts with what is asked about them and the gold answers (format: `training/probes/README.md`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROBES = Path(__file__).parent / "probes"
"""What the model is judged by: neither trained nor calibrated on."""

QUESTIONS = Path(__file__).parent / "data" / "questions"
"""What scores are calibrated on, beside the development split and the held-out types."""

MENTION = re.compile(r"\[([^\]]+)\]\(([^()#]+)(?:#(\w+))?\)")
TRIPLE = re.compile(r"^(.+?)\((\w+), (\w+)\)$")


@dataclass(slots=True)
class Question:
    """A text, what is asked, and the gold answers: entities (start, end, type) and relations (head, name, tail)."""

    text: str
    types: list[str]
    relations: list[str]
    domain: str
    noise: str
    entities: set[tuple[int, int, str]] = field(default_factory=set)
    related: set[tuple[tuple[int, int], str, tuple[int, int]]] = field(default_factory=set)


def parse_question(line: str, asked: dict[str, str]) -> Question:
    """One line with marked entities; raises `ValueError` where an answer does not fit the question."""
    marked, _, tail = line.replace("\\n", "\n").partition(" => ")
    types, relations = (_names(asked.get(key, "")) for key in ("types", "relations"))
    question = Question("", types, relations, asked["domain"], asked.get("noise", "none"))
    ids: dict[str, tuple[int, int]] = {}
    end = 0
    for match in MENTION.finditer(marked):
        question.text += marked[end : match.start()] + match[1]
        span = (len(question.text) - len(match[1]), len(question.text))
        question.entities.add((*span, match[2]))
        if match[3]:
            ids[match[3]] = span
        end = match.end()
    question.text += marked[end:]
    for part in filter(None, (part.strip() for part in tail.split(";"))):
        triple = TRIPLE.match(part)
        if not triple or triple[2] not in ids or triple[3] not in ids:
            raise ValueError(f"bad relation {part!r} in {line!r}")
        question.related.add((ids[triple[2]], triple[1], ids[triple[3]]))
    unasked = {kind for _, _, kind in question.entities} - set(types)
    unasked |= {name for _, name, _ in question.related} - set(relations)
    if unasked:
        raise ValueError(f"{line!r} answers what is not asked: {sorted(unasked)}")
    return question


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split("|") if name.strip()]


def read_questions(folder: Path) -> Iterator[Question]:
    """All questions of a folder. A directive holds until the next of its name; `@types` also ends the relations."""
    for path in sorted(folder.glob("*.txt")):
        asked: dict[str, str] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("@"):
                key, _, value = line[1:].partition(" ")
                if key == "types":
                    asked.pop("relations", None)
                asked[key] = value
            elif line and not line.startswith("# "):
                yield parse_question(line.replace(r"\n", "\n"), asked)
