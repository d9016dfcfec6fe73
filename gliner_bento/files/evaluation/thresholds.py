"""Thresholds of labels that fit examples best, and what to expect of them on other texts. Knows no model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, NamedTuple

from gliner_bento.files.evaluation.gold import Link, Span
from gliner_bento.files.evaluation.scores import SEED, ByLabel, Change, Counts, Scores, changes, f1, recall, scores

FOLDS = 5
MIN_KNOWN = 5
"""A label with fewer known entities, or relations, keeps its threshold."""
GRID = tuple(round(step * 0.05, 2) for step in range(19, 0, -1))
"""The thresholds that are tried, the highest first."""
LOWEST_SCORE = GRID[-1]
"""Candidates with lower scores are only needed for the scores of before, if their threshold is lower."""
_SWEEPS = 3


class Candidate(NamedTuple):
    """What a model may predict in a text. value: a `Span` or a `Link`."""

    value: Any
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class Scored:
    """A text: what is known, and all candidates, the highest score first."""

    known: frozenset[Any]
    candidates: Sequence[Candidate]


Thresholds = Mapping[str, float]
Resolve = Callable[[Sequence[Candidate]], Iterable[Any]]
"""What is predicted of the candidates above their thresholds, the highest score first."""


def flat_spans(candidates: Sequence[Candidate]) -> list[Span]:
    """GLiNER's greedy search: the best candidate is kept, then each that overlaps with none."""
    return _greedy(candidates, lambda one, other: one.start < other.end and other.start < one.end)


def nested_spans(candidates: Sequence[Candidate]) -> list[Span]:
    """As `flat_spans`, but an entity may be inside another one."""

    def conflict(one: Span, other: Span) -> bool:
        if one[:2] == other[:2]:
            return True
        first, second = sorted((one, other))
        return first.start < second.start < first.end < second.end

    return _greedy(candidates, conflict)


def flat_spans_of_labels(candidates: Sequence[Candidate]) -> list[Span]:
    """As `flat_spans`, but only entities of one label conflict, as in GLiNER2."""
    return _greedy(
        candidates, lambda one, other: one.label == other.label and one.start < other.end and other.start < one.end
    )


def all_links(candidates: Sequence[Candidate]) -> list[Link]:
    """Relations do not conflict."""
    return [candidate.value for candidate in candidates]


def _greedy(candidates: Sequence[Candidate], conflict: Callable[[Span, Span], bool]) -> list[Span]:
    kept: list[Span] = []
    for candidate in candidates:
        if not any(conflict(candidate.value, other) for other in kept):
            kept.append(candidate.value)
    return kept


@dataclass(frozen=True, slots=True)
class Tuned:
    """Thresholds, and the scores of the texts that they are from.

    thresholds: of the labels with enough examples. start: the scores with the thresholds of before. fitted: with the
    new ones, on the texts that they were chosen on. held_out: each text with thresholds that were chosen on the others.
    changes, change: held_out less start, of each label and of all. missed: labels whose recall on the texts that they
    were chosen on does not reach the lowest that was asked for.
    """

    thresholds: Thresholds
    start: Scores
    fitted: Scores
    held_out: Scores
    changes: Mapping[str, Change]
    change: Change
    missed: Sequence[str]


def tune(texts: Sequence[Scored], start: Thresholds, resolve: Resolve, min_recall: float = 0.0) -> Tuned:
    """The thresholds with the highest F1 of each label, by cross-validation. start: the threshold of each label now.

    min_recall: lowest recall of each label on the texts that a threshold is chosen on. Raises ValueError if there are
    too few texts, or too few known values of every label.
    """
    if len(texts) < 2:
        raise ValueError(f"cross-validation needs at least 2 examples with a result; there is {len(texts)}")
    if not (enough := known_enough(texts, start)):
        raise ValueError(f"no label is known {MIN_KNOWN} times; there are too few examples to choose a threshold")
    fitting = Fitting(texts, start, enough, resolve, min_recall)
    order = random.Random(SEED).sample(range(len(texts)), len(texts))
    folds = [order[number::FOLDS] for number in range(min(FOLDS, len(texts)))]
    held_out: dict[int, ByLabel] = {}
    for fold in folds:
        chosen = fitting.fit([index for index in order if index not in fold])
        held_out |= {index: fitting.counts(index, chosen) for index in fold}
    thresholds = fitting.fit(range(len(texts)))
    before, after = ([fitting.counts(index, given) for index in range(len(texts))] for given in (start, thresholds))
    unseen = [held_out[index] for index in range(len(texts))]
    labels = list(start)
    of_label, of_all = changes((before, labels), (unseen, labels))
    fitted = scores(after, labels)
    return Tuned(
        {label: thresholds[label] for label in enough},
        scores(before, labels),
        fitted,
        scores(unseen, labels),
        of_label,
        of_all,
        [label for label in enough if (fitted.labels[label].recall or 0.0) < min_recall],
    )


