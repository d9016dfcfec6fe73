"""Spans to redact, from a model or recognizers, and their union: every covered character is redacted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gliner_bento.paragraphs import paragraphs, rows
from gliner_bento.privacy.recognizers.find import DEFAULT_REGIONS, RECOGNIZERS, candidates
from gliner_bento.privacy.recognizers.labels import PRESIDIO_LABELS

_MIN_SCORE = 0.5


class LabeledEntity(Protocol):
    """An entity of an answer. If it also has a `source`, `pattern` means that a recognizer found it."""

    @property
    def start(self) -> int:
        """Index of the first character."""

    @property
    def end(self) -> int:
        """Index after the last character."""

    @property
    def label(self) -> str:
        """What the entity is."""

    @property
    def score(self) -> float:
        """From 0 to 1."""


@dataclass(frozen=True, slots=True)
class LabeledSpan:
    """Characters [start, end) of a text with a label. by_recognizer: a recognizer found it, not the model. is_denied: a
    deny list has it."""

    start: int
    end: int
    label: str
    by_recognizer: bool = False
    score: float = 0.0
    is_denied: bool = False

    @property
    def chars(self) -> int:
        """The number of characters."""
        return self.end - self.start

    def at(self, start: int, end: int) -> LabeledSpan:
        """Other characters with the same label; `dataclasses.replace` takes three times as long."""
        return LabeledSpan(start, end, self.label, self.by_recognizer, self.score, self.is_denied)


def spans_of(text: str, entities: Iterable[LabeledEntity]) -> list[LabeledSpan]:
    """The spans of the entities in a text. An entity that runs over an empty line has a span for each paragraph, and
    one from row to row of a table a span for each row: the model took several values for one, and none of them may be
    left."""
    return [
        LabeledSpan(start, end, entity.label, getattr(entity, "source", "model") == "pattern", entity.score)
        for entity in entities
        for paragraph in paragraphs(text, entity.start, entity.end)
        for start, end in rows(text, *paragraph)
    ]


def find_patterns(
    text: str, names: Sequence[str] = RECOGNIZERS, regions: Sequence[str] = DEFAULT_REGIONS
) -> list[LabeledSpan]:
    """All matches of recognizers, also those that overlap. regions: of phone numbers."""
    return [
        LabeledSpan(match.start, match.end, PRESIDIO_LABELS[match.entity], by_recognizer=True, score=match.score)
        for match in candidates(text, names, regions=regions)
        if match.score >= _MIN_SCORE
    ]


def merged(spans: Iterable[LabeledSpan]) -> list[LabeledSpan]:
    """The spans in order, overlapping ones joined; empty spans are dropped. A joined span has the label of its longest
    part from a deny list, or else from a recognizer, or else of its longest part; of equally long parts, that of the
    highest score. Its score is the highest.
    """
    groups: list[list[LabeledSpan]] = []
    end = -1
    for span in sorted((span for span in spans if span.chars > 0), key=lambda span: span.start):
        if span.start < end:
            groups[-1].append(span)
        else:
            groups.append([span])
        end = max(end, span.end)
    return [_joined(group) for group in groups]


def _joined(group: Sequence[LabeledSpan]) -> LabeledSpan:
    if len(group) == 1:
        return group[0]
    winner = max(group, key=lambda span: (span.is_denied, span.by_recognizer, span.chars, span.score))
    end, score = max(span.end for span in group), max(span.score for span in group)
    return LabeledSpan(group[0].start, end, winner.label, winner.by_recognizer, score, winner.is_denied)
