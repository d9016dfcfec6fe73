"""Precision, recall and F1 of predictions, with intervals, and which labels are confused. Pure functions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter, mul
from typing import NamedTuple, TypeVar

from gliner_bento.files.evaluation.gold import Span

SAMPLES = 1000
"""Resampled sets of texts from which an interval is taken."""
SEED = 0
_TAIL = 0.025
_Value = TypeVar("_Value", bound=Hashable)


class Counts(NamedTuple):
    """Predictions of a text, or of all: how many are right, are predicted, and are known."""

    right: int
    predicted: int
    gold: int


@dataclass(frozen=True, slots=True)
class Score:
    """The counts and what follows from them; None where nothing is predicted or known. The intervals hold the value
    with a probability of 95 %, if the texts are a random sample."""

    right: int
    predicted: int
    gold: int
    precision: float | None
    recall: float | None
    f1: float | None
    precision_interval: tuple[float, float] | None
    recall_interval: tuple[float, float] | None
    f1_interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Scores:
    """The score of each label, and that of all predictions together."""

    labels: Mapping[str, Score]
    micro: Score


@dataclass(frozen=True, slots=True)
class Confusion:
    """How many entities of the label `gold` are predicted as `predicted`. None: there is no entity."""

    gold: str | None
    predicted: str | None
    count: int


ByLabel = Mapping[str, Counts]
"""The counts of one text."""


def precision(counts: Counts) -> float | None:
    """The part of the predictions that is right."""
    return counts.right / counts.predicted if counts.predicted else None


def recall(counts: Counts) -> float | None:
    """The part of what is known that is predicted."""
    return counts.right / counts.gold if counts.gold else None


def f1(counts: Counts) -> float | None:
    """The harmonic mean of precision and recall."""
    both = counts.predicted + counts.gold
    return 2 * counts.right / both if both else None


def matched(gold: Collection[Span], predicted: Collection[Span]) -> list[tuple[Span, Span]]:
    """Pairs of a known and a predicted entity that share characters; each is in one pair at most.

    Pairs of one label come first, then equal boundaries, then the pairs that share the most characters.
    """
    candidates = sorted(_overlapping(gold, predicted), key=_preference)
    pairs: list[tuple[Span, Span]] = []
    taken_gold, taken_predicted = set[Span](), set[Span]()
    for known, guess in candidates:
        if known not in taken_gold and guess not in taken_predicted:
            pairs.append((known, guess))
            taken_gold.add(known)
            taken_predicted.add(guess)
    return pairs


def _preference(pair: tuple[Span, Span]) -> tuple[bool, bool, int, Span, Span]:
    known, guess = pair
    shared = min(known.end, guess.end) - max(known.start, guess.start)
    return known.label != guess.label, known[:2] != guess[:2], -shared, known, guess


def _overlapping(gold: Collection[Span], predicted: Collection[Span]) -> Iterator[tuple[Span, Span]]:
    """All pairs that share characters, in one pass over both."""
    known_before, guesses_before = list[Span](), list[Span]()
    in_order = sorted([*((span, True) for span in gold), *((span, False) for span in predicted)])
    for span, is_gold in in_order:
        others = guesses_before if is_gold else known_before
        others[:] = [other for other in others if other.end > span.start]
        yield from ((span, other) if is_gold else (other, span) for other in others)
        (known_before if is_gold else guesses_before).append(span)


def exact_counts(
    gold: Collection[_Value], predicted: Collection[_Value], label: Callable[[_Value], str]
) -> dict[str, Counts]:
    """The counts of one text by label, where equal values are right. label: of a value."""
    right = set(gold) & set(predicted)
    return _counts(*(Counter(map(label, values)) for values in (right, predicted, gold)))


def overlapping_counts(gold: Collection[Span], predicted: Collection[Span]) -> dict[str, Counts]:
    """The counts of one text by label, where entities of one label that share characters are right."""
    right = Counter(known.label for known, guess in matched(gold, predicted) if known.label == guess.label)
    return _counts(right, *(Counter(span.label for span in spans) for spans in (predicted, gold)))


def _counts(right: Counter[str], predicted: Counter[str], gold: Counter[str]) -> dict[str, Counts]:
    return {label: Counts(right[label], predicted[label], gold[label]) for label in {*predicted, *gold}}


def confusion(texts: Sequence[tuple[Collection[Span], Collection[Span]]]) -> list[Confusion]:
    """What the known entities are predicted as, over all texts, the most frequent first. texts: known and predicted
    entities of each."""
    counts: Counter[tuple[str | None, str | None]] = Counter()
    for gold, predicted in texts:
        pairs = matched(gold, predicted)
        counts.update((known.label, guess.label) for known, guess in pairs)
        counts.update((known.label, None) for known in set(gold) - {known for known, _ in pairs})
        counts.update((None, guess.label) for guess in set(predicted) - {guess for _, guess in pairs})
    in_order = sorted(counts.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1] or ""))
    return [Confusion(*labels, count) for labels, count in in_order]


def scores(texts: Sequence[ByLabel], labels: Sequence[str], samples: int = SAMPLES, seed: int = SEED) -> Scores:
    """The scores of `labels`, and of all of them together. texts: the counts of each text."""
    rows: dict[str, list[tuple[int, Counts]]] = {label: [] for label in labels}
    micro: list[tuple[int, Counts]] = []
    for index, by_label in enumerate(texts):
        for label in labels:
            if label in by_label:
                rows[label].append((index, by_label[label]))
        micro.append((index, _sum([by_label[label] for label in labels if label in by_label])))
    weights = _weights(len(texts), samples, seed)
    return Scores({label: _score(rows[label], weights) for label in labels}, _score(micro, weights))


def _weights(texts: int, samples: int, seed: int) -> list[list[int]]:
    """How often each text is in each of the samples, which are drawn with replacement."""
    rng = random.Random(seed)
    weights = [[0] * texts for _ in range(samples)]
    for weight in weights:
        for index in rng.choices(range(texts), k=texts):
            weight[index] += 1
    return weights


def _score(rows: Sequence[tuple[int, Counts]], weights: Sequence[Sequence[int]]) -> Score:
    """rows: the texts with the label, and their counts."""
    total = _sum([counts for _, counts in rows])
    resampled = list(_resampled(rows, weights))
    return Score(
        *total,
        precision=precision(total),
        recall=recall(total),
        f1=f1(total),
        precision_interval=_interval(map(precision, resampled)),
        recall_interval=_interval(map(recall, resampled)),
        f1_interval=_interval(map(f1, resampled)),
    )


def _resampled(rows: Sequence[tuple[int, Counts]], weights: Sequence[Sequence[int]]) -> Iterator[Counts]:
    if not rows:
        return
    columns = list(zip(*(counts for _, counts in rows), strict=True))
    indices = [index for index, _ in rows]
    chosen = itemgetter(*indices, indices[0])  # at least two, so that it returns a tuple
    for weight in weights:
        of_rows = chosen(weight)[:-1]
        yield Counts(*(sum(map(mul, column, of_rows)) for column in columns))


def _interval(values: Iterable[float | None]) -> tuple[float, float] | None:
    in_order = sorted(value for value in values if value is not None)
    if not in_order:
        return None
    last = len(in_order) - 1
    return in_order[round(last * _TAIL)], in_order[round(last * (1 - _TAIL))]


def _sum(counts: Sequence[Counts]) -> Counts:
    return Counts(*map(sum, zip(*counts, strict=True))) if counts else Counts(0, 0, 0)