def known_enough(texts: Sequence[Scored], labels: Iterable[str]) -> list[str]:
    """The labels that are known often enough to choose a threshold."""
    known = Counter(label_of(value) for text in texts for value in text.known)
    return [label for label in labels if known[label] >= MIN_KNOWN]


def label_of(value: Any) -> str:
    """The label of an entity, or the name of a relation."""
    return str(value.label if isinstance(value, Span) else value.relation)


class Fitting:
    """Chooses thresholds of `labels` on some of the texts; other labels keep theirs of `start`."""

    def __init__(
        self,
        texts: Sequence[Scored],
        start: Thresholds,
        labels: Sequence[str],
        resolve: Resolve,
        min_recall: float,
    ) -> None:
        self._texts, self._start, self._labels, self._resolve = texts, start, labels, resolve
        self._min_recall = min_recall

    def fit(self, indices: Iterable[int]) -> dict[str, float]:
        """The thresholds with the highest F1 on the texts with these indices: of one label after the other, until none
        changes."""
        chosen = dict(self._start)
        chosen_on = list(indices)
        for _ in range(_SWEEPS):
            before = dict(chosen)
            for label in self._labels:
                chosen[label] = self._best(label, chosen, chosen_on)
            if chosen == before:
                break
        return chosen

    def counts(self, index: int, thresholds: Thresholds) -> ByLabel:
        """The counts of a text with these thresholds."""
        text = self._texts[index]
        above = [candidate for candidate in text.candidates if candidate.score > thresholds[candidate.label]]
        return _counts(text.known, self._resolve(above))

    def _best(self, label: str, thresholds: Thresholds, indices: Sequence[int]) -> float:
        """The best threshold of a label, if the others have these. Of equal ones, the nearest to that of before."""
        start = self._start[label]
        totals = self._totals(label, thresholds, indices)
        if not totals[start].gold:
            return start

        def rank(threshold: float) -> tuple[float, float, float]:
            total = totals[threshold]
            missing = min(0.0, (recall(total) or 0.0) - self._min_recall)
            return missing, f1(total) or 0.0, -abs(threshold - start)

        return max(totals, key=rank)

    def _totals(self, label: str, thresholds: Thresholds, indices: Sequence[int]) -> dict[float, Counts]:
        """The counts of a label in these texts, by the threshold that it may get."""
        grid = sorted({*GRID, self._start[label]}, reverse=True)
        totals = dict.fromkeys(grid, Counts(0, 0, 0))
        for index in indices:
            own = [candidate.score for candidate in self._texts[index].candidates if candidate.label == label]
            counts, above = None, -1
            for threshold in grid:
                number = sum(score > threshold for score in own)
                if counts is None or number != above:  # other candidates are above the threshold than before
                    counts = self.counts(index, {**thresholds, label: threshold}).get(label, Counts(0, 0, 0))
                    above = number
                totals[threshold] = Counts(*map(add, totals[threshold], counts))
        return totals


def _counts(known: frozenset[Any], predicted: Iterable[Any]) -> ByLabel:
    guesses = set(predicted)
    counts: dict[str, list[int]] = {}
    for position, values in enumerate((known & guesses, guesses, known)):
        for value in values:
            counts.setdefault(label_of(value), [0, 0, 0])[position] += 1
    return {label: Counts(*three) for label, three in counts.items()}
