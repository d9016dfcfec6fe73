"""The tensors that encoders and heads read: of a packed batch (on a CPU) or a padded one (on a GPU).

A padded batch is one tensor of integers, whose parts have the sizes of a bucket: it takes one copy to the device, and
the forward pass is a function of this tensor and the bucket alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.layers.buckets import Bucket
from gliner_bento.engine.layers.packing import Block, BlockLayout, Layout, PaddedLayout, Slots
from gliner_bento.engine.layers.rows import PaddedRows, TextRows, TextSlots
from gliner_bento.engine.text.collate import PackedInputs

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """The tokens whose embeddings stand for labels and relations; None: not in the prompt.

    label_shift, relation_shift: how many tokens after them the embedding is."""

    label: int | None = None
    relation: int | None = None
    label_shift: int = 0
    relation_shift: int = 0

    def positions(self, token_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions of the embeddings of labels and of relations, in order. token_ids: on the CPU."""
        label, relation = (
            token_ids[:0] if token is None else (token_ids == token).nonzero()[:, 0] + shift
            for token, shift in ((self.label, self.label_shift), (self.relation, self.relation_shift))
        )
        return label, relation


@dataclass(frozen=True, slots=True)
class Inputs:
    """T packed tokens, at their positions.

    marked: positions of the tokens that are pooled to words; None: of all tokens, where those that are not pooled have
        the row behind the last word. word_numbers: the row of the word of each marked token. word_positions: by row,
        the position of the first marked token.
    label_positions, relation_positions: by row, the positions of the tokens whose embeddings stand for these.
    word_rows, label_rows, relation_rows: how many of each belong to each text.
    label_ids: the token ids of each separate label, text after text.
    thresholds: of a padded batch: the lowest of each text, (texts,).
    """

    token_ids: torch.Tensor
    layout: Layout
    marked: torch.Tensor | None
    word_numbers: torch.Tensor
    word_positions: torch.Tensor
    label_positions: torch.Tensor
    relation_positions: torch.Tensor
    word_rows: TextRows
    label_rows: TextRows
    relation_rows: TextRows
    label_ids: tuple[tuple[int, ...], ...]
    thresholds: torch.Tensor | None = None

    @classmethod
    def packed(cls, inputs: PackedInputs, prompt: PromptTokens) -> Inputs:
        """Without padding, on the CPU."""
        labels, relations = prompt.positions(inputs.token_ids)
        return cls(
            inputs.token_ids,
            BlockLayout.of(inputs.token_rows),
            inputs.word_positions,
            inputs.word_numbers,
            inputs.word_positions,
            labels,
            relations,
            inputs.word_rows,
            inputs.label_rows,
            inputs.relation_rows,
            inputs.label_ids,
        )


@dataclass(frozen=True, slots=True)
class PaddedInputs:
    """`Inputs` of a bucket, in one tensor.

    data: (N,), parts in the order and of the sizes of `_sizes`. counts: see `_Counts`.
    """

    bucket: Bucket
    data: torch.Tensor
    counts: _Counts
    label_ids: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, inputs: PackedInputs, prompt: PromptTokens, thresholds: Sequence[float], *, pin: bool) -> PaddedInputs:
        """On the CPU. thresholds: the lowest of each text. pin: copies to a GPU need not be waited for."""
        rows = (inputs.token_rows, inputs.word_rows, inputs.label_rows, inputs.relation_rows)
        tokens, words, labels, relations = (np.array(some.counts, np.int64) for some in rows)
        bucket = Bucket.of(
            len(tokens), int(tokens.sum()), *(int(some.max()) for some in (tokens, words, labels, relations))
        )
        cells = _cells(tokens, bucket.length)
        word_cells = _cells(words, bucket.words)
        marked, numbers = inputs.word_positions.numpy(), word_cells[inputs.word_numbers.numpy()]
        label_positions, relation_positions = prompt.positions(inputs.token_ids)
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
        if prompt.label is not None:
            parts["label_positions"][_cells(labels, bucket.labels)] = label_positions.numpy()
        if prompt.relation is not None:
            parts["relation_positions"][_cells(relations, bucket.relations)] = relation_positions.numpy()
        nothing = [inf] * (bucket.texts - len(thresholds))
        parts["thresholds"][:] = np.array([*thresholds, *nothing], np.float64).view(np.int64)
        data = torch.from_numpy(np.concatenate(list(parts.values())))
        of_rows = [some.counts for some in rows]
        counts = _Counts(of_rows[0], of_rows[1], of_rows[2], of_rows[3], inputs.token_rows.slots)
        return cls(bucket, data.pin_memory() if pin else data, counts, inputs.label_ids)

    def to(self, device: torch.device) -> Inputs:
        """On `device`."""
        return self.inputs(self.data.to(device, non_blocking=True))

    @property
    def depends_on_bucket_alone(self) -> bool:
        """Whether the forward pass may be captured: neither an adapter's slot nor separate labels decide what runs."""
        return self.counts.slots is None and not any(self.label_ids)

    def unread(self) -> PaddedInputs:
        """The same without the counts, which a captured forward pass must not read: the next batch has others."""
        unread: Any = None
        return replace(self, counts=_Counts(unread, unread, unread, unread, None))

    def inputs(self, data: torch.Tensor) -> Inputs:
        """`data` on the device, in parts."""
        bucket, counts, slots = self.bucket, self.counts, self.counts.slots
        sizes = _sizes(bucket)
        part = dict(zip(sizes, data.split_with_sizes(list(sizes.values())), strict=True))
        mask = torch.arange(bucket.length, device=data.device) < part["lengths"][:, None]
        of_slots: Slots = slots.of_texts if slots else ()
        layout = PaddedLayout(
            counts.tokens,
            bucket.tokens,
            Block.masked(mask, of_slots, together=True),
            part["index"],
            part["cells"],
            part["cells"] % bucket.length,
            slots,
            slots.slot_rows(counts.tokens) if slots else None,
        )
        return Inputs(
            part["token_ids"],
            layout,
            None,
            part["word_numbers"],
            part["word_positions"],
            part["label_positions"],
            part["relation_positions"],
            PaddedRows(counts.words, slots, bucket.texts, bucket.words, part["word_counts"]),
            PaddedRows(counts.labels, slots, bucket.texts, bucket.labels, part["label_counts"]),
            PaddedRows(counts.relations, slots, bucket.texts, bucket.relations),
            self.label_ids,
            part["thresholds"].view(torch.float64).float(),
        )


@dataclass(frozen=True, slots=True)
class _Counts:
    """Numbers of tokens, words, labels and relations of each text, and the texts' adapters."""

    tokens: tuple[int, ...]
    words: tuple[int, ...]
    labels: tuple[int, ...]
    relations: tuple[int, ...]
    slots: TextSlots | None


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
