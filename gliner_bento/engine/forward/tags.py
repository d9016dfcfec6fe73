"""The token head: scores of start, end and inside for every word and label, its first layer taken apart.

gliner's `Scorer` feeds `[t1; l1; t2 * l2]` of every word and label to an MLP. The first layer's share of t1 and l1 is
made once per word and once per label; only that of the product is made for every pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from gliner_bento.adapters.linear import Owners
from gliner_bento.engine.adaptable import Layers, Part
from gliner_bento.engine.forward.layers import linears
from gliner_bento.engine.packing import Rows

_PAIRS_AT_ONCE = {"cpu": 512, "cuda": 1 << 16}


class TagHead:
    """gliner's `Scorer`, factorised."""

    name = "factorised tags"

    def __init__(self, scorer: Any, layers: Layers) -> None:
        hidden, out = linears(scorer.out_mlp)
        size = hidden.in_features // 3
        self._size = size
        self._words, self._labels = layers.linear(scorer.proj_token), layers.linear(scorer.proj_label)
        self._of_word = layers.linear(Part(hidden, inputs=slice(size)))
        self._of_label = layers.linear(Part(hidden, inputs=slice(size, 2 * size), biased=False))
        self._of_product = layers.linear(Part(hidden, inputs=slice(2 * size, None), biased=False))
        self._out = layers.linear(out)

    def __call__(
        self, words: torch.Tensor, of_words: Rows, labels: torch.Tensor, of_labels: Rows
    ) -> list[torch.Tensor]:
        """For each row its scores, shape (words, labels, 3), of packed `words` (W, D) and `labels` (C, D)."""
        words, labels = self._words(words, of_words.owners), self._labels(labels, of_labels.owners)
        first, second = words[:, : self._size].contiguous(), words[:, self._size :]
        of_word = self._of_word(first, of_words.owners)
        of_label = self._of_label(labels[:, : self._size].contiguous(), of_labels.owners)
        parts = (
            of_words.split(of_word),
            of_words.split(second),
            of_labels.split(of_label),
            of_labels.split(labels[:, self._size :]),
        )
        return [
            self._scores(*row, partial(of_words.owner, number)) for number, row in enumerate(zip(*parts, strict=True))
        ]

    def _scores(
        self,
        of_word: torch.Tensor,
        word: torch.Tensor,
        of_label: torch.Tensor,
        label: torch.Tensor,
        owner: Callable[[int], Owners | None],
    ) -> torch.Tensor:
        """Shape (words, labels, 3), of one row; a few words at a time. owner: whose so many pairs are."""
        parts = []
        step = max(1, _PAIRS_AT_ONCE[word.device.type] // len(label))
        for at in range(0, len(word), step):
            product = word[at : at + step, None] * label
            owners = owner(len(product) * len(label))
            hidden = self._of_product(product.flatten(0, 1), owners).view(*product.shape[:2], -1)
            hidden = (hidden.add_(of_word[at : at + step, None])).add_(of_label).relu_()
            parts.append(self._out(hidden.flatten(0, 1), owners).view(*product.shape[:2], 3))
        return torch.cat(parts)
