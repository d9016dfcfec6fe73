"""Scores of every span of up to K words for every label, without a representation of every span.

gliner represents each span by an MLP over its two ends, and multiplies the result with the embedding p of each label.
For `markerV0` that MLP is `W2 z + b2` with `z = relu(W1 [relu(s_i); relu(e_j)] + b1)`, where s and e are projections of
the first word i and the last word j. Two rewrites, exact up to rounding:

    W1 [relu(s_i); relu(e_j)] = W1s relu(s_i) + W1e relu(e_j)         projected once per word, added per span
    (W2 z + b2) . p  =  z . (W2^T p) + b2 . p                         W2 is folded into the labels

`marker` has no second ReLU, so a score is the sum of one score for each end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from gliner.modeling.context_encoders import IdentityContextEncoder
from torch import nn
from torch.nn import functional as F

from gliner_bento.engine.heads.predictions import WordSpan
from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.projection import Projection, linear_layers
from gliner_bento.engine.layers.rows import PaddedRows, TextRows, copied

# Maximum elements of the spans' hidden layer in one chunk. A packed chunk fits a core's cache, and a padded one takes a
# small part of GPU memory.
_MAX_ELEMENTS = {"packed": 1 << 20, "padded": 1 << 28}

# Span modes of gliner in which a text's representations depend on its padding.
DEPENDS_ON_PADDING = frozenset({"markerV1", "markerV2"})


class SpanScorer(Protocol):
    """Encodes and scores the spans of words."""

    name: str

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> Any:
        """The encoded spans of `words` (W, D)."""

    def scores(self, spans: Any, labels: torch.Tensor, label_rows: TextRows) -> list[torch.Tensor]:
        """Logits of each block of texts (see `TextRows.blocks`), shape (texts, words, K, labels).

        Logits of spans beyond a text's last word, and of padding, are undefined. spans: the encoded spans."""

    def represent(self, spans: Any, texts: Sequence[int], selected: Sequence[Sequence[WordSpan]]) -> torch.Tensor:
        """Representations (N, D) of the spans `selected` of each of `texts`.

        texts: indexes of texts with the same adapter; a single text if the batch is not padded."""


class WordEnds(NamedTuple):
    """All spans of a batch, encoded as what each word contributes as first and as last word of a span, (W, H) each."""

    first: torch.Tensor
    last: torch.Tensor
    word_rows: TextRows

    def of_spans(self, texts: Sequence[int], spans: Sequence[Sequence[WordSpan]]) -> tuple[torch.Tensor, torch.Tensor]:
        """The contributions of the first and of the last word of these spans of each text, (N, H) each."""
        first, last = rows_of_spans(self.word_rows, texts, spans, self.first.device)
        return self.first[first], self.last[last]


class Represented(NamedTuple):
    """The spans of a batch by their representations, (texts, words, K, D) of each block of texts."""

    blocks: Sequence[torch.Tensor]
    word_rows: TextRows


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
    """(2, N): the rows of the first and of the last word of each text's spans."""
    starts = [word_rows.firsts[text] for text in texts]
    rows = [(row + first, row + last) for row, of_text in zip(starts, spans, strict=True) for first, last in of_text]
    return copied(torch.tensor(rows).T, device)


