"""Scores of every span of up to K words for every label, without a representation of every span.

gliner represents each span by an MLP over its two ends and multiplies it with each label. For `markerV0` that MLP is
`W2 relu(W1 [relu(s_i); relu(e_j)] + b1) + b2`, with s and e projections of the first and the last word. Two rewrites,
exact up to rounding:

    W1 [relu(s_i); relu(e_j)] = W1s relu(s_i) + W1e relu(e_j)         projected once per word, added per span
    (W2 z + b2) . p  =  z . (W2^T p) + b2 . p                         W2 is folded into the labels

`marker` has no second ReLU, so a score is the sum of one score per end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from gliner.modeling.context_encoders import IdentityContextEncoder
from torch import nn
from torch.nn import functional as F

from gliner_bento.engine.heads.predictions import WordSpan
from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.projection import Projection, linear_layers
from gliner_bento.engine.layers.rows import PaddedRows, TextRows, copied

# Maximum elements of the spans' hidden layer per chunk: fits a core's cache; padded: a small part of a GPU's memory.
_MAX_ELEMENTS = {"packed": 1 << 20, "padded": 1 << 28}

# Span modes of gliner in which a text's representations depend on its padding.
DEPENDS_ON_PADDING = frozenset({"markerV1", "markerV2"})


class EncodedSpans(Protocol):
    """The spans of a batch, ready to be scored."""

    def scores(self, labels: torch.Tensor, label_rows: TextRows) -> list[torch.Tensor]:
        """Logits of each block of texts (see `TextRows.blocks`), shape (texts, words, K, labels).

        Those of spans beyond a text's last word, and of padding, are undefined."""

    def represent(self, texts: Sequence[int], spans: Sequence[Sequence[WordSpan]]) -> torch.Tensor:
        """Representations of each text's spans, all in one matrix; of one text if they are not padded."""


class SpanScorer(Protocol):
    """Encodes the spans of words."""

    name: str

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> EncodedSpans:
        """`words` (W, D)."""


def span_scorer(model: Any, layers: LayerFactory) -> SpanScorer:
    """The span layer of gliner's model: factorised for the span modes below, else gliner's own layer."""
    layer, max_width = model.span_rep_layer, model.config.max_width
    mode = model.config.span_mode
    identity = isinstance(layer.context_encoder, IdentityContextEncoder)
    if identity and mode == "markerV0":
        return MarkerV0(layer.span_rep_layer, max_width, layers)
    if identity and mode == "marker":
        return Marker(layer.span_rep_layer, max_width, layers)
    layers.adapt(layer)
    return GlinerSpans(layer, max_width, mode, layers, together=identity and mode not in DEPENDS_ON_PADDING)


def rows_of_spans(
    word_rows: TextRows, texts: Sequence[int], spans: Sequence[Sequence[WordSpan]], device: torch.device
) -> torch.Tensor:
    """(2, N): the rows of the first and of the last words of each text's spans."""
    before = [word_rows.firsts[text] for text in texts]
    rows = [(first + row, last + row) for row, of_text in zip(before, spans, strict=True) for first, last in of_text]
    return copied(torch.tensor(rows).T, device)


