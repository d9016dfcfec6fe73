"""From scores to spans: which spans are above an item's threshold, and which of them stand beside each other.

Gives what gliner 0.2.29's decoders give (`gliner/decoding/decoder.py`), row by row with the row's own options, in time
that grows with the number of spans and not with its square. Knows words and label numbers, no text and no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import TooLarge

Flags = NDArray[np.bool_]

# Scored spans of one item that are looked at: above, Python's memory and time are the item's, not the model's.
MAX_CANDIDATES = 200_000


class Span(NamedTuple):
    """Words `first` to `last`, both included; `label` counts the item's labels from 0."""

    first: int
    last: int
    label: int
    score: float


def too_many(number: int, limit: int) -> TooLarge:
    """The threshold is so low that the item costs more than any answer is worth."""
    return TooLarge(f"threshold: {number} spans are above it, more than {limit}; raise it", param="threshold")


def probabilities(logits: torch.Tensor) -> torch.Tensor:
    """Scores in float32. Raises ArithmeticError if one is not a number.

    In float32 for bfloat16 logits too: a threshold means the same whatever the model computes in.
    """
    scores = torch.sigmoid(logits.float())
    if bool(scores.isnan().any()):
        raise ArithmeticError("the model's scores are not numbers")
    return scores


def spans_above(logits: torch.Tensor, rows: Sequence[Prepared]) -> list[list[Span]]:
    """Spans above each row's threshold; `logits` has shape (B, first word, width - 1, label)."""
    return spans_found([logits[i, : row.words, :, : len(row.item.labels)] for i, row in enumerate(rows)], rows)


def spans_found(logits: Sequence[torch.Tensor], rows: Sequence[Prepared]) -> list[list[Span]]:
    """Spans above each row's threshold; each row's logits have shape (words, width - 1, labels).

    One pass over all rows on the device, and one transfer of the few that are left.
    """
    device = logits[0].device
    sizes = torch.tensor([row.numel() for row in logits])
    thresholds = torch.tensor([row.item.threshold for row in rows], dtype=torch.float32)
    if device.type != "cpu":
        sizes, thresholds = sizes.to(device), thresholds.to(device)
    flat = torch.cat([row.flatten() for row in logits])
    scores = probabilities(flat)
    places = (scores > thresholds.repeat_interleave(sizes, output_size=len(flat))).nonzero()[:, 0]
    at, above = places.cpu().numpy(), scores[places].cpu().numpy()
    ends = np.cumsum([row.numel() for row in logits])
    cuts = np.searchsorted(at, ends)
    return [
        _spans(at[start:end] - (last - row.numel()), above[start:end], (row.shape[0], row.shape[1], row.shape[2]))
        for row, start, end, last in zip(logits, [0, *cuts[:-1]], cuts, ends, strict=True)
    ]


def _spans(at: NDArray[np.int64], scores: NDArray[np.float32], shape: tuple[int, int, int]) -> list[Span]:
    """Spans inside the text, of places in flattened scores of this `shape`."""
    first, width, label = np.unravel_index(at, shape)
    inside = first + width < shape[0]
    if (candidates := int(inside.sum())) > MAX_CANDIDATES:
        raise too_many(candidates, MAX_CANDIDATES)
    columns = (first, first + width, label, scores)
    return [Span(*span) for span in zip(*(column[inside].tolist() for column in columns), strict=True)]


def tagged_spans(scores: NDArray[np.float32], threshold: float) -> list[Span]:
    """Spans of one row from scores of start, end and inside, shape (words, labels, 3): its lowest score is a span's."""
    start, end, inside = scores[..., 0], scores[..., 1], scores[..., 2]
    spans: list[Span] = []
    # gliner compares inside scores as Python numbers and lets equality pass; starts and ends as float32, and not.
    is_inside = inside.astype(np.float64) >= threshold
    for first, label, lasts in tagged_runs(start > threshold, end > threshold, is_inside):
        lowest = np.minimum.accumulate(inside[first : lasts[-1] + 1, label])
        least = np.minimum(np.minimum(lowest[lasts - first], end[lasts, label]), start[first, label])
        spans += [Span(first, int(last), label, float(score)) for last, score in zip(lasts, least, strict=True)]
    return spans


