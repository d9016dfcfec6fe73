"""gliner's LSTM, over packed words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_sequence, unpack_sequence

from gliner_bento.engine.layers.heights import Heights, equal_heights
from gliner_bento.engine.layers.linear import multiplies_in
from gliner_bento.engine.layers.rows import PaddedRows, TextRows
from gliner_bento.engine.layers.threads import torch_threads

_LSTM_MODE = 2  # oneDNN's code for LSTM cells
_PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # torch's names, in oneDNN's order

# oneDNN generates code and caches memory for every shape. So the number of steps is rounded up to a multiple of
# `_STEP_BUCKET`, and the number of texts in a call to one of `_TEXT_BUCKETS`.
_STEP_BUCKET = 16
_TEXT_BUCKETS = {torch.bfloat16: (4, 8, 16, 32), torch.float32: (1, 2, 4, 8, 16, 32)}
# The maximum ratio of the longest to the shortest text in a call. In bfloat16, products of few rows are as slow as
# larger ones, so padding costs less than more calls.
_MAX_LENGTH_RATIO = {torch.bfloat16: inf, torch.float32: 2.0}

# Padded batches have additional inputs, which are 1 for padding and 0 for words. The first one closes the input gate,
# because its weight is `_CLOSED`. The other seven have weight 0, and keep sizes multiples of 8, which is faster.
_GATE_INPUTS = 8
_CLOSED = -1e4


def _padded_layer(lstm: nn.LSTM, layer: int) -> nn.LSTM:
    """One layer of `lstm`, for texts that are padded at their end, (texts, words, D + `_GATE_INPUTS`).

    The backward direction begins with the padding, which closes the input gate. So the state stays zero until the
    text's last word, which this direction reads first.
    """
    weight: torch.Tensor = getattr(lstm, f"weight_ih_l{layer}")
    inputs = weight.shape[1]
    padded = nn.LSTM(
        inputs + _GATE_INPUTS,
        lstm.hidden_size,
        bidirectional=lstm.bidirectional,
        batch_first=True,
        device=weight.device,
        dtype=weight.dtype,
    ).eval()
    with torch.no_grad():
        for direction in ("", "_reverse") if lstm.bidirectional else ("",):
            for name in _PARAMETERS:
                source = getattr(lstm, f"{name}_l{layer}{direction}")
                if name == "weight_ih":
                    source = F.pad(source, (0, _GATE_INPUTS))
                    source[: lstm.hidden_size, inputs] = _CLOSED  # the first rows are the input gate's
                getattr(padded, f"{name}_l0{direction}").copy_(source)
    padded.requires_grad_(False).flatten_parameters()
    return padded


class Lstm:
    """gliner's `LstmSeq2SeqEncoder`: an LSTM over each text's words, in both directions.

    For texts of different lengths, torch makes one product per word position, with a row for each text that is not at
    its end. oneDNN computes all steps of a direction in one call, but takes texts of one length only. So texts are
    padded at their end. For the backward direction they are reversed before they are padded, so that padding comes last
    again and changes no state of a word.

    threads: a word's state has the same bits with each of these numbers of threads and any other texts in the batch. If
        the self-check finds no numbers of texts with which oneDNN does this, texts run one by one in one thread.
    padded: for batches in the padded layout.
    """

    def __init__(self, encoder: Any, threads: Sequence[int] = (), *, padded: bool = False) -> None:
        self._lstm: nn.LSTM = encoder.lstm
        layers = range(self._lstm.num_layers) if padded else ()
        self._padded_layers = [_padded_layer(self._lstm, layer) for layer in layers]
        weight = self._lstm.weight_ih_l0
        self._dtype = weight.dtype
        self._uses_onednn = (
            weight.device.type == "cpu"
            and not padded
            and (weight.dtype == torch.bfloat16 or (weight.dtype == torch.float32 and bool(threads)))
            and multiplies_in(weight.dtype)
            and self._lstm.num_layers == 1
            and self._lstm.bidirectional
        )
        allowed = self._equal_text_counts(threads) if threads and self._uses_onednn else ()
        self._one_by_one = bool(threads) and not allowed
        if self._uses_onednn:
            self._text_counts = Heights(allowed or _TEXT_BUCKETS[weight.dtype])

    @torch.inference_mode()
    def _equal_text_counts(self, threads: Sequence[int]) -> tuple[int, ...]:
        """Numbers of texts in a call with which a text's states have the same bits, for any number of steps."""
        draw = torch.Generator().manual_seed(0)
        texts = torch.randn(3, _STEP_BUCKET, self._lstm.input_size, generator=draw).to(self._dtype)

        def states(texts: torch.Tensor, further_steps: int) -> torch.Tensor:
            longer = F.pad(texts, (0, 0, 0, further_steps))
            return self._call("", longer.transpose(0, 1))[:_STEP_BUCKET].transpose(0, 1)

        products = [partial(states, further_steps=steps) for steps in (0, _STEP_BUCKET)]
        return equal_heights(products, texts, _TEXT_BUCKETS[self._dtype], threads)

    def __call__(self, words: torch.Tensor, word_rows: TextRows) -> torch.Tensor:
        """(W, D) -> (W, D)."""
        if isinstance(word_rows, PaddedRows):
            return self._padded_states(words, word_rows)
        texts = word_rows.split(words)
        if not self._one_by_one:
            return self._states(texts)
        with torch_threads(1):
            return torch.cat([self._states([text]) for text in texts])

    def _padded_states(self, words: torch.Tensor, word_rows: PaddedRows) -> torch.Tensor:
        (states,) = word_rows.blocks(words)
        padding = (~word_rows.mask)[..., None].to(words.dtype).expand(-1, -1, _GATE_INPUTS)
        for layer in self._padded_layers:
            states = layer(torch.cat([states, padding], dim=-1))[0]
        return states.flatten(0, 1)

    def _states(self, texts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The states of all texts' words, in both directions."""
        if not self._uses_onednn:
            packed: PackedSequence = pack_sequence(list(texts), enforce_sorted=False)
            return torch.cat(unpack_sequence(self._lstm(packed)[0]))
        states = []
        for group in self._groups(texts):
            forward = self._direction("", group)
            reversed_backward = self._direction("_reverse", [text.flip(0) for text in group])
            backward = [text_states.flip(0) for text_states in reversed_backward]
            states.append(torch.cat([torch.cat(forward), torch.cat(backward)], -1))
        return torch.cat(states)

    def _groups(self, texts: Sequence[torch.Tensor]) -> Iterator[Sequence[torch.Tensor]]:
        """Groups of consecutive texts to pad to one length. Where padding is expensive, their lengths are similar."""
        group: list[torch.Tensor] = []
        for text in texts:
            lengths = [max(_STEP_BUCKET, len(member)) for member in (*group, text)]
            if max(lengths) > _MAX_LENGTH_RATIO[self._dtype] * min(lengths):
                yield group
                group = []
            group.append(text)
        yield group

    def _direction(self, direction: str, texts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The states of each text, in one direction. direction: the suffix of torch's parameters."""
        padded = pad_sequence(list(texts))
        counts = self._text_counts.cover(len(texts))
        steps = (len(padded) + _STEP_BUCKET - 1) // _STEP_BUCKET * _STEP_BUCKET
        missing_texts, missing_steps = sum(counts) - len(texts), steps - len(padded)
        padded = F.pad(padded, (0, 0, 0, missing_texts, 0, missing_steps))
        calls = [self._call(direction, part) for part in padded.split_with_sizes(counts, 1)]
        states = calls[0] if len(calls) == 1 else torch.cat(calls, dim=1)
        return [states[: len(text), index] for index, text in enumerate(texts)]

    def _call(self, direction: str, padded: torch.Tensor) -> torch.Tensor:
        """One call of oneDNN: (steps, texts, D) -> (steps, texts, D)."""
        weights = [getattr(self._lstm, f"{name}_l0{direction}") for name in _PARAMETERS]
        size = self._lstm.hidden_size
        zeros = padded.new_zeros(1, padded.shape[1], size)  # the initial states
        cell = {"mode": _LSTM_MODE, "hidden_size": size, "num_layers": 1, "has_biases": True, "batch_sizes": []}
        flags = {"reverse": False, "bidirectional": False, "batch_first": False, "train": False}
        call = torch.ops.aten.mkldnn_rnn_layer
        states: torch.Tensor = call(padded.contiguous(), *weights, zeros, zeros, **cell, **flags)[0]
        return states