def multiplied(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`x @ weight.T + bias` of each text, (texts, ..., C).

    x: (texts, ..., D). weight: (texts, C, D). bias: (texts, C)."""
    if len(x) == 1:
        return F.linear(x[0], weight[0], None if bias is None else bias[0])[None]
    rows, weight = x.flatten(1, -2), weight.transpose(1, 2)
    y = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias[:, None], rows, weight)
    return y.view(*x.shape[:-1], -1)


class MarkerV0(SpanScorer):
    """gliner's `SpanMarkerV0`, factorised."""

    name = "factorised markerV0 spans"

    def __init__(self, layer: Any, max_width: int, layers: LayerFactory) -> None:
        self._relu_of_sums = layers.kernels.relu_of_sums
        self._own_shapes = layers.own_shapes
        (start, start_out), (end, end_out) = linear_layers(layer.project_start), linear_layers(layer.project_end)
        hidden, out = linear_layers(layer.out_project)
        size = start_out.out_features
        self._max_width = max_width
        self._max_elements = _MAX_ELEMENTS["padded" if layers.padded else "packed"]
        self._ends = layers.linear(start, end, activation="relu")
        self._split = start.out_features
        self._start = layers.linear(start_out, activation="relu")
        self._end = layers.linear(end_out, activation="relu")
        self._hidden_start = layers.linear(WeightSlice(hidden, inputs=slice(size)))
        self._hidden_end = layers.linear(WeightSlice(hidden, inputs=slice(size, None), biased=False))
        self._fold = layers.linear(WeightSlice(out, "transposed"))
        self._out = layers.linear(out)
        self._out_bias = layers.linear(WeightSlice(out, "bias"))

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> WordEnds:
        slot_rows = word_rows.slot_rows
        ends = self._ends(words, slot_rows)
        start = self._hidden_start(self._start(ends[:, : self._split].contiguous(), slot_rows), slot_rows)
        end = self._hidden_end(self._end(ends[:, self._split :].contiguous(), slot_rows), slot_rows)
        return WordEnds(start, end, word_rows)

    def scores(self, spans: WordEnds, labels: torch.Tensor, label_rows: TextRows) -> list[torch.Tensor]:
        weights = label_rows.blocks(self._fold(labels, label_rows.slot_rows))
        offsets = label_rows.blocks(self._out_bias(labels, label_rows.slot_rows)[:, 0])
        firsts = spans.word_rows.blocks(spans.first)
        lasts = spans.word_rows.reaching(spans.last, self._max_width - 1)
        scores = []
        for first, last, weight, offset in zip(firsts, lasts, weights, offsets, strict=True):
            chunks = []
            for hidden in self._hidden(first, last):
                with self._own_shapes():
                    chunks.append(multiplied(hidden, weight, offset))
            scores.append(chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1))
        return scores

    def represent(self, spans: WordEnds, texts: Sequence[int], selected: Sequence[Sequence[WordSpan]]) -> torch.Tensor:
        first, last = spans.of_spans(texts, selected)
        hidden = F.relu(first + last)
        return self._out(hidden, spans.word_rows.slot_rows_of(texts[0], len(hidden)))

    def _hidden(self, first: torch.Tensor, last: torch.Tensor) -> Iterator[torch.Tensor]:
        """The hidden layer of a block's spans, in chunks of words: (texts, words, K, H)."""
        texts, words, size = first.shape
        step = max(1, self._max_elements // (texts * self._max_width * size))
        for start in range(0, words, step):
            reached = last[:, start : start + step + self._max_width - 1]
            yield self._relu_of_sums(first[:, start : start + step], reached, self._max_width)


class Marker(SpanScorer):
    """gliner's `SpanMarker`, factorised: a score is the sum of one score for each end."""

    name = "factorised marker spans"

    def __init__(self, layer: Any, max_width: int, layers: LayerFactory) -> None:
        out = layer.out_project
        size = out.out_features
        self._max_width = max_width
        self._own_shapes = layers.own_shapes
        self._start, self._end = Projection(layer.project_start, layers), Projection(layer.project_end, layers)
        self._fold_start = layers.linear(WeightSlice(out, "transposed", inputs=slice(size)))
        self._fold_end = layers.linear(WeightSlice(out, "transposed", inputs=slice(size, None)))
        self._out = layers.linear(out)
        self._out_bias = layers.linear(WeightSlice(out, "bias"))

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> WordEnds:
        start, end = self._start(words, word_rows.slot_rows), self._end(words, word_rows.slot_rows)
        return WordEnds(F.relu(start), F.relu(end), word_rows)

    def scores(self, spans: WordEnds, labels: torch.Tensor, label_rows: TextRows) -> list[torch.Tensor]:
        slot_rows = label_rows.slot_rows
        first_weights, last_weights = self._fold_start(labels, slot_rows), self._fold_end(labels, slot_rows)
        blocks = zip(
            spans.word_rows.blocks(spans.first),
            spans.word_rows.blocks(spans.last),
            label_rows.blocks(first_weights),
            label_rows.blocks(last_weights),
            label_rows.blocks(self._out_bias(labels, slot_rows)[:, 0]),
            strict=True,
        )
        scores = []
        for first, last, first_weight, last_weight, offset in blocks:
            with self._own_shapes():
                of_first, of_last = multiplied(first, first_weight, offset), multiplied(last, last_weight)
            reached = F.pad(of_last, (0, 0, 0, self._max_width - 1)).unfold(1, self._max_width, 1)
            scores.append(of_first[:, :, None] + reached.transpose(2, 3))
        return scores

    def represent(self, spans: WordEnds, texts: Sequence[int], selected: Sequence[Sequence[WordSpan]]) -> torch.Tensor:
        ends = torch.cat(spans.of_spans(texts, selected), dim=-1)
        return self._out(ends, spans.word_rows.slot_rows_of(texts[0], len(ends)))


class GlinerSpans(SpanScorer):
    """A span layer of gliner that is not factorised: it computes the representation of every span.

    together: compute a padded block in one call per adapter, not per text, because padding does not change results."""

    def __init__(self, layer: nn.Module, max_width: int, mode: str, layers: LayerFactory, *, together: bool) -> None:
        self._own_shapes = layers.own_shapes
        self.name = f"gliner's {mode} spans"
        self._max_width = max_width
        self._together = together
        self._layer = layer

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> Represented:
        if not isinstance(word_rows, PaddedRows):
            return Represented(self._represented(words, word_rows), word_rows)
        if self._together:
            return Represented([torch.cat(self._represented(words, word_rows))], word_rows)
        unpadded = torch.cat(list(word_rows.split(words)))
        by_text = self._represented(unpadded, TextRows(word_rows.counts, word_rows.slots))
        by_text = [F.pad(text, (0, 0, 0, 0, 0, word_rows.height - text.shape[1])) for text in by_text]
        by_text += [torch.zeros_like(by_text[0])] * (word_rows.texts - len(by_text))
        return Represented([torch.cat(by_text)], word_rows)

    def _represented(self, words: torch.Tensor, word_rows: TextRows) -> list[torch.Tensor]:
        """The representations of all spans, (texts, words, K, D) for each block of texts with the same adapter."""
        represented = []
        for slot, block, mask in word_rows.by_slot(words):
            first = torch.arange(block.shape[1], device=block.device)[:, None].expand(-1, self._max_width)
            last = first + torch.arange(self._max_width, device=block.device)
            spans = torch.stack([first, last], dim=-1).flatten(0, 1)
            is_inside = spans[:, 1] < mask.sum(1)[:, None]
            with on_slot(slot), self._own_shapes():
                # As in gliner, spans that end after the last word become (0, 0).
                represented.append(self._layer(block, spans * is_inside[..., None]))
        return represented

    def scores(self, spans: Represented, labels: torch.Tensor, label_rows: TextRows) -> list[torch.Tensor]:
        with self._own_shapes():
            blocks = zip(spans.blocks, label_rows.blocks(labels), strict=True)
            return [multiplied(span_block, label_block) for span_block, label_block in blocks]

    def represent(
        self, spans: Represented, texts: Sequence[int], selected: Sequence[Sequence[WordSpan]]
    ) -> torch.Tensor:
        if isinstance(spans.word_rows, PaddedRows):
            first, last = rows_of_spans(spans.word_rows, texts, selected, spans.blocks[0].device)
            return spans.blocks[0].flatten(0, 1)[first, last - first]
        block = spans.blocks[texts[0]][0]
        first, last = copied(torch.tensor(selected[0]).T, block.device)
        return block[first, last - first]
