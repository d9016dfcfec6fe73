"""Precision, recall and F1 of predictions, with intervals, and which labels are confused. Pure functions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter, mul
from typing import Literal, NamedTuple, TypeVar

from gliner_bento.files.evaluation.gold import Choice, Link, Span

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
class Change:
    """The F1 of other predictions for the same texts, less that of the first. The interval holds the difference with a
    probability of 95 %, if the texts are a random sample; None: it is not known."""

    f1: float | None
    interval: tuple[float, float] | None


Kind = Literal["entities", "relations", "classes"]


@dataclass(frozen=True, slots=True)
class Confusion:
    """How many entities of the label `gold` are predicted as `predicted`. None: there is no entity. The same for
    relations of the same head and tail, and for the classes of a text."""

    kind: Kind
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


Pair = tuple[str | None, str | None]
"""A known and a predicted label; None: there is none."""


def confusions(kind: Kind, texts: Iterable[Iterable[Pair]]) -> list[Confusion]:
    """How often each pair occurs in all texts, the most frequent first."""
    counts = Counter(pair for pairs in texts for pair in pairs)
    in_order = sorted(counts.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1] or ""))
    return [Confusion(kind, *labels, count) for labels, count in in_order]


def span_pairs(gold: Collection[Span], predicted: Collection[Span]) -> list[Pair]:
    """What the entities of a text are predicted as."""
    pairs = matched(gold, predicted)
    missed = set(gold) - {known for known, _ in pairs}
    wrong = set(predicted) - {guess for _, guess in pairs}
    return [
        *((known.label, guess.label) for known, guess in pairs),
        *((known.label, None) for known in missed),
        *((None, guess.label) for guess in wrong),
    ]


def link_pairs(gold: Collection[Link], predicted: Collection[Link]) -> list[Pair]:
    """What the relations of a text are predicted as: another relation of the same head and tail, or none."""
    return _value_pairs(gold, predicted, lambda link: (link.head, link.tail), lambda link: link.relation)


def choice_pairs(gold: Collection[Choice], predicted: Collection[Choice]) -> list[Pair]:
    """What the labels of a text are predicted as: another label of the same classification, or none."""
    return _value_pairs(gold, predicted, lambda choice: choice.question, choice_name)


def choice_name(choice: Choice) -> str:
    """The name under which a label of a classification is scored."""
    return f"{choice.question}: {choice.label}"


def _value_pairs(
    gold: Collection[_Value],
    predicted: Collection[_Value],
    key: Callable[[_Value], object],
    name: Callable[[_Value], str],
) -> list[Pair]:
    """Equal values are a pair; then, in the order of their names, those that have the same key."""
    pairs: list[Pair] = [(name(value), name(value)) for value in set(gold) & set(predicted)]
    others = sorted(set(predicted) - set(gold), key=name)
    for known in sorted(set(gold) - set(predicted), key=name):
        other = next((guess for guess in others if key(guess) == key(known)), None)
        if other is not None:
            others.remove(other)
        pairs.append((name(known), None if other is None else name(other)))
    return [*pairs, *((None, name(guess)) for guess in others)]


def scores(texts: Sequence[ByLabel], labels: Sequence[str], samples: int = SAMPLES, seed: int = SEED) -> Scores:
    """The scores of `labels`, and of all of them together. texts: the counts of each text."""
    weights = _weights(len(texts), samples, seed)
    by_label = {label: _score(_rows(texts, [label]), weights) for label in labels}
    return Scores(by_label, _score(_rows(texts, labels), weights))


def changes(
    before: tuple[Sequence[ByLabel], Collection[str]],
    after: tuple[Sequence[ByLabel], Collection[str]],
) -> tuple[dict[str, Change], Change]:
    """The change of F1 of each label that both have, and of all labels together. before, after: the counts of the same
    texts in the same order, and the labels that count. The samples have the same texts of both."""
    weights = _weights(len(before[0]), SAMPLES, SEED)
    by_label = {
        label: _change(_rows(before[0], [label]), _rows(after[0], [label]), weights)
        for label in after[1]
        if label in before[1]
    }
    return by_label, _change(_rows(*before), _rows(*after), weights)


def _change(
    before: Sequence[tuple[int, Counts]], after: Sequence[tuple[int, Counts]], weights: Sequence[Sequence[int]]
) -> Change:
    first, second = (f1(_sum([counts for _, counts in rows])) for rows in (before, after))
    if first is None or second is None:
        return Change(None, None)
    resampled = zip(*(map(f1, _resampled(rows, weights)) for rows in (before, after)), strict=True)
    differences = (None if low is None or high is None else high - low for low, high in resampled)
    return Change(second - first, _interval(differences))


def _rows(texts: Sequence[ByLabel], labels: Collection[str]) -> list[tuple[int, Counts]]:
    """The texts with one of the labels, by index, and their counts of these labels together."""
    rows = []
    for index, by_label in enumerate(texts):
        if counts := [by_label[label] for label in labels if label in by_label]:
            rows.append((index, _sum(counts)))
    return rows


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