def tagged_boundaries(scores: NDArray[np.float32], threshold: float) -> list[tuple[int, int]]:
    """First and last words that gliner proposes as spans, once for each label that proposes them."""
    start, end, inside = (scores[..., part] > threshold for part in range(3))
    return [(first, int(last)) for first, _, lasts in tagged_runs(start, end, inside) for last in lasts]


def tagged_runs(start: Flags, end: Flags, inside: Flags) -> Iterator[tuple[int, int, NDArray[np.intp]]]:
    """For each start word and label: the last words that may end it, with only inside words between; all (W, C)."""
    reach = np.full(start.shape[1], -1)
    reaches = np.empty(start.shape, dtype=np.intp)
    for word in range(len(start) - 1, -1, -1):
        reach = np.where(inside[word], np.maximum(reach, word), -1)
        reaches[word] = reach
    candidates = 0
    for first, label in np.argwhere(start & inside).tolist():
        lasts = first + np.flatnonzero(end[first : reaches[first, label] + 1, label])
        candidates += len(lasts)
        if candidates > MAX_CANDIDATES:
            raise too_many(candidates, MAX_CANDIDATES)
        if len(lasts):
            yield first, label, lasts


def tag_scores(logits: torch.Tensor, rows: Sequence[Prepared]) -> list[NDArray[np.float32]]:
    """Each row's own scores, shape (its words, its labels, 3), of logits of shape (B, words, labels, 3)."""
    return tags_found([logits[i, : row.words, : len(row.item.labels)] for i, row in enumerate(rows)])


def tags_found(logits: Sequence[torch.Tensor]) -> list[NDArray[np.float32]]:
    """Each row's scores, shape (words, labels, 3), of its logits; one transfer for all."""
    scores = probabilities(torch.cat([row.flatten() for row in logits])).cpu().numpy()
    parts = np.split(scores, np.cumsum([row.numel() for row in logits])[:-1])
    return [part.reshape(row.shape) for part, row in zip(parts, logits, strict=True)]


def chosen(spans: Iterable[Span], *, flat: bool, multi_label: bool) -> list[Span]:
    """The best spans that may stand beside each other, in order of position.

    Best first, a span is taken unless it conflicts with one taken before: flat, if they share a word; nested, if they
    share a word and neither holds the other. The same words twice conflict unless `multi_label`.
    """
    taken: list[Span] = []
    boundaries: set[tuple[int, int]] = set()
    occupied = _Flat() if flat else _Nested()
    for span in sorted(spans, key=lambda span: -span.score):
        boundary = (span.first, span.last)
        if boundary in boundaries:
            if multi_label:
                taken.append(span)
        elif not occupied.conflicts(*boundary):
            occupied.add(*boundary)
            boundaries.add(boundary)
            taken.append(span)
    return sorted(taken, key=lambda span: span.first)


class _Flat:
    """Words taken, as bits of one number."""

    def __init__(self) -> None:
        self._words = 0

    def conflicts(self, first: int, last: int) -> bool:
        return bool(self._words >> first & (1 << last - first + 1) - 1)

    def add(self, first: int, last: int) -> None:
        self._words |= (1 << last - first + 1) - 1 << first


class _Nested:
    """Spans taken: for each first word, the last words as bits of one number."""

    def __init__(self) -> None:
        self._lasts: dict[int, int] = {}
        self._widest = 0

    def conflicts(self, first: int, last: int) -> bool:
        """Whether a span taken begins before this one and ends inside it, or the other way round."""
        inside = (1 << last - first) - 1 << first
        if any(self._lasts.get(begin, 0) & inside for begin in range(max(0, first - self._widest), first)):
            return True
        return any(self._lasts.get(begin, 0) >> last + 1 for begin in range(first + 1, last + 1))

    def add(self, first: int, last: int) -> None:
        self._lasts[first] = self._lasts.get(first, 0) | 1 << last
        self._widest = max(self._widest, last - first)
