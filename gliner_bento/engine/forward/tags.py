"""The token head: scores of start, end and inside for every word and label, its first layer taken apart.

gliner's `Scorer` feeds `[t1; l1; t2 * l2]` of every word and label to an MLP. The first layer's share of t1 and l1 is
made once per word and once per label; only that of the product is made for every pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gliner_bento.engine.forward.layers import linears
from gliner_bento.engine.linear import Linear
from gliner_bento.engine.packing import split_rows

_PAIRS_AT_ONCE = {"cpu": 512, "cuda": 1 << 16}


class TagHead:
    """gliner's `Scorer`, factorised."""

    name = "factorised tags"

    def __init__(self, scorer: Any) -> None:
        hidden, out = linears(scorer.out_mlp)
        size = hidden.in_features // 3
        self._size = size
        self._words, self._labels = Linear.of(scorer.proj_token), Linear.of(scorer.proj_label)
        self._of_word = Linear(hidden.weight[:, :size], hidden.bias)
        self._of_label = Linear(hidden.weight[:, size : 2 * size])
        self._of_product = Linear(hidden.weight[:, 2 * size :])
        self._out = Linear.of(out)

    def __call__(
        self, words: torch.Tensor, word_counts: Sequence[int], labels: torch.Tensor, label_counts: Sequence[int]
    ) -> list[torch.Tensor]:
        """For each row its scores, shape (words, labels, 3), of packed `words` (W, D) and `labels` (C, D)."""
        words, labels = self._words(words), self._labels(labels)
        first, second = words[:, : self._size].contiguous(), words[:, self._size :]
        of_word, of_label = self._of_word(first), self._of_label(labels[:, : self._size].contiguous())
        rows = zip(
            split_rows(of_word, word_counts),
            split_rows(second, word_counts),
            split_rows(of_label, label_counts),
            split_rows(labels[:, self._size :], label_counts),
            strict=True,
        )
        return [self._scores(*row) for row in rows]

    def _scores(
        self, of_word: torch.Tensor, word: torch.Tensor, of_label: torch.Tensor, label: torch.Tensor
    ) -> torch.Tensor:
        """Shape (words, labels, 3); a few words at a time."""
        parts = []
        step = max(1, _PAIRS_AT_ONCE[word.device.type] // len(label))
        for at in range(0, len(word), step):
            product = word[at : at + step, None] * label
            hidden = self._of_product(product.flatten(0, 1)).view(*product.shape[:2], -1)
            hidden = (hidden.add_(of_word[at : at + step, None])).add_(of_label).relu_()
            parts.append(self._out(hidden.flatten(0, 1)).view(*product.shape[:2], 3))
        return torch.cat(parts)
