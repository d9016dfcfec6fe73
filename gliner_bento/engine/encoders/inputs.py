"""The tensors that encoders and heads read: of a packed batch (on a CPU) or a padded one (on a GPU).

A padded batch is one tensor of integers, whose parts have the sizes of a bucket: it takes one copy to the device, and
the forward pass is a function of this tensor and the bucket alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.layers.buckets import Bucket
from gliner_bento.engine.layers.packing import PaddedLayout
from gliner_bento.engine.layers.rows import BatchRows, PaddedRows, TextRows, TextSlots
from gliner_bento.engine.text.tokenize import Tokenized

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Inputs:
    """T packed tokens, at their positions.

    rows: how many of each belong to each text.
    marked: positions of the tokens that are pooled to words; None: of all tokens, where those that are not pooled have
        the row behind the last word. word_numbers: the row of the word of each marked token. word_positions: by row,
        the position of the first marked token.
    label_positions, relation_positions: by row, the positions of the tokens whose embeddings stand for these.
    label_ids: the token ids of each separate label, text after text.
    layout, thresholds: of a padded batch: its layout; the lowest threshold of each text, (texts,).
    """

    rows: BatchRows
    token_ids: torch.Tensor
    marked: torch.Tensor | None
    word_numbers: torch.Tensor
    word_positions: torch.Tensor
    label_positions: torch.Tensor
    relation_positions: torch.Tensor
    label_ids: tuple[tuple[int, ...], ...]
    layout: PaddedLayout | None = None
    thresholds: torch.Tensor | None = None

    @classmethod
    def packed(cls, texts: Sequence[Prepared], adapters: TextSlots | None) -> Inputs:
        """Without padding, on the CPU."""
        tokenized: list[Tokenized] = [text.payload for text in texts]
        token_counts = tuple(text.tokens for text in texts)
        word_counts = tuple(text.words for text in texts)
        label_counts = tuple(len(one.labels) or len(one.label_positions) for one in tokenized)
        relation_counts = tuple(len(one.relation_positions) for one in tokenized)
        counts = (token_counts, word_counts, label_counts, relation_counts)
        token_ids = torch.from_numpy(np.concatenate([one.token_ids for one in tokenized], dtype=np.int64))
        marked = _joined([one.word_positions for one in tokenized], token_counts)
        numbers = _joined([one.word_numbers for one in tokenized], word_counts)
        labels = _joined([one.label_positions for one in tokenized], token_counts)
        relations = _joined([one.relation_positions for one in tokenized], token_counts)
        label_ids = tuple(chain.from_iterable(one.labels for one in tokenized))
        rows = BatchRows(*(TextRows(some, adapters) for some in counts))
        return cls(rows, token_ids, marked, numbers, marked, labels, relations, label_ids)


@dataclass(frozen=True, slots=True)
class PaddedInputs:
    """`Inputs` of a bucket, in one tensor.

    data: (N,), parts in the order and of the sizes of `_sizes`. rows: without padding.
    """

    bucket: Bucket
    data: torch.Tensor
    rows: BatchRows
    label_ids: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, inputs: Inputs, thresholds: Sequence[float], *, pin: bool) -> PaddedInputs:
        """On the CPU. inputs: packed. thresholds: the lowest of each text. pin: copies to a GPU need not be waited
        for."""
        tokens, words, labels, relations = (np.array(some.counts, np.int64) for some in inputs.rows)
        bucket = Bucket.of(
            len(tokens), int(tokens.sum()), *(int(some.max()) for some in (tokens, words, labels, relations))
        )
        cells = _cells(tokens, bucket.length)
        word_cells = _cells(words, bucket.words)
        marked, numbers = inputs.word_positions.numpy(), word_cells[inputs.word_numbers.numpy()]
        size = len(cells)
        parts: dict[str, Integers] = {name: np.zeros(size, np.int64) for name, size in _sizes(bucket).items()}
        parts["token_ids"][:size] = inputs.token_ids.numpy()
        parts["cells"][:size] = cells
        parts["index"][cells] = np.arange(size)
        for name in ("lengths", "word_counts", "label_counts"):
            parts[name][:] = 1  # an empty text has something to attend to
        parts["lengths"][: len(tokens)] = tokens
        parts["word_counts"][: len(words)] = words
        parts["label_counts"][: len(labels)] = labels
        parts["word_numbers"][:] = bucket.texts * bucket.words
        parts["word_numbers"][marked] = numbers
        parts["word_positions"][numbers[::-1]] = marked[::-1]
        if len(inputs.label_positions):
            parts["label_positions"][_cells(labels, bucket.labels)] = inputs.label_positions.numpy()
        if len(inputs.relation_positions):
            parts["relation_positions"][_cells(relations, bucket.relations)] = inputs.relation_positions.numpy()
        nothing = [inf] * (bucket.texts - len(thresholds))
        parts["thresholds"][:] = np.array([*thresholds, *nothing], np.float64).view(np.int64)
        data = torch.from_numpy(np.concatenate(list(parts.values())))
        return cls(bucket, data.pin_memory() if pin else data, inputs.rows, inputs.label_ids)

    def to(self, device: torch.device) -> Inputs:
        """On `device`."""
        return self.inputs(self.data.to(device, non_blocking=True))

    @property
    def depends_on_bucket_alone(self) -> bool:
        """Whether the forward pass may be captured: neither an adapter's slot nor separate labels decide what runs."""
        return self.rows.tokens.slots is None and not any(self.label_ids)

    def unread(self) -> PaddedInputs:
        """These inputs without counts, which a captured forward pass must not read: the next batch has others."""
        unread: Any = None
        return replace(self, rows=BatchRows(*[TextRows(unread)] * 4))

    def inputs(self, data: torch.Tensor) -> Inputs:
        """`data` on the device, in parts."""
        bucket, (tokens, words, labels, relations) = self.bucket, self.rows
        sizes = _sizes(bucket)
        part = dict(zip(sizes, data.split_with_sizes(list(sizes.values())), strict=True))
        mask = torch.arange(bucket.length, device=data.device) < part["lengths"][:, None]
        rows = BatchRows(
            tokens,
            PaddedRows(words.counts, words.slots, bucket.texts, bucket.words, part["word_counts"]),
            PaddedRows(labels.counts, labels.slots, bucket.texts, bucket.labels, part["label_counts"]),
            PaddedRows(relations.counts, relations.slots, bucket.texts, bucket.relations),
        )
        return Inputs(
            rows,
            part["token_ids"],
            None,
            part["word_numbers"],
            part["word_positions"],
            part["label_positions"],
            part["relation_positions"],
            self.label_ids,
            PaddedLayout.masked(mask, part["index"], part["cells"], tokens),
            part["thresholds"].view(torch.float64).float(),
        )


