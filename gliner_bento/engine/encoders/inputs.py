"""The tensors that encoders and heads read: of a packed batch (on a CPU) or a padded one (on a GPU).

A padded batch is one tensor of integers, whose parts have the sizes of a bucket: it takes one copy to the device, and
the forward pass is a function of this tensor and the bucket alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    data: (N,), all parts, one after the other. sizes: of each part, by name; they follow from the bucket.
    rows: without padding.
    """

    bucket: Bucket
    data: torch.Tensor
    sizes: Mapping[str, int]
    rows: BatchRows
    label_ids: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, inputs: Inputs, thresholds: Sequence[float], *, pin: bool) -> PaddedInputs:
        """On the CPU. inputs: packed. thresholds: the lowest of each text. pin: copies to a GPU need not be waited
        for."""
        tokens, words, labels, relations = (np.array(some.counts, np.int64) for some in inputs.rows)
        longest = (int(counts.max()) for counts in (tokens, words, labels, relations))
        bucket = Bucket.of(len(tokens), int(tokens.sum()), *longest)
        texts = bucket.texts
        sizes = {
            "token_ids": bucket.tokens,
            "cells": bucket.tokens,
            "index": texts * bucket.length,
            "word_numbers": bucket.tokens,
            "word_positions": texts * bucket.words,
            "label_positions": texts * bucket.labels,
            "relation_positions": texts * bucket.relations,
            "lengths": texts,
            "word_counts": texts,
            "label_counts": texts,
            "thresholds": texts,
        }
        data = torch.zeros(sum(sizes.values()), dtype=torch.int64, pin_memory=pin)
        part = {name: tensor.numpy() for name, tensor in _parts(data, sizes).items()}
        cells = _cells(tokens, bucket.length)
        marked = inputs.word_positions.numpy()
        numbers = _cells(words, bucket.words)[inputs.word_numbers.numpy()]
        part["token_ids"][: len(cells)] = inputs.token_ids.numpy()
        part["cells"][: len(cells)] = cells
        part["index"][cells] = np.arange(len(cells))
        part["word_numbers"].fill(texts * bucket.words)
        part["word_numbers"][marked] = numbers
        part["word_positions"][numbers[::-1]] = marked[::-1]
        for name, positions, counts, height in (
            ("label_positions", inputs.label_positions, labels, bucket.labels),
            ("relation_positions", inputs.relation_positions, relations, bucket.relations),
        ):
            if len(positions):  # else the labels are separate
                part[name][_cells(counts, height)] = positions.numpy()
        # An empty text has a token, a word and a label, to have something to attend to, and no entities.
        for name, counts in ("lengths", tokens), ("word_counts", words), ("label_counts", labels):
            part[name].fill(1)
            part[name][: len(counts)] = counts
        lowest = part["thresholds"].view(np.float64)
        lowest.fill(inf)
        lowest[: len(thresholds)] = thresholds
        return cls(bucket, data, sizes, inputs.rows, inputs.label_ids)

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
        part = _parts(data, self.sizes)
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


def _parts(data: torch.Tensor, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """Views of the consecutive parts of `data`."""
    return dict(zip(sizes, data.split_with_sizes(list(sizes.values())), strict=True))


def _cells(counts: Integers, height: int) -> Integers:
    """The row of each packed row, if each text is padded to `height` rows."""
    before = np.array([0, *accumulate(counts[:-1].tolist())])
    cells: Integers = np.arange(counts.sum()) + np.repeat(np.arange(len(counts)) * height - before, counts)
    return cells


def _joined(indexes: Sequence[Integers], counts: Sequence[int]) -> torch.Tensor:
    """The indexes of each text as indexes over all texts. counts: rows of each text."""
    before = np.cumsum(counts) - counts
    return torch.from_numpy(np.concatenate(indexes) + before.repeat(list(map(len, indexes))))
