"""Span heads: scores of every span of up to K words for every label, without representing every span.

gliner represents each span by an MLP over its two ends and multiplies it with each label. For `markerV0` that MLP is
`W2 relu(W1 [relu(s_i); relu(e_j)] + b1) + b2`, with s and e projections of the first and the last word. Two rewrites,
exact but for rounding:

    W1 [relu(s_i); relu(e_j)] = W1s relu(s_i) + W1e relu(e_j)         projected once per word, added per span
    (W2 z + b2) . p  =  z . (W2^T p) + b2 . p                         labels are carried back, spans not forth

For `marker`, which has no second ReLU, a score is even a sum of one score of each end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol

import torch
from gliner.modeling.context_encoders import IdentityContextEncoder
from torch import nn
from torch.nn import functional as F

from gliner_bento.adapters.linear import on_slot
from gliner_bento.engine.adaptable import Layers, Part
from gliner_bento.engine.forward.layers import Projection, linears
from gliner_bento.engine.kernels import EAGER, Kernels
from gliner_bento.engine.packing import Rows

# Elements of the spans' hidden layer that are made at once: what stays in a core's cache, or what a GPU has room for.
_ELEMENTS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 28}

Boundary = tuple[int, int]


class MarkedSpans(Protocol):
    """The spans of a batch's words, ready to be scored."""

    def scores(self, labels: torch.Tensor, of_labels: Rows) -> list[torch.Tensor]:
        """For each row its scores, shape (words, K, labels); spans beyond its last word have any score."""

    def represent(self, row: int, boundaries: Sequence[Boundary]) -> torch.Tensor:
        """Shape (len(boundaries), D): representations of spans of one row, by first and last word."""


class SpanHead(Protocol):
    """Marks spans in packed words."""

    name: str

    def __call__(self, words: torch.Tensor, rows: Rows) -> MarkedSpans:
        """`words` (W, D)."""


def span_head(model: Any, layers: Layers, kernels: Kernels = EAGER) -> SpanHead:
    """The head of gliner's model: factorised where its span mode is, else gliner's own layer, row by row."""
    layer, max_width = model.span_rep_layer, model.config.max_width
    mode = model.config.span_mode
    if isinstance(layer.context_encoder, IdentityContextEncoder):
        if mode == "markerV0":
            return MarkerV0(layer.span_rep_layer, max_width, layers, kernels)
        if mode == "marker":
            return Marker(layer.span_rep_layer, max_width, layers)
    layers.adapt(layer)
    return Represented(layer, max_width, mode)


class MarkerV0:
    """gliner's `SpanMarkerV0`, factorised."""

    name = "factorised markerV0 spans"

    def __init__(self, layer: Any, max_width: int, layers: Layers, kernels: Kernels = EAGER) -> None:
        self.relu_of_sums = kernels.relu_of_sums
        (start, start_out), (end, end_out) = linears(layer.project_start), linears(layer.project_end)
        hidden, out = linears(layer.out_project)
        size = start_out.out_features
        self.max_width = max_width
        self._ends = layers.linear(start, end, activation="relu")
        self._split = start.out_features
        self._start = layers.linear(start_out, activation="relu")
        self._end = layers.linear(end_out, activation="relu")
        self._hidden_start = layers.linear(Part(hidden, inputs=slice(size)))
        self._hidden_end = layers.linear(Part(hidden, inputs=slice(size, None), biased=False))
        self.carry_back = layers.linear(Part(out, "transposed"))
        self.out = layers.linear(out)
        self.out_bias = layers.linear(Part(out, "bias"))

    def __call__(self, words: torch.Tensor, rows: Rows) -> MarkedSpans:
        """See `SpanHead`."""
        owners = rows.owners
        ends = self._ends(words, owners)
        start = self._hidden_start(self._start(ends[:, : self._split].contiguous(), owners), owners)
        end = self._hidden_end(self._end(ends[:, self._split :].contiguous(), owners), owners)
        # Room behind the last word, so that its spans reach somewhere too.
        return _FactorisedSpans(self, start, F.pad(end, (0, 0, 0, self.max_width - 1)), rows)


