"""Predictions of any server or library in one form, and how far they agree with those of gliner's own forward."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gliner_bento.loadtest.load import TimedResponse

THRESHOLD = 0.5
TOLERANCE = 1e-4

Predictions = dict[tuple[Any, ...], float]
"""Entities and relations of one text with their scores: (start, end, label), and (relation, head, tail)."""


@dataclass(slots=True)
class Agreement:
    """How far the predictions for some texts agree with the expected ones.

    wrong: texts with a different set of predictions, or with a score that differs by more than `TOLERANCE`. In
    bfloat16 that is rounding, not a fault: there `same_spans` and `f1` show what the precision costs.
    """

    answers: int = 0
    same_spans: int = 0
    wrong: int = 0
    matched: int = 0
    given: int = 0
    expected: int = 0
    worst_score_difference: float = 0.0
    examples: list[str] = field(default_factory=list)

    def add(self, given: Predictions, expected: Predictions) -> None:
        """Count one text. A prediction with a score on the threshold, within the tolerance, may be there or not."""
        both = given.keys() & expected.keys()
        difference = max((abs(given[key] - expected[key]) for key in both), default=0.0)
        unmatched = [key for key in given.keys() ^ expected.keys() if not _on_threshold(given, expected, key)]
        self.answers += 1
        self.matched += len(both)
        self.given += len(given)
        self.expected += len(expected)
        self.same_spans += not unmatched
        self.worst_score_difference = max(self.worst_score_difference, difference)
        if unmatched or difference > TOLERANCE:
            self.wrong += 1
            if len(self.examples) < 3:
                self.examples.append(f"{unmatched[:2]}, scores differ by {difference:.1e}")

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


def predictions_of(answer: Mapping[str, Any]) -> Predictions:
    """The predictions in an answer of gliner-bento, or of gliner and gliner.serve (where heads and tails of relations
    have a `type` in place of a label)."""
    predictions: Predictions = {_span(entity): float(entity["score"]) for entity in answer["entities"]}
    for relation in answer.get("relations") or ():
        predictions[relation["relation"], _span(relation["head"]), _span(relation["tail"])] = float(relation["score"])
    return predictions


def agreement_of_replies(replies: Iterable[TimedResponse], expected: Sequence[Predictions]) -> Agreement:
    """How far the 200 responses of a run agree with the predictions expected for each body."""
    agreement = Agreement()
    for reply in replies:
        if reply.status == "200":
            agreement.add(_predictions_in(reply), expected[reply.body_index])
    return agreement


def agreement_of(answers: Sequence[Mapping[str, Any]], expected: Sequence[Predictions]) -> dict[str, Any]:
    """The summary of how far answers agree with the expected predictions, in order."""
    agreement = Agreement()
    for answer, predictions in zip(answers, expected, strict=True):
        agreement.add(predictions_of(answer), predictions)
    return agreement.summary()


def distance(first: Predictions, second: Predictions) -> float:
    """The sum of score differences. A prediction that only one of them has counts as on the threshold in the other."""
    return sum(abs(first.get(key, THRESHOLD) - second.get(key, THRESHOLD)) for key in first.keys() | second.keys())


def own_adapter_share(
    replies: Iterable[TimedResponse], expected: Sequence[Predictions], other_adapters: Sequence[Sequence[Predictions]]
) -> float | None:
    """The share of 200 responses that are at least as near to the expected predictions of their body as to those of
    the same text with any of the other adapters. None without such responses.

    Rounding in bfloat16 makes a few responses nearer to another adapter; a wrong adapter makes most of them so.
    """
    own = [
        all(distance(given, expected[body]) <= distance(given, other) for other in other_adapters[body])
        for given, body in ((_predictions_in(reply), reply.body_index) for reply in replies if reply.status == "200")
    ]
    return sum(own) / len(own) if own else None


def _predictions_in(reply: TimedResponse) -> Predictions:
    answer = json.loads(reply.content)
    return predictions_of(answer[0] if isinstance(answer, list) else answer)


def _span(entity: Mapping[str, Any]) -> tuple[int, int, str]:
    return int(entity["start"]), int(entity["end"]), str(entity["label"] if "label" in entity else entity["type"])


def _on_threshold(given: Predictions, expected: Predictions, key: tuple[Any, ...]) -> bool:
    score = given[key] if key in given else expected[key]
    return abs(score - THRESHOLD) <= TOLERANCE
