"""Spans to redact, from a model or recognizers, and their union: every covered character is redacted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gliner_bento.recognizers.find import DEFAULT_REGIONS, RECOGNIZERS, find
from gliner_bento.recognizers.labels import PRESIDIO_LABELS


@dataclass(frozen=True, slots=True)
class LabeledSpan:
    """Characters [start, end) of a text with a label. by_recognizer: a recognizer found it, not the model."""

    start: int
    end: int
    label: str
    by_recognizer: bool = False

    @property
    def chars(self) -> int:
        """The number of characters."""
        return self.end - self.start


def find_patterns(
    text: str, names: Sequence[str] = RECOGNIZERS, regions: Sequence[str] = DEFAULT_REGIONS
) -> list[LabeledSpan]:
    """The matches of recognizers, in order, without overlaps. regions: of phone numbers."""
    return [
        LabeledSpan(match.start, match.end, PRESIDIO_LABELS[match.entity], by_recognizer=True)
        for match in find(text, names, regions=regions)
    ]


def merged(spans: Iterable[LabeledSpan]) -> list[LabeledSpan]:
    """The spans in order, overlapping ones joined; empty spans are dropped. A joined span has the label of its longest
    part from a recognizer or, if it has no such part, of its longest part; of equally long parts, the first.
    """
    groups: list[list[LabeledSpan]] = []
    end = -1
    for span in sorted((span for span in spans if span.chars > 0), key=lambda span: span.start):
        if span.start < end:
            groups[-1].append(span)
        else:
            groups.append([span])
        end = max(end, span.end)
    return [
        LabeledSpan(
            group[0].start,
            max(span.end for span in group),
            max(group, key=lambda span: (span.by_recognizer, span.chars)).label,
        )
        for group in groups
    ]