def multiplied(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`x @ weight.T + bias` of each text, (texts, ..., D), (texts, C, D) and (texts, C): shape (texts, ..., C)."""
    if len(x) == 1:
        return F.linear(x[0], weight[0], None if bias is None else bias[0])[None]
    rows, weight = x.flatten(1, -2), weight.transpose(1, 2)
    y = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias[:, None], rows, weight)
    return y.view(*x.shape[:-1], -1)


class MarkerV0:
    """gliner's `SpanMarkerV0`, factorised."""

    name = "factorised markerV0 spans"

    def __init__(self, layer: Any, max_width: int, layers: LayerFactory) -> None:
        self.relu_of_sums = layers.kernels.relu_of_sums
        self.own_shapes = layers.own_shapes
        (start, start_out), (end, end_out) = linear_layers(layer.project_start), linear_layers(layer.project_end)
        hidden, out = linear_layers(layer.out_project)
        size = start_out.out_features
        self.max_width = max_width
        self.layout = "padded" if layers.padded else "packed"
        self._ends = layers.linear(start, end, activation="relu")
        self._split = start.out_features
        self._start = layers.linear(start_out, activation="relu")
        self._end = layers.linear(end_out, activation="relu")
        self._hidden_start = layers.linear(WeightSlice(hidden, inputs=slice(size)))
        self._hidden_end = layers.linear(WeightSlice(hidden, inputs=slice(size, None), biased=False))
        self.fold = layers.linear(WeightSlice(out, "transposed"))
        self.out = layers.linear(out)
        self.out_bias = layers.linear(WeightSlice(out, "bias"))

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> EncodedSpans:
        """See `SpanScorer`."""
        slot_rows = word_rows.slot_rows
        ends = self._ends(words, slot_rows)
        start = self._hidden_start(self._start(ends[:, : self._split].contiguous(), slot_rows), slot_rows)
        end = self._hidden_end(self._end(ends[:, self._split :].contiguous(), slot_rows), slot_rows)
        return _FactorisedSpans(self, start, end, word_rows)


class _FactorisedSpans:
    """Spans as what their first and last words, (W, H) each, add to the hidden layer."""

    def __init__(self, head: MarkerV0, start: torch.Tensor, end: torch.Tensor, word_rows: TextRows) -> None:
        self._head = head
        self._start, self._end = start, end
        self._word_rows = word_rows

    def scores(self, labels: torch.Tensor, label_rows: TextRows) -> list[torch.Tensor]:
        """See `EncodedSpans`."""
        weights = label_rows.blocks(self._head.fold(labels, label_rows.slot_rows))
        offsets = label_rows.blocks(self._head.out_bias(labels, label_rows.slot_rows)[:, 0])
        starts = self._word_rows.blocks(self._start)
        ends = self._word_rows.reaching(self._end, self._head.max_width - 1)
        scores = []
        for start, end, weight, offset in zip(starts, ends, weights, offsets, strict=True):
            chunks = [self._multiplied(hidden, weight, offset) for hidden in self._hidden(start, end)]
            scores.append(chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1))
        return scores

    def _multiplied(self, hidden: torch.Tensor, weight: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        with self._head.own_shapes():
            return multiplied(hidden, weight, offset)

    def represent(self, texts: Sequence[int], spans: Sequence[Sequence[WordSpan]]) -> torch.Tensor:
        """See `EncodedSpans`."""
        first, last = rows_of_spans(self._word_rows, texts, spans, self._start.device)
        ends = F.relu(self._start[first] + self._end[last])
        return self._head.out(ends, self._word_rows.slot_rows_of(texts[0], len(ends)))

    def _hidden(self, start: torch.Tensor, end: torch.Tensor) -> Iterator[torch.Tensor]:
        """The hidden layer of a block's spans, in chunks of words: (texts, words, K, H)."""
        texts, words, size = start.shape
        width = self._head.max_width
        step = max(1, _MAX_ELEMENTS[self._head.layout] // (texts * width * size))
        for at in range(0, words, step):
            yield self._head.relu_of_sums(start[:, at : at + step], end[:, at : at + step + width - 1], width)


class Marker:
    """gliner's `SpanMarker`, factorised."""

    name = "factorised marker spans"

    def __init__(self, layer: Any, max_width: int, layers: LayerFactory) -> None:
        size = layer.out_project.out_features
        self.max_width = max_width
        out = layer.out_project
        self.own_shapes = layers.own_shapes
        self._start, self._end = Projection(layer.project_start, layers), Projection(layer.project_end, layers)
        self.fold_start = layers.linear(WeightSlice(out, "transposed", inputs=slice(size)))
        self.fold_end = layers.linear(WeightSlice(out, "transposed", inputs=slice(size, None)))
        self.out = layers.linear(out)
        self.out_bias = layers.linear(WeightSlice(out, "bias"))

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> EncodedSpans:
        """See `SpanScorer`."""
        start, end = self._start(words, word_rows.slot_rows), self._end(words, word_rows.slot_rows)
        return _SummedSpans(self, F.relu(start), F.relu(end), word_rows)


class _SummedSpans:
    """Spans by their first and last words (W, D), whose scores are added."""

    def __init__(self, head: Marker, start: torch.Tensor, end: torch.Tensor, word_rows: TextRows) -> None:
        self._head = head
        self._start, self._end = start, end
        self._word_rows = word_rows

    def scores(self, labels: torch.Tensor, label_rows: TextRows) -> list[torch.Tensor]:
        """See `EncodedSpans`."""
        slot_rows = label_rows.slot_rows
        folded = (
            self._head.fold_start(labels, slot_rows),
            self._head.fold_end(labels, slot_rows),
            self._head.out_bias(labels, slot_rows)[:, 0],
        )
        of_words = (self._word_rows.blocks(part) for part in (self._start, self._end))
        of_labels = (label_rows.blocks(part) for part in folded)
        scores = []
        for start, end, *label in zip(*of_words, *of_labels, strict=True):
            with self._head.own_shapes():
                of_start, of_end = multiplied(start, label[0], label[2]), multiplied(end, label[1])
            lasts = F.pad(of_end, (0, 0, 0, self._head.max_width - 1)).unfold(1, self._head.max_width, 1)
            scores.append(of_start[:, :, None] + lasts.transpose(2, 3))
        return scores

    def represent(self, texts: Sequence[int], spans: Sequence[Sequence[WordSpan]]) -> torch.Tensor:
        """See `EncodedSpans`."""
        first, last = rows_of_spans(self._word_rows, texts, spans, self._start.device)
        ends = torch.cat([self._start[first], self._end[last]], dim=-1)
        return self._head.out(ends, self._word_rows.slot_rows_of(texts[0], len(ends)))


class GlinerSpans:
    """Any span layer of gliner: every span of a text is represented.

    together: padding does not change a text's result, so a padded block takes one call for each adapter."""

    def __init__(self, layer: nn.Module, max_width: int, mode: str, layers: LayerFactory, *, together: bool) -> None:
        self.own_shapes = layers.own_shapes
        self.name = f"gliner's {mode} spans"
        self.max_width = max_width
        self._together = together
        self._layer = layer

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> EncodedSpans:
        """See `SpanScorer`."""
        by_text = isinstance(word_rows, PaddedRows) and not self._together
        rows = TextRows(word_rows.counts, word_rows.slots) if by_text else word_rows
        if by_text:
            words = torch.cat(list(word_rows.split(words)))
        represented = []
        for slot, block, mask in rows.by_slot(words):
            with on_slot(slot), self.own_shapes():
                represented.append(self._represent(block, mask))
        if isinstance(word_rows, PaddedRows) and by_text:
            represented = [F.pad(text, (0, 0, 0, 0, 0, word_rows.height - text.shape[1])) for text in represented]
            represented += [torch.zeros_like(represented[0])] * (word_rows.texts - len(represented))
        return _RepresentedSpans(self, represented, word_rows)

    def _represent(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(texts, words, D) -> (texts, words, K, D). mask: (texts, words)."""
        first = torch.arange(words.shape[1], device=words.device)[:, None].expand(-1, self.max_width)
        last = first + torch.arange(self.max_width, device=words.device)
        # Spans beyond the last word are (0, 0), as gliner's mask makes them.
        spans = torch.stack([first, last], dim=-1).flatten(0, 1)
        inside = spans[:, 1] < mask.sum(1)[:, None]
        represented: torch.Tensor = self._layer(words, spans * inside[..., None])
        return represented


class _RepresentedSpans:
    """Spans by their representations, (texts, words, K, D) of each block."""

    def __init__(self, head: GlinerSpans, blocks: Sequence[torch.Tensor], word_rows: TextRows) -> None:
        self._head = head
        self._blocks = [torch.cat(list(blocks))] if isinstance(word_rows, PaddedRows) else blocks
        self._word_rows = word_rows

    def scores(self, labels: torch.Tensor, label_rows: TextRows) -> list[torch.Tensor]:
        """See `EncodedSpans`."""
        with self._head.own_shapes():
            of_texts = zip(self._blocks, label_rows.blocks(labels), strict=True)
            return [multiplied(spans, of_text) for spans, of_text in of_texts]

    def represent(self, texts: Sequence[int], spans: Sequence[Sequence[WordSpan]]) -> torch.Tensor:
        """See `EncodedSpans`."""
        if isinstance(self._word_rows, PaddedRows):
            first, last = rows_of_spans(self._word_rows, texts, spans, self._blocks[0].device)
            return self._blocks[0].flatten(0, 1)[first, last - first]
        first, last = copied(torch.tensor(spans[0]).T, self._blocks[0].device)
        return self._blocks[texts[0]][0][first, last - first]
