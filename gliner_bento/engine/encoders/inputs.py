"""The tensors that encoders and heads read, for a packed batch (on a CPU) or a padded one (on a GPU).

A padded batch is one tensor of integers, whose parts have the sizes of a bucket. So it takes only one copy to the
device, and the forward pass is a function of this tensor and the bucket alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.layers.buckets import Bucket
from gliner_bento.engine.layers.packing import PaddedLayout
from gliner_bento.engine.layers.rows import BatchRows, PaddedRows, TextRows, TextSlots
from gliner_bento.engine.text.tokenize import Tokenized, pooled_tokens

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Inputs:
    """A batch of T packed tokens. A position is an index into these tokens.

    rows: how many tokens, words, labels and relations each text has.
    marked: positions of the tokens that are pooled to words; None: all tokens are pooled. Those outside words have
        the number of a row behind the last word, which is dropped.
    word_numbers: for each marked token, the row of its word.
    word_positions: for each word, the position of its marked token; used only if one token per word is marked.
    label_positions, relation_positions: for each label or relation, the position of the token that stands for it.
    label_ids: the token ids of each label that is encoded separately, text after text.
    layout, thresholds: only for padded batches. thresholds: (texts,), the lowest threshold of each text.
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
        """The inputs of a batch without padding, on the CPU. adapters: the slots of the texts' adapters."""
        tokenized: list[Tokenized] = [text.payload for text in texts]
        token_counts = tuple(text.tokens for text in texts)
        word_counts = tuple(text.words for text in texts)
        prompts = [text.prompt for text in tokenized]
        label_counts = tuple(len(prompt.labels) or len(prompt.label_positions) for prompt in prompts)
        relation_counts = tuple(len(prompt.relation_positions) for prompt in prompts)
        ids = np.concatenate([part for text in tokenized for part in text.parts], dtype=np.int64)
        starts: Integers = np.cumsum(token_counts, dtype=np.int64) - np.array(token_counts)
        positions, numbers = pooled_tokens(tokenized, starts)
        marked = torch.from_numpy(positions)
        labels = _joined([prompt.label_positions for prompt in prompts], starts)
        relations = _joined([prompt.relation_positions for prompt in prompts], starts)
        label_ids = tuple(chain.from_iterable(prompt.labels for prompt in prompts))
        all_counts = (token_counts, word_counts, label_counts, relation_counts)
        rows = BatchRows(*(TextRows(counts, adapters) for counts in all_counts))
        # `marked` is also `word_positions`, which are used only if one token per word is marked.
        return cls(rows, torch.from_numpy(ids), marked, torch.from_numpy(numbers), marked, labels, relations, label_ids)


@dataclass(frozen=True, slots=True)
class PaddedInputs:
    """`Inputs` of a bucket, in one tensor.

    data: (N,), all parts, one after the other. sizes: size of each part by name; depends only on the bucket.
    rows: the counts of each text, without padding.
    """

    bucket: Bucket
    data: torch.Tensor
    sizes: Mapping[str, int]
    rows: BatchRows
    label_ids: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, inputs: Inputs, thresholds: Sequence[float], *, pin: bool) -> PaddedInputs:
        """The padded form of packed `inputs`, on the CPU. thresholds: the lowest of each text. pin: use pinned memory,
        so that copies to a GPU need not be awaited."""
        all_counts = [np.array(rows.counts, np.int64) for rows in inputs.rows]
        token_counts, word_counts, label_counts, relation_counts = all_counts
        highest = [int(counts.max()) for counts in all_counts]
        bucket = Bucket.of(len(token_counts), int(token_counts.sum()), *highest)
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
        cells = _cells(token_counts, bucket.length)
        marked = inputs.word_positions.numpy()  # of packed inputs: the same as `marked`
        numbers = _cells(word_counts, bucket.words)[inputs.word_numbers.numpy()]
        part["token_ids"][: len(cells)] = inputs.token_ids.numpy()
        part["cells"][: len(cells)] = cells
        part["index"][cells] = np.arange(len(cells))
        part["word_numbers"].fill(texts * bucket.words)  # behind the last word
        part["word_numbers"][marked] = numbers
        part["word_positions"][numbers[::-1]] = marked[::-1]  # in reverse, so that the first token of a word counts
        for name, positions, counts, height in (
            ("label_positions", inputs.label_positions, label_counts, bucket.labels),
            ("relation_positions", inputs.relation_positions, relation_counts, bucket.relations),
        ):
            if len(positions):  # else there are no relations, or the labels are encoded separately
                part[name][_cells(counts, height)] = positions.numpy()
        # An empty text has one token, word and label, so that attention has a key. Its threshold excludes entities.
        for name, counts in ("lengths", token_counts), ("word_counts", word_counts), ("label_counts", label_counts):
            part[name].fill(1)
            part[name][: len(counts)] = counts
        lowest = part["thresholds"].view(np.float64)
        lowest.fill(inf)
        lowest[: len(thresholds)] = thresholds
        return cls(bucket, data, sizes, inputs.rows, inputs.label_ids)

    def to(self, device: torch.device) -> Inputs:
        """The inputs on `device`."""
        return self.inputs(self.data.to(device, non_blocking=True))

    @property
    def depends_on_bucket_alone(self) -> bool:
        """Whether the forward pass may be captured: no adapter and no separately encoded label decides what runs."""
        return self.rows.tokens.slots is None and not any(self.label_ids)

    def without_counts(self) -> PaddedInputs:
        """These inputs without counts. A captured forward pass must not read counts, because they change per batch."""
        no_counts: Any = None
        return replace(self, rows=BatchRows(*[TextRows(no_counts)] * 4))

    def inputs(self, data: torch.Tensor) -> Inputs:
        """The inputs whose parts are in `data`, which is on the device."""
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
    """For each packed row, its row if each text is padded to `height` rows. counts: packed rows of each text."""
    return np.flatnonzero(np.arange(height) < counts[:, None])


def _joined(positions: Sequence[Integers], starts: Integers) -> torch.Tensor:
    """Converts positions within each text to positions within the batch. starts: of each text."""
    return torch.from_numpy(np.concatenate(positions) + starts.repeat(list(map(len, positions))))
