"""The small layers that heads share: gliner's two-layer projections and its LSTM, over packed words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_sequence, unpack_sequence

from gliner_bento.adapters.linear import Owners
from gliner_bento.engine.adaptable import Layers
from gliner_bento.engine.linear import multiplies_in
from gliner_bento.engine.packing import Rows

_LSTM_MODE = 2  # oneDNN's number for it
_STEPS, _ROWS = 16, 4  # what its sizes are rounded up to: it keeps memory for each size that it meets


class Projection:
    """gliner's `create_projection_layer`: two linear layers with a ReLU between."""

    def __init__(self, projection: nn.Sequential, layers: Layers) -> None:
        first, last = linears(projection)
        self._first = layers.linear(first, activation="relu")
        self._last = layers.linear(last)

    def __call__(self, x: torch.Tensor, owners: Owners | None) -> torch.Tensor:
        """(N, in) -> (N, out)."""
        return self._last(self._first(x, owners), owners)


def linears(layers: nn.Sequential) -> tuple[nn.Linear, nn.Linear]:
    """The two linear layers of a projection."""
    first, last = (layer for layer in layers if isinstance(layer, nn.Linear))
    return first, last


class Lstm:
    """gliner's `LstmSeq2SeqEncoder`: an LSTM over each row's words, in both directions.

    torch steps through rows of different lengths one word at a time. oneDNN runs a whole direction at once, but over
    rows of one length: rows are padded behind their end, for the way back too (turned around before), so that nothing
    read from padding reaches a word.
    """

    def __init__(self, encoder: Any) -> None:
        self._lstm: nn.LSTM = encoder.lstm
        weight = self._lstm.weight_ih_l0
        self._in_one_go = (
            weight.device.type == "cpu"
            and weight.dtype == torch.bfloat16
            and multiplies_in(torch.bfloat16)
            and self._lstm.num_layers == 1
            and self._lstm.bidirectional
        )

    def __call__(self, words: torch.Tensor, of_rows: Rows) -> torch.Tensor:
        """(W, D) -> (W, D)."""
        rows = of_rows.split(words)
        if self._in_one_go:
            return torch.cat([self._run("", rows), torch.cat(self._turned(rows))], dim=-1)
        packed: PackedSequence = pack_sequence(list(rows), enforce_sorted=False)
        return torch.cat(unpack_sequence(self._lstm(packed)[0]))

    def _turned(self, rows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        turned = self._run("_reverse", [row.flip(0) for row in rows])
        return [row.flip(0) for row in turned.split_with_sizes([len(row) for row in rows])]

    def _run(self, direction: str, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        weights = [
            getattr(self._lstm, f"{name}_l0{direction}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        size = self._lstm.hidden_size
        padded = pad_sequence(list(rows))
        steps, count = -(-len(padded) // _STEPS) * _STEPS, -(-len(rows) // _ROWS) * _ROWS
        padded = F.pad(padded, (0, 0, 0, count - len(rows), 0, steps - len(padded)))
        start = padded.new_zeros(1, count, size)
        # …, backwards, batch sizes, mode, size, layers, biases, both ways, batch first, training
        states: torch.Tensor = torch.ops.aten.mkldnn_rnn_layer(
            padded, *weights, start, start, False, [], _LSTM_MODE, size, 1, True, False, False, False
        )[0]
        return torch.cat([states[: len(row), number] for number, row in enumerate(rows)])
