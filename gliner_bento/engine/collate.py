"""From tokenized items to tensors: packed ones for our forwards, or padded ones, as gliner's collators make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from gliner_bento.adapters.linear import RowSlots
from gliner_bento.engine.base import Prepared
from gliner_bento.engine.packing import Rows
from gliner_bento.engine.tokenize import Tokenized

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """Rows side by side, without padding. T tokens, W words, of all rows.

    token_ids: (T,).
    word_places: places among the tokens of those that stand for words; for most models one of each word.
    word_numbers: for each of these its word, counted over all rows.
    tokens, words, labels, relations: how many of each are each row's.
    label_ids: a bi-encoder's labels, by their token ids, row after row.
    """

    token_ids: torch.Tensor
    word_places: torch.Tensor
    word_numbers: torch.Tensor
    tokens: Rows
    words: Rows
    labels: Rows
    relations: Rows
    label_ids: tuple[tuple[int, ...], ...]

    def to(self, device: torch.device) -> PackedInputs:
        """The same with its tensors on `device`."""
        return replace(
            self,
            token_ids=self.token_ids.to(device, non_blocking=True),
            word_places=self.word_places.to(device, non_blocking=True),
            word_numbers=self.word_numbers.to(device, non_blocking=True),
        )

    def places_of(self, token: int) -> torch.Tensor:
        """Where `token` stands, in order."""
        return (self.token_ids == token).nonzero()[:, 0]


@dataclass(frozen=True, slots=True)
class Batch:
    """Items of one forward; rows: those that reach the device, in the order of `inputs`, their tensors."""

    items: tuple[Prepared, ...]
    rows: tuple[Prepared, ...]
    inputs: Any


SlotOf = Callable[[Prepared], "int | None"]


def packed(
    items: Sequence[Prepared], slot_of: SlotOf | None = None, slots: int = 0, device: torch.device = CPU
) -> Batch:
    """Tensors on the CPU, rows in order of length: neighbours of equal length are looked at together.

    slot_of: with adapters: the slot that holds a row's, one of `slots` on `device`. Then rows stand in order of their
    slots first, those of the base model last.
    """
    rows = sorted((item for item in items if item.tokens), key=lambda row: row.tokens)
    if not rows:
        return Batch(tuple(items), (), None)
    adapters = None
    if slot_of is not None:
        slot = {id(row): slot_of(row) for row in rows}
        rows.sort(key=lambda row: slots if (place := slot[id(row)]) is None else place)
        adapters = RowSlots(tuple(slot[id(row)] for row in rows), slots, device)
    return Batch(tuple(items), tuple(rows), packed_inputs(rows, adapters))


def packed_inputs(rows: Sequence[Prepared], adapters: RowSlots | None = None) -> PackedInputs:
    """See `PackedInputs`."""
    tokenized: list[Tokenized] = [row.payload for row in rows]
    marks = torch.tensor(list(chain.from_iterable(item.words_mask for item in tokenized)))
    word_counts = tuple(row.words for row in rows)
    token_counts = tuple(row.tokens for row in rows)
    places = marks.nonzero()[:, 0]
    before = torch.tensor([0, *accumulate(word_counts[:-1])]).repeat_interleave(torch.tensor(token_counts))
    return PackedInputs(
        token_ids=torch.tensor(list(chain.from_iterable(item.token_ids for item in tokenized))),
        word_places=places,
        word_numbers=(marks + before)[places] - 1,
        tokens=Rows(token_counts, adapters),
        words=Rows(word_counts, adapters),
        labels=Rows(tuple(len(row.item.labels) for row in rows), adapters),
        relations=Rows(tuple(len(row.item.relations) for row in rows), adapters),
        label_ids=tuple(chain.from_iterable(item.labels for item in tokenized)),
    )


@dataclass(frozen=True, slots=True)
class Collator:
    """Padded tensors; what of a model shapes them. `max_width` is None for models that score no fixed spans."""

    pad_id: int
    labels_pad_id: int | None
    max_width: int | None

    @classmethod
    def of(cls, model: Any) -> Collator:
        """For one of gliner's models."""
        processor = model.data_processor
        labels_tokenizer = getattr(processor, "labels_tokenizer", None)
        return cls(
            pad_id=processor.transformer_tokenizer.pad_token_id,
            labels_pad_id=labels_tokenizer.pad_token_id if labels_tokenizer is not None else None,
            max_width=None if model.config.span_mode == "token_level" else model.config.max_width,
        )

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
