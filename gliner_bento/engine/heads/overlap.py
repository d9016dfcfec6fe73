"""Overlap resolution: greedy, as in gliner's decoders (`gliner/decoding/decoder.py`), or by a policy of gliner2
(`gliner2/inference/overlap.py`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.empty_lines import within_paragraphs
from gliner_bento.engine.heads.predictions import NO_SPANS, Indices, Predictions, SpanTable
from gliner_bento.engine.limits import MAX_CANDIDATES, kept_of, too_many_candidates
from gliner_bento.tasks.extraction import ExtractionItem as Item


class Resolved(NamedTuple):
    """The spans of a text that overlap resolution and the item's limit keep.

    suppressed: the spans that overlap resolution drops, if the text is a pass of a chunked request: merging may still
        keep them.
    cut: `max_entities` if that limit dropped spans. The limit does not apply to a pass of a chunked request.
    """

    entities: SpanTable
    suppressed: SpanTable = NO_SPANS
    cut: Sequence[str] = ()


def resolve(text: Prepared, spans: SpanTable, *, within_labels: bool = False) -> Resolved:
    """The text's entities: the spans that overlap resolution keeps or, in a relation pass, the given entities.

    Spans that run over an empty line, or that an allow list allows, are no candidates: they suppress no others.
    within_labels: see `kept_spans`. Raises LimitExceeded."""
    item = text.item
    if text.payload.entities is not None:
        return Resolved(text.payload.entities)
    spans = _without_allowed(text, within_paragraphs(text, spans))
    if not len(spans):
        return Resolved(spans)
    if len(spans) > MAX_CANDIDATES:
        raise too_many_candidates(len(spans))
    kept = kept_spans(spans, item, within_labels=within_labels)
    entities = spans.take(kept)
    if text.is_pass:
        dropped = np.ones(len(spans), np.bool_)
        dropped[kept] = False
        return Resolved(entities, NO_SPANS if len(kept) == len(spans) else spans.take(dropped))
    # No entity is longer than the text, so these are also within the limit on characters.
    if len(entities) <= item.max_entities and len(entities) * len(item.text) <= item.max_entities:
        return Resolved(entities)
    fitting = kept_of(item, "max_entities", entities.score, chars_of(text, entities))
    return Resolved(entities) if fitting is None else Resolved(entities.take(fitting), cut=("max_entities",))


def _without_allowed(text: Prepared, spans: SpanTable) -> SpanTable:
    """The spans that are not inside one of the item's `allowed` parts of the text."""
    allowed = text.item.allowed
    if not allowed or not len(spans):
        return spans
    bounds, own = text.payload.bounds, text.payload.own
    starts = bounds[spans.first, 0]
    # A text may have many, and a pass concerns those around it alone.
    from_, to = (bisect_right(allowed, start, key=itemgetter(0)) for start in (starts.min(), starts.max()))
    near = np.array([(-1, -1), *allowed[max(0, from_ - 1) : to]], np.int64)
    before = np.searchsorted(near[:, 0], starts, "right") - 1  # the last that begins at or before a span
    last = spans.last if own.stop is None else np.minimum(spans.last, own.stop - 1)
    return spans.take(near[before, 1] < bounds[last, 1])


def predictions_of(text: Prepared, spans: SpanTable) -> Predictions:
    """The predictions of a text without relations. Raises LimitExceeded."""
    return Predictions(*resolve(text, spans))


def chars_of(text: Prepared, spans: SpanTable) -> NDArray[np.int64]:
    """Length of each span's text."""
    bounds = text.payload.bounds
    lengths: NDArray[np.int64] = bounds[spans.last, 1] - bounds[spans.first, 0]
    return lengths


