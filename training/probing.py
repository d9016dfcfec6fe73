"""The probe suite: hand-written sentences with gold answers (`training/probes`), scored by domain and by noise.

`python -m training report` prints the scores of a checkpoint; `--data` adds those of the development split.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gliner import GLiNER

from training.calibration import answers, scored
from training.evaluate import Counts, evaluate, evaluate_held_out, report

PROBES = Path(__file__).parent / "probes"
MENTION = re.compile(r"\[([^\]]+)\]\(([^()#]+)(?:#(\w+))?\)")
TRIPLE = re.compile(r"^(.+?)\((\w+), (\w+)\)$")


@dataclass(slots=True)
class Probe:
    """A text, what is asked, and the gold answers: entities (start, end, type) and relations (head, name, tail)."""

    text: str
    types: list[str]
    relations: list[str]
    domain: str
    noise: str
    entities: set[tuple[int, int, str]] = field(default_factory=set)
    related: set[tuple[tuple[int, int], str, tuple[int, int]]] = field(default_factory=set)


def parse_probe(line: str, asked: dict[str, str]) -> Probe:
    """One line with marked entities; raises `ValueError` where an answer does not fit the question."""
    marked, _, tail = line.partition(" => ")
    types, relations = (_names(asked.get(key, "")) for key in ("types", "relations"))
    probe = Probe("", types, relations, asked["domain"], asked.get("noise", "none"))
    ids: dict[str, tuple[int, int]] = {}
    end = 0
    for match in MENTION.finditer(marked):
        probe.text += marked[end : match.start()] + match[1]
        span = (len(probe.text) - len(match[1]), len(probe.text))
        probe.entities.add((*span, match[2]))
        if match[3]:
            ids[match[3]] = span
        end = match.end()
    probe.text += marked[end:]
    for part in filter(None, (part.strip() for part in tail.split(";"))):
        triple = TRIPLE.match(part)
        if not triple or triple[2] not in ids or triple[3] not in ids:
            raise ValueError(f"bad relation {part!r} in {line!r}")
        probe.related.add((ids[triple[2]], triple[1], ids[triple[3]]))
    unasked = {kind for _, _, kind in probe.entities} - set(types)
    unasked |= {name for _, name, _ in probe.related} - set(relations)
    if unasked:
        raise ValueError(f"{line!r} answers what is not asked: {sorted(unasked)}")
    return probe


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split("|") if name.strip()]


def read_probes(folder: Path = PROBES) -> Iterator[Probe]:
    """All probes. A directive holds until the next of its name; `@types` also ends the relations."""
    for path in sorted(folder.glob("*.txt")):
        asked: dict[str, str] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("@"):
                key, _, value = line[1:].partition(" ")
                if key == "types":
                    asked.pop("relations", None)
                asked[key] = value
            elif line and not line.startswith("# "):
                yield parse_probe(line, asked)


@dataclass(slots=True)
class Outcome:
    """What a model answered to a probe."""

    probe: Probe
    entities: set[tuple[int, int, str]]
    related: set[tuple[tuple[int, int], str, tuple[int, int]]]

    def failures(self) -> Iterator[str]:
        """One line per missed or wrong answer."""
        text = self.probe.text
        for verb, spans in (
            ("missed", self.probe.entities - self.entities),
            ("wrong", self.entities - self.probe.entities),
        ):
            yield from (f"{verb}: {text[start:end]} [{kind}]" for start, end, kind in sorted(spans))
        for verb, triples in (
            ("missed", self.probe.related - self.related),
            ("wrong", self.related - self.probe.related),
        ):
            yield from (f"{verb}: {text[h[0] : h[1]]} {name} {text[t[0] : t[1]]}" for h, name, t in sorted(triples))


def answer(model: Any, probe: Probe, threshold: float = 0.5) -> Outcome:
    """Ask a GLiNER one probe."""
    asked = {"relations": probe.relations} if probe.relations else {}
    found = model.inference([probe.text], probe.types, threshold=threshold, **asked)
    entities, related = found if probe.relations else (found if isinstance(found, tuple) else (found, [[]]))
    triples = {(_span(one["head"]), one["relation"], _span(one["tail"])) for one in related[0]} if related else set()
    return Outcome(probe, {(*_span(one), one["label"]) for one in entities[0]}, triples)


def _span(mention: dict[str, Any]) -> tuple[int, int]:
    return int(mention["start"]), int(mention["end"])


def table(outcomes: Sequence[Outcome]) -> str:
    """Scores at the threshold: all, by domain, by noise."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        for name in ("all", f"domain: {one.probe.domain}", f"noise: {one.probe.noise}"):
            groups[name].append(one)
    lines = [
        "| probes | texts | entity F1 | precision | recall | relation F1 | precision | recall |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, members in sorted(groups.items(), key=lambda item: (item[0] != "all", item[0])):
        entities, relations = Counts(), Counts()
        for one in members:
            entities.add(one.entities, one.probe.entities)
            if one.probe.relations:
                relations.add(one.related, one.probe.related)
        lines.append(f"| {name} | {len(members)} | {_cells(entities)} | {_cells(relations)} |")
    return "\n".join(lines)


def _cells(counts: Counts) -> str:
    if not counts.gold and not counts.predicted:
        return "- | - | -"
    precision, recall = counts.right / max(1, counts.predicted), counts.right / max(1, counts.gold)
    return f"{counts.f1:.2f} | {precision:.2f} | {recall:.2f}"


def write_report(folder: Path, data: Path | None, threshold: float = 0.5, plot: Path | None = None) -> None:
    """Print the report of a checkpoint; with `data` also the scores of the development split, and the plot."""
    model = GLiNER.from_pretrained(str(folder), local_files_only=True)
    outcomes = [answer(model, probe, threshold) for probe in read_probes()]
    print(f"## Probes at threshold {threshold}\n\n{table(outcomes)}\n")
    print(f"## Types and relations that were never trained\n\n{report(evaluate_held_out(model, threshold))}\n")
    if data:
        print(f"## Development split\n\n{report(evaluate(folder, data, threshold))}\n")
    if data and plot:
        from training.plots import draw_reliability  # noqa: PLC0415  needs matplotlib

        draw_reliability(*scored(answers(folder, data)), plot)
    failed = [(one, list(one.failures())) for one in outcomes]
    print(f"## Failures: {sum(bool(lines) for _, lines in failed)} of {len(outcomes)} probes\n")
    for one, lines in failed:
        if lines:
            print(f"- {one.probe.text}\n  " + "\n  ".join(lines))
