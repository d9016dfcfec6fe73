"""Scores of start, end and inside for every word and label, with the first layer factorised.

gliner's `Scorer` projects each word to [t1; t2] and each label to [l1; l2], and feeds `[t1; l1; t2 * l2]` of every pair
to an MLP. Its first layer adds a term for each of the three. Here the term of t1 is computed once per word, and that of
l1 once per label; only the term of the product t2 * l2 is computed for every pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.projection import linear_layers
from gliner_bento.engine.layers.rows import SlotRows, TextRows

# Maximum pairs of a word and a label per chunk.
_MAX_PAIRS = {"packed": 512, "padded": 1 << 18}


class TagScorer:
    """gliner's `Scorer`, factorised."""

    name = "factorised tags"

    def __init__(self, scorer: Any, layers: LayerFactory) -> None:
        hidden, out = linear_layers(scorer.out_mlp)
        size = hidden.in_features // 3
        self._size = size
        self._layout = "padded" if layers.padded else "packed"
        self._words, self._labels = layers.linear(scorer.proj_token), layers.linear(scorer.proj_label)
        self._of_word = layers.linear(WeightSlice(hidden, inputs=slice(size)))
        self._of_label = layers.linear(WeightSlice(hidden, inputs=slice(size, 2 * size), biased=False))
        self._of_product = layers.linear(WeightSlice(hidden, inputs=slice(2 * size, None), biased=False))
        self._out = layers.linear(out)

    def __call__(
        self, words: torch.Tensor, word_rows: TextRows, labels: torch.Tensor, label_rows: TextRows
    ) -> list[torch.Tensor]:
        """Logits of each block of texts, (texts, words, labels, 3). words: (W, D). labels: (C, D)."""
        words, labels = self._words(words, word_rows.slot_rows), self._labels(labels, label_rows.slot_rows)
        of_word = self._of_word(words[:, : self._size].contiguous(), word_rows.slot_rows)
        of_label = self._of_label(labels[:, : self._size].contiguous(), label_rows.slot_rows)
        tensors = (
            word_rows.blocks(of_word),
            word_rows.blocks(words[:, self._size :]),
            label_rows.blocks(of_label),
            label_rows.blocks(labels[:, self._size :]),
        )
        return [
            self._scores(*block, partial(word_rows.block_slot_rows, number))
            for number, block in enumerate(zip(*tensors, strict=True))
        ]

    def _scores(
        self,
        of_word: torch.Tensor,
        word_factor: torch.Tensor,
        of_label: torch.Tensor,
        label_factor: torch.Tensor,
        slot_rows_of: Callable[[int], SlotRows | None],
    ) -> torch.Tensor:
        """Logits of a block, (texts, words, labels, 3), computed in chunks of words. of_word, of_label: terms of the
        first layer. word_factor, label_factor: t2 and l2. slot_rows_of: see `TextRows.block_slot_rows`."""
        chunks = []
        texts, labels = label_factor.shape[:2]
        step = max(1, _MAX_PAIRS[self._layout] // (texts * labels))
        for at in range(0, word_factor.shape[1], step):
            product = word_factor[:, at : at + step, None] * label_factor[:, None]
            shape = product.shape[:3]
            slot_rows = slot_rows_of(shape[1] * labels)
            hidden = self._of_product(product.flatten(0, 2), slot_rows).view(*shape, -1)
            hidden = (hidden.add_(of_word[:, at : at + step, None])).add_(of_label[:, None]).relu_()
            chunks.append(self._out(hidden.flatten(0, 2), slot_rows).view(*shape, 3))
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1)
