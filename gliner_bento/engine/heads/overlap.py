"""Greedy overlap resolution, as in gliner's decoders (`gliner/decoding/decoder.py`), linear in the number of spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.predictions import Span, WordSpan


def entities_of(text: Prepared, spans: Sequence[Span]) -> list[Span]:
    """The spans that overlap resolution keeps with the item's options."""
    return resolve_overlaps(spans, flat=text.item.flat_ner, multi_label=text.item.multi_label)


def suppressed_of(text: Prepared, spans: Sequence[Span], kept: Sequence[Span]) -> Sequence[Span]:
    """The spans that were not kept, if the text is a pass of a chunked request: merging may still keep them."""
    if not text.is_pass or len(kept) == len(spans):
        return ()
    entities = set(kept)
    return [span for span in spans if span not in entities]


def resolve_overlaps(spans: Iterable[Span], *, flat: bool, multi_label: bool) -> list[Span]:
    """The spans that greedy overlap resolution keeps, in order of position.

    In order of their scores, a span is kept unless it conflicts with one that was kept: flat, if they share a word;
    nested, if they share a word and neither contains the other. Equal spans conflict unless `multi_label`.
    """
    kept: list[Span] = []
    word_spans: set[WordSpan] = set()
    occupied = _Flat() if flat else _Nested()
    for span in sorted(spans, key=lambda span: -span.score):
        word_span = (span.first, span.last)
        if word_span in word_spans:
            if multi_label:
                kept.append(span)
        elif not occupied.conflicts(*word_span):
            occupied.add(*word_span)
            word_spans.add(word_span)
            kept.append(span)
    return sorted(kept, key=lambda span: span.first)


class _Flat:
    """The words of the kept spans, as bits of one number."""

    def __init__(self) -> None:
        self._words = 0

    def conflicts(self, first: int, last: int) -> bool:
        return bool(self._words >> first & (1 << last - first + 1) - 1)

    def add(self, first: int, last: int) -> None:
        self._words |= (1 << last - first + 1) - 1 << first


class _Nested:
    """The kept spans: for each first word, the last words as bits of one number."""

    def __init__(self) -> None:
        self._lasts: dict[int, int] = {}
        self._widest = 0

    def conflicts(self, first: int, last: int) -> bool:
        """Whether a kept span starts before this one and ends inside it, or the other way round."""
        inside = (1 << last - first) - 1 << first
        if any(self._lasts.get(begin, 0) & inside for begin in range(max(0, first - self._widest), first)):
            return True
        return any(self._lasts.get(begin, 0) >> last + 1 for begin in range(first + 1, last + 1))

    def add(self, first: int, last: int) -> None:
        self._lasts[first] = self._lasts.get(first, 0) | 1 << last
        self._widest = max(self._widest, last - first)
