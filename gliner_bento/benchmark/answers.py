"""Answers in one form, whoever gave them, and how far they agree with what gliner's own forward answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gliner_bento.benchmark.load import Reply

THRESHOLD = 0.5
TOLERANCE = 1e-4

Found = dict[tuple[Any, ...], float]
"""Entities and relations of one text with their scores: (start, end, label), and (relation, head, tail)."""


@dataclass(slots=True)
class Agreement:
    """How far the answers to some texts agree with the expected ones.

    wrong: answers with another set of findings, or a score that is off by more than `TOLERANCE`. In bfloat16 this is
    no fault: there `same_spans` and `f1` tell how much the precision costs.
    """

    answers: int = 0
    same_spans: int = 0
    wrong: int = 0
    matched: int = 0
    given: int = 0
    expected: int = 0
    worst_score_difference: float = 0.0
    examples: list[str] = field(default_factory=list)

    def add(self, given: Found, expected: Found) -> None:
        """Count one answer. A finding that is on the threshold, to within the tolerance, may be there or not."""
        both = given.keys() & expected.keys()
        off = max((abs(given[key] - expected[key]) for key in both), default=0.0)
        apart = [key for key in given.keys() ^ expected.keys() if not _on_threshold(given, expected, key)]
        self.answers += 1
        self.matched += len(both)
        self.given += len(given)
        self.expected += len(expected)
        self.same_spans += not apart
        self.worst_score_difference = max(self.worst_score_difference, off)
        if apart or off > TOLERANCE:
            self.wrong += 1
            if len(self.examples) < 3:
                self.examples.append(f"{apart[:2]}, scores off by {off:.1e}")

    def summary(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "answers": self.answers,
            "wrong": self.wrong,
            "same_spans": self.same_spans / self.answers if self.answers else None,
            "f1": 2 * self.matched / (self.given + self.expected) if self.given + self.expected else 1.0,
            "worst_score_difference": self.worst_score_difference,
            "expected_per_text": self.expected / self.answers if self.answers else None,
            "examples": self.examples,
        }


def found(answer: Mapping[str, Any]) -> Found:
    """What an answer of ours, of gliner or of gliner.serve holds (these call an argument's label its type)."""
    findings: Found = {_span(entity): float(entity["score"]) for entity in answer["entities"]}
    for relation in answer.get("relations") or ():
        findings[relation["relation"], _span(relation["head"]), _span(relation["tail"])] = float(relation["score"])
    return findings


def judged(replies: Iterable[Reply], expected: Sequence[Found] | None) -> Agreement | None:
    """How far a run's answers agree with the `expected` findings of each body; None where nothing is expected."""
    if expected is None:
        return None
    agreement = Agreement()
    for reply in replies:
        if reply.status == "200":
            agreement.add(_found_in(reply), expected[reply.body])
    return agreement


def apart(one: Found, other: Found) -> float:
    """How far two answers to one text are from each other: what their scores differ by, in sum. What only one of them
    has found counts as on the threshold in the other."""
    return sum(abs(one.get(key, THRESHOLD) - other.get(key, THRESHOLD)) for key in one.keys() | other.keys())


def own_share(replies: Iterable[Reply], expected: Sequence[Found], others: Sequence[Sequence[Found]]) -> float | None:
    """The share of a run's answers that are as near to the expected findings of their body as to any `others`, which
    are those of the same text with other adapters. None without answers.

    In bfloat16 rounding alone takes a few of them away; answers with a wrong adapter would not leave the most.
    """
    own = [
        all(apart(given, expected[body]) <= apart(given, other) for other in others[body])
        for given, body in ((_found_in(reply), reply.body) for reply in replies if reply.status == "200")
    ]
    return sum(own) / len(own) if own else None


def agreement_of(answers: Sequence[Mapping[str, Any]], expected: Sequence[Found]) -> dict[str, Any]:
    """The summary of how far answers agree with the expected findings, in order."""
    agreement = Agreement()
    for answer, wanted in zip(answers, expected, strict=True):
        agreement.add(found(answer), wanted)
    return agreement.summary()


def misfits(replies: Iterable[Reply], texts: Sequence[str]) -> int:
    """Answers with an entity whose offsets do not fit its text, for servers of which nothing else is known."""
    count = 0
    for reply in replies:
        if reply.status == "200":
            entities = json.loads(reply.content)["entities"]
            text = texts[reply.body]
            count += any(text[entity["start"] : entity["end"]] != entity["text"] for entity in entities)
    return count


def _found_in(reply: Reply) -> Found:
    answer = json.loads(reply.content)
    return found(answer[0] if isinstance(answer, list) else answer)


def _span(entity: Mapping[str, Any]) -> tuple[int, int, str]:
    return int(entity["start"]), int(entity["end"]), str(entity["label"] if "label" in entity else entity["type"])


def _on_threshold(given: Found, expected: Found, key: tuple[Any, ...]) -> bool:
    score = given[key] if key in given else expected[key]
    return abs(score - THRESHOLD) <= TOLERANCE