def _sizes(bucket: Bucket) -> dict[str, int]:
    """The parts of `PaddedInputs.data`; see `Inputs` and `PaddedLayout`."""
    return {
        "token_ids": bucket.tokens,
        "cells": bucket.tokens,
        "word_numbers": bucket.tokens,
        "index": bucket.texts * bucket.length,
        "word_positions": bucket.texts * bucket.words,
        "label_positions": bucket.texts * bucket.labels,
        "relation_positions": bucket.texts * bucket.relations,
        "lengths": bucket.texts,
        "word_counts": bucket.texts,
        "label_counts": bucket.texts,
        "thresholds": bucket.texts,
    }


def _cells(counts: Integers, height: int) -> Integers:
    """The row of each packed row, if each text is padded to `height` rows."""
    before = np.array([0, *accumulate(counts[:-1].tolist())])
    cells: Integers = np.arange(counts.sum()) + np.repeat(np.arange(len(counts)) * height - before, counts)
    return cells


def _joined(indexes: Sequence[Integers], counts: Sequence[int]) -> torch.Tensor:
    """The indexes of each text as indexes over all texts. counts: rows of each text."""
    before = np.cumsum(counts) - counts
    return torch.from_numpy(np.concatenate(indexes) + before.repeat(list(map(len, indexes))))
