"""From tokenized items to the tensors that gliner's models take. The same tensors as gliner's own collators make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.tokenize import Tokenized


@dataclass(frozen=True, slots=True)
class Batch:
    """Items of one forward: all of them, those that reach the device (row i of every tensor), and their tensors."""

    items: tuple[Prepared, ...]
    rows: tuple[Prepared, ...]
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Collator:
    """What of a model shapes its tensors. `max_width` is None for models that score no fixed spans."""

    pad_id: int
    labels_pad_id: int | None
    max_width: int | None

    def __call__(self, items: Sequence[Prepared]) -> Batch:
        """Tensors on the CPU; items without tokens take no row."""
        rows = tuple(prepared for prepared in items if prepared.tokens)
        return Batch(tuple(items), rows, self._inputs(rows) if rows else {})

    def _inputs(self, rows: Sequence[Prepared]) -> dict[str, Any]:
        tokenized: list[Tokenized] = [row.payload for row in rows]
        word_counts = [row.words for row in rows]
        inputs = {
            "input_ids": padded([item.token_ids for item in tokenized], self.pad_id),
            "attention_mask": padded([[1] * len(item.token_ids) for item in tokenized]),
            "words_mask": padded([item.words_mask for item in tokenized]),
            "text_lengths": torch.tensor(word_counts)[:, None],
            "word_lengths": word_counts,
        }
        if self.max_width is not None:
            inputs |= spans_of(word_counts, self.max_width)
        if self.labels_pad_id is not None:
            inputs |= labels_of([item.labels for item in tokenized], self.labels_pad_id)
        return inputs


def padded(rows: Sequence[Sequence[int]], value: int = 0) -> torch.Tensor:
    """Shape (rows, longest), filled up on the right: absolute positions must not move with a batch mate's length."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def spans_of(word_counts: Sequence[int], max_width: int) -> dict[str, torch.Tensor]:
    """Spans of up to `max_width` words: `span_idx` (B, W * max_width, 2), and `span_mask` for those in the text."""
    first = torch.arange(max(word_counts))[:, None].expand(-1, max_width)
    spans = torch.stack([first, first + torch.arange(max_width)], dim=-1).flatten(0, 1)
    mask = spans[:, 1] < torch.tensor(word_counts)[:, None]
    return {"span_idx": spans.expand(len(word_counts), -1, -1), "span_mask": mask}


def labels_of(rows: Sequence[Sequence[Sequence[int]]], pad_id: int) -> dict[str, torch.Tensor]:
    """A bi-encoder's labels: each distinct one once, and for each row the places of its own among them."""
    places = {label: place for place, label in enumerate(dict.fromkeys(tuple(ids) for row in rows for ids in row))}
    return {
        "labels_input_ids": padded([list(ids) for ids in places], pad_id),
        "labels_attention_mask": padded([[1] * len(ids) for ids in places]),
        "labels_gather_indices": padded([[places[tuple(ids)] for ids in row] for row in rows]),
        "prompts_embedding_mask": padded([[1] * len(row) for row in rows]).bool(),
    }