class _FactorisedSpans:
    """Spans by the hidden layer's share of their first (W, H) and last (W + K - 1, H) words."""

    def __init__(self, head: MarkerV0, start: torch.Tensor, end: torch.Tensor, rows: Rows) -> None:
        self._head = head
        self._start, self._end = start, end
        self._firsts = [0, *accumulate(rows.counts[:-1])]
        self._rows = rows

    def scores(self, labels: torch.Tensor, of_labels: Rows) -> list[torch.Tensor]:
        """See `MarkedSpans`."""
        weights = of_labels.split(self._head.carry_back(labels, of_labels.owners))
        offsets = of_labels.split(self._head.out_bias(labels, of_labels.owners)[:, 0])
        return [
            torch.cat([F.linear(hidden, weight, offset) for hidden in self._hidden(first, count)])
            for first, count, weight, offset in zip(self._firsts, self._rows.counts, weights, offsets, strict=True)
        ]

    def represent(self, row: int, boundaries: Sequence[Boundary]) -> torch.Tensor:
        """See `MarkedSpans`."""
        first, last = torch.tensor(boundaries, device=self._start.device).T + self._firsts[row]
        ends = F.relu(self._start[first] + self._end[last])
        return self._head.out(ends, self._rows.owner(row, len(ends)))

    def _hidden(self, first: int, count: int) -> Iterator[torch.Tensor]:
        """The hidden layer of a row's spans, a few words at a time: (words, K, H)."""
        width, size = self._head.max_width, self._start.shape[1]
        step = max(1, _ELEMENTS_AT_ONCE[self._start.device.type] // (width * size))
        for at in range(first, first + count, step):
            words = min(step, first + count - at)
            yield self._head.relu_of_sums(self._start, self._end, at, words, width)


class Marker:
    """gliner's `SpanMarker`, factorised."""

    name = "factorised marker spans"

    def __init__(self, layer: Any, max_width: int, layers: Layers) -> None:
        size = layer.out_project.out_features
        self.max_width = max_width
        out = layer.out_project
        self._start, self._end = Projection(layer.project_start, layers), Projection(layer.project_end, layers)
        self.carry_back_start = layers.linear(Part(out, "transposed", inputs=slice(size)))
        self.carry_back_end = layers.linear(Part(out, "transposed", inputs=slice(size, None)))
        self.out = layers.linear(out)
        self.out_bias = layers.linear(Part(out, "bias"))

    def __call__(self, words: torch.Tensor, rows: Rows) -> MarkedSpans:
        """See `SpanHead`."""
        start, end = self._start(words, rows.owners), self._end(words, rows.owners)
        return _SummedSpans(self, F.relu(start), F.relu(end), rows)


class _SummedSpans:
    """Spans by their first and last words (W, D): a score is a sum of theirs."""

    def __init__(self, head: Marker, start: torch.Tensor, end: torch.Tensor, rows: Rows) -> None:
        self._head = head
        self._rows = rows
        self._start, self._end = rows.split(start), rows.split(end)

    def scores(self, labels: torch.Tensor, of_labels: Rows) -> list[torch.Tensor]:
        """See `MarkedSpans`."""
        owners = of_labels.owners
        parts = (
            self._head.carry_back_start(labels, owners),
            self._head.carry_back_end(labels, owners),
            self._head.out_bias(labels, owners)[:, 0],
        )
        of_rows = (of_labels.split(part) for part in parts)
        found = []
        for start, end, *label in zip(self._start, self._end, *of_rows, strict=True):
            of_start, of_end = F.linear(start, label[0], label[2]), F.linear(end, label[1])
            lasts = F.pad(of_end, (0, 0, 0, self._head.max_width - 1)).unfold(0, self._head.max_width, 1)
            found.append(of_start[:, None] + lasts.transpose(1, 2))
        return found

    def represent(self, row: int, boundaries: Sequence[Boundary]) -> torch.Tensor:
        """See `MarkedSpans`."""
        first, last = torch.tensor(boundaries, device=self._start[row].device).T
        ends = torch.cat([self._start[row][first], self._end[row][last]], dim=-1)
        return self._head.out(ends, self._rows.owner(row, len(ends)))


class Represented:
    """Any span layer of gliner: every span of a row is represented."""

    def __init__(self, layer: nn.Module, max_width: int, mode: str) -> None:
        self.name = f"gliner's {mode} spans"
        self.max_width = max_width
        self._layer = layer

    def __call__(self, words: torch.Tensor, rows: Rows) -> MarkedSpans:
        """See `SpanHead`."""
        represented = []
        for number, row in enumerate(rows.split(words)):
            with on_slot(rows.slot(number)):
                represented.append(self._represent(row))
        return _RepresentedSpans(represented)

    def _represent(self, words: torch.Tensor) -> torch.Tensor:
        """(words, D) -> (words, K, D)."""
        count = len(words)
        first = torch.arange(count, device=words.device)[:, None].expand(-1, self.max_width)
        last = first + torch.arange(self.max_width, device=words.device)
        # Spans beyond the last word are (0, 0), as gliner's mask makes them.
        spans = torch.stack([first, last], dim=-1).flatten(0, 1) * (last < count).flatten()[:, None]
        represented: torch.Tensor = self._layer(words[None], spans[None])[0]
        return represented


class _RepresentedSpans:
    """Spans by their representations, (words, K, D) of each row."""

    def __init__(self, rows: list[torch.Tensor]) -> None:
        self._rows = rows

    def scores(self, labels: torch.Tensor, of_labels: Rows) -> list[torch.Tensor]:
        """See `MarkedSpans`."""
        return [F.linear(spans, of_row) for spans, of_row in zip(self._rows, of_labels.split(labels), strict=True)]

    def represent(self, row: int, boundaries: Sequence[Boundary]) -> torch.Tensor:
        """See `MarkedSpans`."""
        first, last = torch.tensor(boundaries, device=self._rows[row].device).T
        return self._rows[row][first, last - first]
