"""Spans to redact, and overlap resolution: what any span covers is redacted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [start, end) of a text, and what they are."""

    start: int
    end: int
    label: str

    @property
    def chars(self) -> int:
        """Its length."""
        return self.end - self.start


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans that do not overlap and cover the same characters, in order; each has the label of its longest part.

    Of equally long parts, the first that was given counts. Empty spans are dropped.
    """
    groups: list[list[Span]] = []
    end = -1
    for span in sorted((span for span in spans if span.chars > 0), key=lambda span: span.start):
        if span.start < end:
            groups[-1].append(span)
        else:
            groups.append([span])
        end = max(end, span.end)
    return [
        Span(group[0].start, max(span.end for span in group), max(group, key=lambda span: span.chars).label)
        for group in groups
    ]
