"""The order of a batch's texts, and padded tensors as gliner's collators make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.layers.rows import TextSlots
from gliner_bento.engine.text.tokenize import Tokenized

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class CollatedBatch:
    """The items of one forward pass. texts: the items with tokens, in the order of `inputs`, the input of the pass."""

    items: tuple[Prepared, ...]
    texts: tuple[Prepared, ...]
    inputs: Any


SlotOf = Callable[[Prepared], "int | None"]


def ordered(
    items: Sequence[Prepared], slot_of: SlotOf | None = None, slots: int = 0, device: torch.device = CPU
) -> CollatedBatch:
    """Order texts by length, because attention runs on blocks of texts of equal length. `inputs`: `TextSlots` or None.

    slot_of: returns the slot of a text's adapter (None: base model). slots: the number of slots on `device`. With
    `slot_of`, texts are ordered by slot first, those of the base model last.
    """
    texts = sorted((item for item in items if item.tokens), key=lambda text: text.tokens)
    text_slots = None
    if slot_of is not None:
        slot = {id(text): slot_of(text) for text in texts}
        rank = {text_id: slots if number is None else number for text_id, number in slot.items()}
        texts.sort(key=lambda text: rank[id(text)])
        text_slots = TextSlots(tuple(slot[id(text)] for text in texts), slots, device)
    return CollatedBatch(tuple(items), tuple(texts), text_slots)


@dataclass(frozen=True, slots=True)
class PaddedCollator:
    """Collates items into padded tensors, as gliner does.

    labels_pad_id: None if labels are in the prompt. max_width: words of the longest span; None for token models.
    """

    pad_id: int
    labels_pad_id: int | None
    max_width: int | None

    def __call__(self, items: Sequence[Prepared]) -> CollatedBatch:
        """Tensors on the CPU, of the items that have tokens."""
        texts = tuple(prepared for prepared in items if prepared.tokens)
        return CollatedBatch(tuple(items), texts, self._inputs(texts) if texts else {})

    def _inputs(self, texts: Sequence[Prepared]) -> dict[str, Any]:
        tokenized: list[Tokenized] = [text.payload for text in texts]
        word_counts = [text.words for text in texts]
        inputs = {
            "input_ids": padded([item.token_ids for item in tokenized], self.pad_id),
            "attention_mask": padded([[1] * item.tokens for item in tokenized]),
            "words_mask": padded([item.words_mask for item in tokenized]),
            "text_lengths": torch.tensor(word_counts)[:, None],
            "word_lengths": word_counts,
        }
        if self.max_width is not None:
            inputs |= spans_of(word_counts, self.max_width)
        if self.labels_pad_id is not None:
            inputs |= labels_of([item.prompt.labels for item in tokenized], self.labels_pad_id)
        return inputs


def padded(sequences: Sequence[ArrayLike], value: int = 0) -> torch.Tensor:
    """Shape (sequences, longest), padded on the right: absolute positions must not depend on the longest sequence."""
    rows = [np.asarray(sequence, np.int64) for sequence in sequences]
    lengths = np.array([len(row) for row in rows])
    matrix = np.full((len(rows), lengths.max()), value)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(matrix)


def spans_of(word_counts: Sequence[int], max_width: int) -> dict[str, torch.Tensor]:
    """Spans of up to `max_width` words: `span_idx` (texts, spans, 2), and `span_mask`: which are in the text."""
    first = torch.arange(max(word_counts))[:, None].expand(-1, max_width)
    spans = torch.stack([first, first + torch.arange(max_width)], dim=-1).flatten(0, 1)
    mask = spans[:, 1] < torch.tensor(word_counts)[:, None]
    return {"span_idx": spans.expand(len(word_counts), -1, -1), "span_mask": mask}


def labels_of(texts: Sequence[Sequence[Sequence[int]]], pad_id: int) -> dict[str, torch.Tensor]:
    """Labels that are sequences of their own: each distinct label once, and for each text the indexes of its labels.
    texts: for each text, the token ids of each of its labels."""
    index_of = {label: index for index, label in enumerate(dict.fromkeys(tuple(ids) for text in texts for ids in text))}
    return {
        "labels_input_ids": padded([list(ids) for ids in index_of], pad_id),
        "labels_attention_mask": padded([[1] * len(ids) for ids in index_of]),
        "labels_gather_indices": padded([[index_of[tuple(ids)] for ids in text] for text in texts]),
        "prompts_embedding_mask": padded([[1] * len(text) for text in texts]).bool(),
    }
