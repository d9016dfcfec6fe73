"""From scores to spans: the spans above their label's threshold.

The results are those of gliner 0.2.29's decoders (`gliner/decoding/decoder.py`), with each text's own options, in time
linear in the number of spans. Words and labels are numbers here; the module knows no strings and no model.

In shapes, K is the number of words of the longest possible span. The index of a span on this axis is its width - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.predictions import Span, SpanTable, WordSpan
from gliner_bento.engine.layers.buckets import SPANS_PER_TEXT
from gliner_bento.engine.layers.rows import PaddedRows
from gliner_bento.engine.limits import MAX_CANDIDATES, too_many_candidates
from gliner_bento.errors import ScoresNotFinite
from gliner_bento.tasks.extraction import ExtractionItem as Item

Flags = NDArray[np.bool_]
DecodePadded = Callable[[torch.Tensor, Sequence[Prepared]], "list[SpanTable]"]
"""(gliner's padded logits, texts) -> the spans of each text that are above their label's threshold."""


def probabilities(logits: torch.Tensor) -> torch.Tensor:
    """Sigmoid of the logits, in float32 for any dtype of the model, so that a threshold has the same meaning.

    Not computed by `torch.sigmoid`, whose rounding on a CPU depends on a score's position in the tensor.
    Raises `ScoresNotFinite`.
    """
    scores = torch.exp(-logits.float()).add_(1).reciprocal_()
    if bool(scores.isnan().any()):
        raise ScoresNotFinite
    return scores


@dataclass(frozen=True, slots=True)
class PaddedSpans:
    """The spans of a padded batch that are above their text's lowest threshold. All tensors are on the device.

    shape: (texts, words, K, labels).
    scores, above: flat, for each span and label: the score, and whether the score is above the threshold.
    report: flat, for one transfer to the host: the sum of all embeddings; the sum of all scores (a sum is finite
        only if all its terms are); the number of spans above the threshold; the positions of the first
        `SPANS_PER_TEXT * texts` of them, and their scores.
    """

    shape: tuple[int, ...]
    scores: torch.Tensor
    above: torch.Tensor
    report: torch.Tensor

    @classmethod
    def of(cls, logits: torch.Tensor, encoded: EncoderOutput) -> PaddedSpans:
        """Find the spans, without waiting for the device. logits: (texts, words, K, labels)."""
        words, labels = encoded.rows.words, encoded.rows.labels
        assert isinstance(words, PaddedRows)
        assert isinstance(labels, PaddedRows)
        assert encoded.thresholds is not None
        scores = logits.float().sigmoid()
        numbers = torch.arange(max(logits.shape[1:3]), device=logits.device)
        last = numbers[: logits.shape[1], None] + numbers[: logits.shape[2]]
        inside = last < words.device_counts[:, None, None]
        above = scores > encoded.thresholds[:, None, None, None]
        above = (above & inside[..., None] & labels.mask[:, None, None]).flatten()
        # `nonzero` would wait for the number of spans. Instead, the position of the n-th span above the threshold is
        # written to index n - 1. The positions of all others are written to index `size`, which is cut off.
        size = SPANS_PER_TEXT * len(logits)
        count = above.cumsum(0)
        index = torch.where(above, count - 1, size).clamp_max(size)
        positions = index.new_zeros(size + 1).scatter_(0, index, torch.arange(len(above), device=above.device))[:size]
        flat = scores.flatten()
        parts = encoded.sum(), flat.sum(dtype=torch.float32)[None], count[-1:], positions, flat[positions]
        return cls(tuple(logits.shape), flat, above, torch.cat([part.double() for part in parts]))

    def read(self, texts: int) -> list[SpanTable]:
        """The spans of each text. Waits for the device. Raises `ScoresNotFinite`."""
        report = self.report.cpu().numpy()
        size = (len(report) - 3) // 2
        if not np.isfinite(report[:2]).all():
            raise ScoresNotFinite
        number = int(report[2])
        positions, scores = report[3 : 3 + number].astype(np.int64), report[3 + size : 3 + size + number]
        if number > size:  # the report does not have all of them
            at = self.above.nonzero()[:, 0]
            positions, scores = at.cpu().numpy(), self.scores[at].cpu().numpy().astype(np.float64)
        text, first, width_minus_1, label = np.unravel_index(positions, self.shape)
        last = first + width_minus_1
        cuts = np.searchsorted(text, np.arange(texts + 1))
        return [
            SpanTable(first[start:end], last[start:end], label[start:end], scores[start:end])
            for start, end in pairwise(cuts.tolist())
        ]


def decode_padded_spans(logits: torch.Tensor, texts: Sequence[Prepared]) -> list[SpanTable]:
    """Spans above their label's threshold. logits: padded, shape (texts, words, K, labels)."""
    above_lowest = decode_spans(
        [logits[i, : text.words, :, : len(text.item.labels)] for i, text in enumerate(texts)],
        [lowest_threshold(text.item) for text in texts],
    )
    return list(map(above_own_threshold, texts, above_lowest))


def above_own_threshold(text: Prepared, spans: SpanTable) -> SpanTable:
    """The spans that are above their label's threshold. spans: above the text's lowest threshold."""
    if not text.item.label_thresholds:
        return spans
    thresholds = np.asarray(thresholds_of(text.item), np.float32)
    return spans.take(spans.score.astype(np.float32) > thresholds[spans.label])


def lowest_threshold(item: Item) -> float:
    """The lowest threshold of an item's labels."""
    if not item.label_thresholds:
        return item.threshold
    return min((item.label_thresholds.get(name, item.threshold) for name in item.labels), default=item.threshold)


def thresholds_of(item: Item) -> float | NDArray[np.float64]:
    """The threshold of all labels, or an array with the threshold of each label."""
    if not item.label_thresholds:
        return item.threshold
    return np.array([item.label_thresholds.get(name, item.threshold) for name in item.labels])


def decode_spans(logits: Sequence[torch.Tensor], lowest: Sequence[float]) -> list[SpanTable]:
    """Spans above each text's lowest threshold. logits: of each text, shape (words, K, labels).

    The texts are decoded together, with one transfer of the scores above the thresholds to the host.
    """
    device = logits[0].device
    sizes = torch.tensor([scores.numel() for scores in logits])
    thresholds = torch.tensor(lowest, dtype=torch.float32)
    if device.type != "cpu":
        sizes, thresholds = sizes.to(device), thresholds.to(device)
    flat = torch.cat([text.flatten() for text in logits])
    scores = probabilities(flat)
    positions = (scores > thresholds.repeat_interleave(sizes, output_size=len(flat))).nonzero()[:, 0]
    at, above = positions.cpu().numpy(), scores[positions].cpu().numpy()
    text_ends = np.cumsum([text.numel() for text in logits])
    ends = np.searchsorted(at, text_ends)  # of each text's spans, in `at` and `above`
    text_starts, starts = [0, *text_ends[:-1]], [0, *ends[:-1]]
    return [
        _spans(at[start:end] - text_start, above[start:end], (text.shape[0], text.shape[1], text.shape[2]))
        for text, start, end, text_start in zip(logits, starts, ends, text_starts, strict=True)
    ]


def _spans(at: NDArray[np.int64], scores: NDArray[np.float32], shape: tuple[int, int, int]) -> SpanTable:
    """The spans that end in the text. at: positions of spans in the text's scores, which were flattened from `shape`,
    (words, K, labels). scores: the scores at these positions."""
    first, width_minus_1, label = np.unravel_index(at, shape)
    last = first + width_minus_1
    inside = last < shape[0]
    return SpanTable(first[inside], last[inside], label[inside], scores[inside].astype(np.float64))


def decode_tags(scores: NDArray[np.float32], thresholds: float | NDArray[np.float64]) -> SpanTable:
    """Spans of one text. scores: of start, end and inside, shape (words, labels, 3). thresholds: see `thresholds_of`.

    A span's score is the lowest of the start score of its first word, the end score of its last word, and the inside
    scores of all its words. Raises LimitExceeded."""
    start, end, inside = scores[..., 0], scores[..., 1], scores[..., 2]
    spans: list[Span] = []
    # gliner compares inside scores as Python floats with >=, starts and ends as float32 with >.
    is_inside = inside.astype(np.float64) >= thresholds
    rounded = np.asarray(thresholds, np.float32)
    for first, label, lasts in _runs(start > rounded, end > rounded, is_inside):
        lowest_inside = np.minimum.accumulate(inside[first : lasts[-1] + 1, label])[lasts - first]
        lowest = np.minimum(np.minimum(lowest_inside, end[lasts, label]), start[first, label])
        spans += [Span(first, int(last), label, float(score)) for last, score in zip(lasts, lowest, strict=True)]
    return SpanTable.of(spans)


def proposed_spans(scores: NDArray[np.float32], threshold: float) -> list[WordSpan]:
    """gliner's proposed spans: those whose start score, end score and inside scores are all above the threshold for a
    label. A span is repeated for each such label. Raises LimitExceeded."""
    start, end, inside = (scores[..., part] > threshold for part in range(3))
    return [(first, int(last)) for first, _, lasts in _runs(start, end, inside) for last in lasts]


def _runs(start: Flags, end: Flags, inside: Flags) -> Iterator[tuple[int, int, NDArray[np.intp]]]:
    """Yield (first word, label, possible last words) of spans whose words are all inside. Flags have shape (words,
    labels). Raises LimitExceeded."""
    run_ends = np.empty(start.shape, dtype=np.intp)  # the last word of the run of inside words; -1: not inside
    ends_after = np.full(start.shape[1], -1)  # `run_ends` of the next word
    for word in range(len(start) - 1, -1, -1):
        ends_after = np.where(inside[word], np.maximum(ends_after, word), -1)
        run_ends[word] = ends_after
    candidates = 0
    for first, label in np.argwhere(start & inside).tolist():
        lasts = first + np.flatnonzero(end[first : run_ends[first, label] + 1, label])
        candidates += len(lasts)
        if candidates > MAX_CANDIDATES:
            raise too_many_candidates(candidates)
        if len(lasts):
            yield first, label, lasts


def decode_padded_tags(logits: torch.Tensor, texts: Sequence[Prepared]) -> list[SpanTable]:
    """`decode_tags` of padded logits, shape (texts, words, labels, 3)."""
    scores = tag_scores([logits[i, : text.words, : len(text.item.labels)] for i, text in enumerate(texts)])
    return [decode_tags(of_text, thresholds_of(text.item)) for text, of_text in zip(texts, scores, strict=True)]


def padded_tag_report(logits: torch.Tensor, encoded: EncoderOutput) -> torch.Tensor:
    """For one transfer to the host: the sum of all embeddings, then the scores of padded logits, flat."""
    return torch.cat([encoded.sum(), logits.float().sigmoid().flatten()])


def read_padded_tags(
    report: torch.Tensor, shape: Sequence[int], texts: Sequence[Prepared]
) -> list[NDArray[np.float32]]:
    """Each text's scores, shape (words, labels, 3). shape: of the padded logits. Raises `ScoresNotFinite`."""
    scores = report.cpu().numpy()
    if not np.isfinite(scores).all():
        raise ScoresNotFinite
    block = scores[1:].reshape(shape)
    return [of_text[: text.words, : len(text.item.labels)] for text, of_text in zip(texts, block, strict=False)]


def tag_scores(logits: Sequence[torch.Tensor]) -> list[NDArray[np.float32]]:
    """Each text's scores, shape (words, labels, 3), in one transfer to the host. Raises `ScoresNotFinite`."""
    scores = probabilities(torch.cat([text.flatten() for text in logits])).cpu().numpy()
    split = np.split(scores, np.cumsum([text.numel() for text in logits])[:-1])
    return [of_text.reshape(text.shape) for of_text, text in zip(split, logits, strict=True)]
