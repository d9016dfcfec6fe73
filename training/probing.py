"""The probe suite: hand-written sentences with gold answers (`training/probes`), scored by domain and by noise.

`python -m training report` prints the scores of a checkpoint; `--data` adds those of the development split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gliner import GLiNER

from training import reach
from training.calibration import answers, reliability, scored
from training.evaluate import Counts, ask, evaluate, evaluate_held_out, report
from training.questions import PROBES, QUESTIONS, Question, read_questions


@dataclass(slots=True)
class Outcome:
    """What a model answered to a probe."""

    probe: Question
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


def answer(model: Any, probe: Question, threshold: float = 0.5) -> Outcome:
    """Ask a GLiNER one probe."""
    entities, related = ask(model, probe.text, probe.types, probe.relations, threshold)
    return Outcome(probe, set(entities), set(related))


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


def write_report(folder: Path, data: Path | None, threshold: float = 0.5) -> None:
    """Print the report of a checkpoint; with `data` also the scores of the development split."""
    model = GLiNER.from_pretrained(str(folder), local_files_only=True)
    probes = [probe for probe in read_questions(PROBES) if not probe.domain.startswith(reach.DOMAIN)]
    outcomes = [answer(model, probe, threshold) for probe in probes]
    print(f"## Probes at threshold {threshold}\n\n{table(outcomes)}\n")
    print(f"## Relations in texts of several facts\n\n{reach.report(folder, threshold)}\n")
    asked = [answer(model, question, threshold) for question in read_questions(QUESTIONS)]
    print(f"## Questions, on which scores are calibrated\n\n{table(asked)}\n")
    print(f"## Types and relations that were never trained\n\n{report(evaluate_held_out(model, threshold))}\n")
    if data:
        print(f"## Development split\n\n{report(evaluate(folder, data, threshold))}\n")
        print(f"## Calibration\n\n{reliability(*scored(answers(folder, data)))}\n")
    failed = [(one, list(one.failures())) for one in outcomes]
    print(f"## Failures: {sum(bool(lines) for _, lines in failed)} of {len(outcomes)} probes\n")
    for one, lines in failed:
        if lines:
            print(f"- {one.probe.text}\n  " + "\n  ".join(lines))
