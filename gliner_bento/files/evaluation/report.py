"""The result of an evaluation, as `--json` writes it and `--compare` reads it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gliner_bento.errors import one_line
from gliner_bento.files.evaluation.gold import Example, Link, Span
from gliner_bento.files.evaluation.scores import Confusion, Scores, confusion, exact_counts, overlapping_counts, scores

MAX_BYTES = 16 * 2**20
"""Largest stored report."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model found in a text."""

    entities: frozenset[Span]
    relations: frozenset[Link]


@dataclass(frozen=True, slots=True)
class Report:
    """How good the predictions of a model are. exact, overlapping: of entities. relations: None if none are scored.

    gold: a hash of the examples that are scored. texts: how many. failed: the texts without a result, with the
    reason; they are not scored. warnings: number of texts by warning. left_out: number of known entities and relations
    whose label is not asked for, by label.
    """

    model: str
    gold: str
    texts: int
    exact: Scores
    overlapping: Scores
    relations: Scores | None
    confusion: Sequence[Confusion]
    failed: Mapping[str, str]
    warnings: Mapping[str, int]
    left_out: Mapping[str, int]


def judge(
    model: str,
    examples: Sequence[Example],
    predictions: Sequence[Prediction | str],
    labels: Sequence[str],
    relations: Sequence[str],
    warnings: Mapping[str, int],
) -> Report:
    """The report on the predictions for `examples`, of which those that are a string are the reason of a failure.

    labels, relations: those that were asked for; other known entities and relations do not count. warnings: number of
        texts by warning.
    """
    failed = {
        example.where: given for example, given in zip(examples, predictions, strict=True) if isinstance(given, str)
    }
    pairs = [
        (example, given) for example, given in zip(examples, predictions, strict=True) if isinstance(given, Prediction)
    ]
    spans = [([span for span in example.entities if span.label in labels], given.entities) for example, given in pairs]
    links = [
        ([link for link in example.relations if link.relation in relations], given.relations)
        for example, given in pairs
    ]
    by_span = [exact_counts(known, guesses, lambda span: span.label) for known, guesses in spans]
    by_link = [exact_counts(known, guesses, lambda link: link.relation) for known, guesses in links]
    return Report(
        model=model,
        gold=_digest([example for example, _ in pairs]),
        texts=len(pairs),
        exact=scores(by_span, labels),
        overlapping=scores([overlapping_counts(*known_and_predicted) for known_and_predicted in spans], labels),
        relations=scores(by_link, relations) if relations else None,
        confusion=confusion(spans),
        failed=failed,
        warnings=warnings,
        left_out=_left_out(examples, labels, relations),
    )


def stored_report(path: Path) -> Report:
    """The report in a file. Raises OSError, and ValueError with the path for a file that has none."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: must be a file")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB")
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no output of eval --json: {one_line(error)}") from None


def _left_out(examples: Sequence[Example], labels: Sequence[str], relations: Sequence[str]) -> dict[str, int]:
    names = Counter(span.label for example in examples for span in example.entities if span.label not in labels)
    names.update(link.relation for example in examples for link in example.relations if link.relation not in relations)
    return dict(sorted(names.items()))


def _digest(examples: Sequence[Example]) -> str:
    """A hash of the examples, in any order and format."""
    content = sorted((example.text, sorted(example.entities), sorted(example.relations)) for example in examples)
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]
