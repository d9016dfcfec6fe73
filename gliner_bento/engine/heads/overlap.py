"""Overlap resolution: greedy, as in gliner's decoders (`gliner/decoding/decoder.py`), or by a policy of gliner2
(`gliner2/inference/overlap.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.predictions import NO_SPANS, Indices, Predictions, SpanTable
from gliner_bento.engine.limits import MAX_CANDIDATES, kept_of, too_many_candidates
from gliner_bento.tasks.extraction import ExtractionItem as Item


class Resolved(NamedTuple):
    """The spans of a text that overlap resolution and the item's limit keep; those that the limit drops are `cut`.

    suppressed: those that overlap resolution drops, if the text is a pass of a chunked request: merging may still keep
        them. A pass has no limit.
    """

    entities: SpanTable
    suppressed: SpanTable = NO_SPANS
    cut: Sequence[str] = ()


def resolve(text: Prepared, spans: SpanTable, *, within_labels: bool = False) -> Resolved:
    """Resolve the overlaps of a text's spans with the item's options; of a pass over given entities, return these.

    within_labels: see `kept_spans`. Raises LimitExceeded."""
    item = text.item
    if text.payload.entities is not None:
        return Resolved(text.payload.entities)
    if len(spans) > MAX_CANDIDATES:
        raise too_many_candidates(len(spans))
    kept = kept_spans(spans, item, within_labels=within_labels)
    entities = spans.take(kept)
    if text.is_pass:
        dropped = np.ones(len(spans), np.bool_)
        dropped[kept] = False
        return Resolved(entities, NO_SPANS if len(kept) == len(spans) else spans.take(dropped))
    # A short text with few entities cannot exceed a limit.
    if len(entities) <= item.max_entities and len(entities) * len(item.text) <= item.max_entities:
        return Resolved(entities)
    fitting = kept_of(item, "max_entities", entities.score, chars_of(text, entities))
    return Resolved(entities) if fitting is None else Resolved(entities.take(fitting), cut=("max_entities",))


def predictions_of(text: Prepared, spans: SpanTable) -> Predictions:
    """The predictions of a text without relations. Raises LimitExceeded."""
    return Predictions(*resolve(text, spans))


def chars_of(text: Prepared, spans: SpanTable) -> NDArray[np.int64]:
    """Length of each span's text."""
    words = text.payload.bounds
    lengths: NDArray[np.int64] = words[spans.last, 1] - words[spans.first, 0]
    return lengths


def kept_spans(spans: SpanTable, item: Item, *, within_labels: bool) -> Indices:
    """Indices of the spans that the item's options keep, in order of position.

    within_labels: as in gliner2: only spans of the same label conflict.
    """
    if not len(spans):
        return np.empty(0, np.intp)
    compared = spans
    if within_labels:  # words of their own for each label
        shift = spans.label * (spans.last.max() + 1)
        compared = replace(spans, first=spans.first + shift, last=spans.last + shift)
    if item.overlap in (None, "nested"):
        flat = item.overlap is None and (within_labels or item.flat_ner)
        kept = resolve_overlaps(compared, flat=flat, multi_label=item.multi_label)
    else:
        order = np.argsort(-compared.score, kind="stable")
        words, best = np.unique(compared.word_spans[order], return_index=True)
        which = _POLICIES[item.overlap](compared.take(order[best]))
        kept = order[best[which]]
        if item.multi_label:
            kept = np.flatnonzero(np.isin(compared.word_spans, words[which]))
    by_position: Indices = kept[np.argsort(spans.first[kept], kind="stable")]
    return by_position


def _all(spans: SpanTable) -> Indices:
    return np.arange(len(spans))


def _longest(spans: SpanTable) -> Indices:
    """Those inside no other span. spans: distinct."""
    order = np.lexsort((-spans.last, spans.first))
    lasts = spans.last[order]
    longest: Indices = order[lasts > np.maximum.accumulate(np.concatenate([[-1], lasts[:-1]]))]
    return longest


def _heaviest(spans: SpanTable) -> Indices:
    """Those of the set without overlaps that has the highest sum of scores. spans: distinct."""
    order = np.lexsort((spans.first, spans.last))
    before = np.searchsorted(spans.last[order], spans.first[order]).tolist()
    scores = spans.score[order].tolist()
    best = [0.0]
    for number, score in enumerate(scores):
        best.append(max(best[number], best[before[number]] + score))
    chosen: list[int] = []
    number = len(scores)
    while number:
        if best[number] > best[number - 1]:
            chosen.append(number - 1)
            number = before[number - 1]
        else:
            number -= 1
    heaviest: Indices = order[chosen]
    return heaviest


_POLICIES = {"allow": _all, "flat": _heaviest, "longest": _longest}


def resolve_overlaps(spans: SpanTable, *, flat: bool, multi_label: bool) -> Indices:
    """Indices of the spans that greedy overlap resolution keeps, in order of position.

    In order of their scores, a span is kept unless it conflicts with one that was kept: flat, if they share a word;
    nested, if they share a word and neither contains the other. Equal spans conflict unless `multi_label`.
    """
    if not len(spans):
        return np.empty(0, np.intp)
    order = np.argsort(-spans.score, kind="stable")
    # Of the labels of the same words, the best decides.
    words = spans.word_spans[order]
    _, best = np.unique(words, return_index=True)
    best.sort()
    occupied = _Flat() if flat else _Nested(int(spans.last.max()) + 1)
    firsts, lasts = spans.first[order[best]].tolist(), spans.last[order[best]].tolist()
    added = [occupied.add(*span) for span in zip(firsts, lasts, strict=True)]
    kept = best[np.array(added)]
    if multi_label:
        kept = np.flatnonzero(np.isin(words, words[kept]))
    kept = order[kept]
    by_position: Indices = kept[np.argsort(spans.first[kept], kind="stable")]
    return by_position


class _Flat:
    """The words of the kept spans, as bits of one number."""

    def __init__(self) -> None:
        self._words = 0

    def add(self, first: int, last: int) -> bool:
        """Keep a span unless it conflicts with a kept one; returns whether it is kept."""
        words = (1 << last - first + 1) - 1
        if self._words >> first & words:
            return False
        self._words |= words << first
        return True


class _Nested:
    """The kept spans: for each last word the smallest first word, and for each first word the largest last word."""

    def __init__(self, words: int) -> None:
        self._first_of = [words] * words
        self._last_of = [-1] * words

    def add(self, first: int, last: int) -> bool:
        """As `_Flat.add`. Conflicts: a kept span starts before this one and ends inside it, or the other way round."""
        before, after = self._first_of[first:last], self._last_of[first + 1 : last + 1]
        if before and (min(before) < first or max(after) > last):
            return False
        self._first_of[last] = min(self._first_of[last], first)
        self._last_of[first] = max(self._last_of[first], last)
        return True
