"""The result of an evaluation, as `--out` writes it and `--compare` reads it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gliner_bento.errors import one_line
from gliner_bento.files.evaluation.gold import Choice, Example, Link, Span
from gliner_bento.files.evaluation.readers import read_whole
from gliner_bento.files.evaluation.scores import (
    ByLabel,
    Change,
    Confusion,
    Scores,
    changes,
    choice_name,
    choice_pairs,
    confusions,
    exact_counts,
    link_pairs,
    overlapping_counts,
    scores,
    span_pairs,
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model found in a text."""

    entities: frozenset[Span]
    relations: frozenset[Link] = frozenset()
    choices: frozenset[Choice] = frozenset()


@dataclass(frozen=True, slots=True)
class Asked:
    """The names that the model was asked for: labels, relations and classifications."""

    labels: Sequence[str] = ()
    relations: Sequence[str] = ()
    questions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """The scores of one kind of prediction. texts: the counts of each text, in an order that only depends on the
    examples."""

    scores: Scores
    texts: Sequence[ByLabel]

    def change_since(self, before: Section, *, same_texts: bool) -> tuple[Mapping[str, Change], Change]:
        """The change of F1 of each label and of all, since the predictions of `before`. Without intervals unless those
        were for the same texts."""
        if same_texts and len(before.texts) == len(self.texts):
            return changes((before.texts, before.scores.labels), (self.texts, self.scores.labels))
        of_label = {
            label: _difference(before.scores.labels[label].f1, score.f1)
            for label, score in self.scores.labels.items()
            if label in before.scores.labels
        }
        return of_label, _difference(before.scores.micro.f1, self.scores.micro.f1)


def _difference(before: float | None, after: float | None) -> Change:
    return Change(None if before is None or after is None else after - before, None)


@dataclass(frozen=True, slots=True)
class Report:
    """How good the predictions of a model are.

    name: of the model, with what sets it apart from the others in a run. sections: by title; that of entities twice,
    exact and overlapping. gold: a hash of the examples that are scored. texts: how many. failed: the texts without a
    result, with the reason; they are not scored. warnings: number of texts by warning. left_out: number of known
    entities, relations and classes that are not asked for, by label.
    """

    name: str
    gold: str
    texts: int
    sections: Mapping[str, Section]
    confusion: Sequence[Confusion]
    failed: Mapping[str, str]
    warnings: Mapping[str, int]
    left_out: Mapping[str, int]

    @property
    def main(self) -> Scores:
        """The scores that count for `--min-f1`: those of the first section."""
        return next(iter(self.sections.values())).scores

    def change_since(self, before: Report, title: str) -> tuple[Mapping[str, Change], Change] | None:
        """The change of F1 in a section, of each label and of all; None if one of both reports lacks it. Without
        intervals if `before` scores other examples, also because other texts failed."""
        if title not in self.sections or title not in before.sections:
            return None
        return self.sections[title].change_since(before.sections[title], same_texts=self.gold == before.gold)


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a file with reports."""

    runs: Sequence[Report]


EXACT, OVERLAPPING, RELATIONS, CLASSES = "entities, exact", "entities, overlapping", "relations", "classes"


def judge(
    name: str,
    examples: Sequence[Example],
    predictions: Sequence[Prediction | str],
    asked: Asked,
    warnings: Mapping[str, int],
) -> Report:
    """The report on the predictions for `examples`, of which those that are a string are the reason of a failure.

    asked: other known entities, relations and classes do not count. warnings: number of texts by warning.
    """
    both = list(zip(examples, predictions, strict=True))
    failed = {example.where: given for example, given in both if isinstance(given, str)}
    pairs = [(example, given) for example, given in both if isinstance(given, Prediction)]
    pairs.sort(key=lambda pair: content(pair[0]))
    confused: list[Confusion] = []
    sections: dict[str, Section] = {}
    if asked.labels:
        spans = [
            (known_spans(example, asked), given.entities) for example, given in pairs if example.entities is not None
        ]
        exact = [exact_counts(*both_spans, lambda span: span.label) for both_spans in spans]
        sections[EXACT] = _section(exact, asked.labels)
        sections[OVERLAPPING] = _section([overlapping_counts(*both_spans) for both_spans in spans], asked.labels)
        confused += confusions("entities", [span_pairs(*both_spans) for both_spans in spans])
    if asked.relations:
        links = [(known_links(example, asked), given.relations) for example, given in pairs]
        by_link = [exact_counts(*both_links, lambda link: link.relation) for both_links in links]
        sections[RELATIONS] = _section(by_link, asked.relations)
        confused += confusions("relations", [link_pairs(*both_links) for both_links in links])
    if asked.questions:
        choices = [(known_choices(example, asked), answered(example, given)) for example, given in pairs]
        by_choice = [exact_counts(*both_choices, choice_name) for both_choices in choices]
        sections[CLASSES] = _section(by_choice, sorted({name for counts in by_choice for name in counts}))
        confused += confusions("classes", [choice_pairs(*both_choices) for both_choices in choices])
    return Report(
        name=name,
        gold=_digest(example for example, _ in pairs),
        texts=len(pairs),
        sections=sections,
        confusion=confused,
        failed=failed,
        warnings=warnings,
        left_out=_left_out(examples, asked),
    )


def known_spans(example: Example, asked: Asked) -> set[Span]:
    """The known entities that count."""
    return {span for span in example.entities or () if span.label in asked.labels}


def known_links(example: Example, asked: Asked) -> set[Link]:
    """The known relations that count."""
    return {link for link in example.relations if link.relation in asked.relations}


def known_choices(example: Example, asked: Asked) -> set[Choice]:
    """The known classes that count."""
    return {choice for choice in example.choices if choice.question in asked.questions}


def answered(example: Example, prediction: Prediction) -> set[Choice]:
    """The predicted classes of the classifications whose labels are known."""
    return {choice for choice in prediction.choices if choice.question in example.questions}


def _section(texts: Sequence[ByLabel], labels: Sequence[str]) -> Section:
    return Section(scores(texts, labels), texts)


def encoded(reports: Sequence[Report]) -> bytes:
    """The reports as JSON."""
    return msgspec.json.encode(Stored(reports)) + b"\n"


def stored_reports(path: Path) -> Sequence[Report]:
    """The reports in a file. Raises OSError, and ValueError with the path for a file that has none."""
    whole = read_whole(path)
    try:
        stored = msgspec.json.decode(whole, type=Stored)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no output of eval --out: {one_line(error)}") from None
    if not stored.runs or any(
        not run.sections or any(len(section.texts) > run.texts for section in run.sections.values())
        for run in stored.runs
    ):
        raise ValueError(f"{path}: is no output of eval --out: it has no scores")
    return stored.runs


def _left_out(examples: Sequence[Example], asked: Asked) -> dict[str, int]:
    names = Counter[str]()
    for example in examples:
        names.update(span.label for span in set(example.entities or ()) - known_spans(example, asked))
        names.update(link.relation for link in example.relations - known_links(example, asked))
        names.update(choice_name(choice) for choice in example.choices - known_choices(example, asked))
    return dict(sorted(names.items()))


def content(example: Example) -> tuple[object, ...]:
    """What is known of a text, in an order of its own: equal for equal examples of any format."""
    entities, relations = sorted(example.entities or ()), sorted(example.relations)
    classes = sorted(example.questions), sorted(example.choices)
    return example.text, example.entities is None, entities, relations, *classes


def _digest(examples: Iterable[Example]) -> str:
    """A hash of the examples in the order of their content."""
    return hashlib.sha256(msgspec.json.encode([content(example) for example in examples])).hexdigest()[:16]
