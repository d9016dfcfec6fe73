"""Relations in texts of several facts (`training/probes/reach.txt`): whole windows against windows of sentences.

The texts are asked through this project's own engine, because gliner has no relation windows. Relations are compared by
the names of their ends: a text may name somebody twice.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gliner_bento.process.in_process import in_process
from gliner_bento.settings import Settings
from training.evaluate import Counts
from training.questions import PROBES, Question, read_questions

DOMAIN = "reach"
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
_LOWEST = 0.05
WINDOWS: Mapping[str, Mapping[str, Any]] = {
    "whole": {"relation_window": "whole"},
    **{
        f"{sentences}, overlap {overlap}": {
            "relation_window_sentences": sentences,
            "relation_window_overlap_sentences": overlap,
        }
        for sentences, overlap in ((1, 0), (2, 1))
    },
}

Triple = tuple[str, str, str]
"""Head, relation, tail."""


@dataclass(slots=True)
class Answered:
    """What a model answered to a probe. related: with their scores. words: of the text."""

    probe: Question
    related: dict[Triple, float]
    words: int
    tokens: int
    passes: int

    @property
    def gold(self) -> set[Triple]:
        """The relations that hold."""
        text = self.probe.text
        return {(text[h[0] : h[1]], name, text[t[0] : t[1]]) for h, name, t in self.probe.related}

    def above(self, threshold: float) -> set[Triple]:
        """The relations that are answered at this threshold."""
        return {triple for triple, score in self.related.items() if score > threshold}


async def answers(model: Path, windows: Sequence[str] = tuple(WINDOWS)) -> dict[str, list[Answered]]:
    """The answers of a checkpoint to all probes, by relation window."""
    probes = [one for one in read_questions(PROBES) if one.domain.startswith(DOMAIN)]
    settings = Settings.load({"model": str(model), "device": "cpu", "dtype": "float32"})
    found: dict[str, list[Answered]] = defaultdict(list)
    async with in_process(settings) as client:
        for window in windows:
            for probe in probes:
                answer = await client.extract(
                    probe.text,
                    labels=probe.types,
                    relations=probe.relations,
                    relation_threshold=_LOWEST,
                    **WINDOWS[window],
                )
                related: dict[Triple, float] = {}
                for one in answer.relations:
                    triple = one.head.text, one.relation, one.tail.text
                    related[triple] = max(one.score, related.get(triple, 0.0))
                usage = answer.usage
                found[window].append(Answered(probe, related, usage.words, usage.tokens, usage.passes))
    return dict(found)


def counts(answered: Sequence[Answered], threshold: float) -> dict[str, Counts]:
    """Of relations, by domain, and of all but those that need a pronoun."""
    found: dict[str, Counts] = defaultdict(Counts)
    for one in answered:
        domain = one.probe.domain.removeprefix(f"{DOMAIN}, ")
        for name in (domain, *(["all but pronouns"] if domain != "pronouns" else [])):
            found[name].add(one.above(threshold), one.gold)
    return dict(found)


def cost(answered: Sequence[Answered]) -> dict[str, float]:
    """Passes and tokens per text."""
    return {
        "passes": round(sum(one.passes for one in answered) / len(answered), 2),
        "tokens": round(sum(one.tokens for one in answered) / len(answered), 1),
    }


def table(found: Mapping[str, Sequence[Answered]], threshold: float) -> str:
    """Right and answered relations, by domain and window."""
    scores = {window: counts(answered, threshold) for window, answered in found.items()}
    lines = [
        f"| relations at {threshold} | hold | {' | '.join(found)} |",
        f"|{'---|' * (len(found) + 2)}",
    ]
    for domain in scores[next(iter(found))]:
        cells = [f"{one[domain].right} of {one[domain].predicted}" for one in scores.values()]
        gold = next(iter(scores.values()))[domain].gold
        lines.append(f"| {domain} | {gold} | {' | '.join(cells)} |")
    costs = [f"{cost(answered)['passes']} and {cost(answered)['tokens']}" for answered in found.values()]
    lines.append(f"| passes and tokens per text | | {' | '.join(costs)} |")
    return "\n".join(lines)


def sweep(found: Mapping[str, Sequence[Answered]]) -> dict[str, Any]:
    """The counts at each threshold, and the cost, by window."""
    return {
        window: {
            "cost": cost(answered),
            "thresholds": {
                str(threshold): {name: asdict(one) for name, one in counts(answered, threshold).items()}
                for threshold in THRESHOLDS
            },
        }
        for window, answered in found.items()
    }


def report(model: Path, threshold: float, output: Path | None = None) -> str:
    """The table; with an output, the sweep is written there."""
    found = asyncio.run(answers(model))
    if output:
        output.write_text(json.dumps(sweep(found), indent=1) + "\n", encoding="utf-8")
    return table(found, threshold)