def kept_spans(spans: SpanTable, item: Item, *, within_labels: bool) -> Indices:
    """Indices of the spans that overlap resolution with the item's options keeps, in order of position.

    Of several spans of the same words, only the best by score is compared with spans of other words. The rest are
    dropped or, with `multi_label`, kept if the best is kept. within_labels: as in gliner2, only spans of the same label
    conflict.
    """
    greedy = item.overlap in (None, "nested")
    if len(spans) < 2 or (greedy and (spans.first[1:] > spans.last[:-1]).all()):  # mostly, no span overlaps the next
        return np.arange(len(spans))
    compared = spans
    if within_labels:  # each label gets its own range of word numbers, so that spans of two labels never overlap
        shift = spans.label * (spans.last.max() + 1)
        compared = replace(spans, first=spans.first + shift, last=spans.last + shift)
    by_score = np.argsort(-compared.score, kind="stable")
    if greedy:
        flat = item.overlap is None and (within_labels or item.flat_ner)
        kept = _greedy(compared, by_score, flat=flat)
    else:
        _, best = np.unique(compared.word_keys[by_score], return_index=True)  # into `by_score`, in order of words
        kept = by_score[best[_POLICIES[str(item.overlap)](compared.take(by_score[best]))]]
    if item.multi_label:
        of_kept_words = np.isin(compared.word_keys, compared.word_keys[kept])
        kept = by_score[of_kept_words[by_score]] if greedy else np.flatnonzero(of_kept_words)
    if greedy and within_labels:
        kept = _by_first_word(kept, compared)  # so that spans with equal first words are in order of labels
    return _by_first_word(kept, spans)


def _by_first_word(indices: Indices, spans: SpanTable) -> Indices:
    return indices[np.argsort(spans.first[indices], kind="stable")]


# gliner2's policies. Each takes spans of different words, and returns the indices of those that it keeps.


def _all(spans: SpanTable) -> Indices:
    return np.arange(len(spans))


def _longest(spans: SpanTable) -> Indices:
    """The spans that are inside no other span."""
    by_first = np.lexsort((-spans.last, spans.first))  # of equal first words, the longest span first
    lasts = spans.last[by_first]
    last_before = np.maximum.accumulate(np.concatenate([[-1], lasts[:-1]]))
    longest: Indices = by_first[lasts > last_before]
    return longest


def _heaviest(spans: SpanTable) -> Indices:
    """The set of spans without overlaps that has the highest sum of scores (weighted interval scheduling)."""
    by_last = np.lexsort((spans.first, spans.last))
    scores = spans.score[by_last].tolist()
    # For each span: the number of spans that end before it begins.
    ended = np.searchsorted(spans.last[by_last], spans.first[by_last]).tolist()
    best_sums = [0.0]  # at index n: the highest sum of the first n spans
    for number, score in enumerate(scores):
        best_sums.append(max(best_sums[number], best_sums[ended[number]] + score))
    chosen: list[int] = []
    count = len(scores)
    while count:
        if best_sums[count] > best_sums[count - 1]:
            chosen.append(count - 1)
            count = ended[count - 1]
        else:
            count -= 1
    heaviest: Indices = by_last[chosen]
    return heaviest


_POLICIES = {"allow": _all, "flat": _heaviest, "longest": _longest}


def _greedy(spans: SpanTable, by_score: Indices, *, flat: bool) -> Indices:
    """gliner's greedy search: in order, a span is kept unless it conflicts with a span that was kept before. Returns
    those of `by_score`, indices with the highest score first, whose spans are kept.

    Two spans conflict if they have the same words, or if they share a word and, unless `flat`, neither of them contains
    the other."""
    firsts, lasts = spans.first.tolist(), spans.last.tolist()
    kept = _Flat() if flat else _Nested(max(lasts) + 1)
    return np.array([index for index in by_score.tolist() if kept.add(firsts[index], lasts[index])])


class _Flat:
    """The words of the kept spans, as bits of one number."""

    def __init__(self) -> None:
        self._words = 0

    def add(self, first: int, last: int) -> bool:
        """Keep a span unless it conflicts with a kept one; returns whether it is kept."""
        words = (1 << (last - first + 1)) - 1
        if (self._words >> first) & words:
            return False
        self._words |= words << first
        return True


class _Nested:
    """The kept spans: for each last word the smallest first word, and for each first word the largest last word."""

    def __init__(self, words: int) -> None:
        self._first_of = [words] * words
        self._last_of = [-1] * words
        self._kept: set[tuple[int, int]] = set()

    def add(self, first: int, last: int) -> bool:
        """As `_Flat.add`."""
        firsts = self._first_of[first:last]  # of kept spans that end inside this span, before its last word
        lasts = self._last_of[first + 1 : last + 1]  # of kept spans that begin inside it, after its first word
        if (first, last) in self._kept or (firsts and (min(firsts) < first or max(lasts) > last)):
            return False
        self._kept.add((first, last))
        self._first_of[last] = min(self._first_of[last], first)
        self._last_of[first] = max(self._last_of[first], last)
        return True
