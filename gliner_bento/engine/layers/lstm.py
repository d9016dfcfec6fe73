"""gliner's LSTM, over packed words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_sequence, unpack_sequence

from gliner_bento.engine.layers.linear import multiplies_in
from gliner_bento.engine.layers.rows import TextRows

_LSTM_MODE = 2  # oneDNN's number of the cell type
_STEP_BUCKET, _TEXT_BUCKET = 16, 4  # sizes are rounded up to multiples: oneDNN caches memory for every shape


class Lstm:
    """gliner's `LstmSeq2SeqEncoder`: an LSTM over each text's words, in both directions.

    torch steps through texts of different lengths one word at a time. oneDNN runs a whole direction in one call, but
    needs texts of one length. So texts are padded at their end; for the backward direction they are reversed before,
    so that no word depends on padding.
    """

    def __init__(self, encoder: Any) -> None:
        self._lstm: nn.LSTM = encoder.lstm
        weight = self._lstm.weight_ih_l0
        self._uses_onednn = (
            weight.device.type == "cpu"
            and weight.dtype == torch.bfloat16
            and multiplies_in(torch.bfloat16)
            and self._lstm.num_layers == 1
            and self._lstm.bidirectional
        )

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> torch.Tensor:
        """(W, D) -> (W, D)."""
        texts = word_rows.split(words)
        if self._uses_onednn:
            return torch.cat([self._run("", texts), torch.cat(self._backward(texts))], dim=-1)
        packed: PackedSequence = pack_sequence(list(texts), enforce_sorted=False)
        return torch.cat(unpack_sequence(self._lstm(packed)[0]))

    def _backward(self, texts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        reversed_states = self._run("_reverse", [text.flip(0) for text in texts])
        return [text.flip(0) for text in reversed_states.split_with_sizes([len(text) for text in texts])]

    def _run(self, direction: str, texts: Sequence[torch.Tensor]) -> torch.Tensor:
        weights = [
            getattr(self._lstm, f"{name}_l0{direction}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        size = self._lstm.hidden_size
        padded = pad_sequence(list(texts))
        steps, count = -(-len(padded) // _STEP_BUCKET) * _STEP_BUCKET, -(-len(texts) // _TEXT_BUCKET) * _TEXT_BUCKET
        padded = F.pad(padded, (0, 0, 0, count - len(texts), 0, steps - len(padded)))
        start = padded.new_zeros(1, count, size)
        # …, reverse, batch sizes, mode, size, layers, biases, bidirectional, batch first, training
        states: torch.Tensor = torch.ops.aten.mkldnn_rnn_layer(
            padded, *weights, start, start, False, [], _LSTM_MODE, size, 1, True, False, False, False
        )[0]
        return torch.cat([states[: len(text), number] for number, text in enumerate(texts)])
