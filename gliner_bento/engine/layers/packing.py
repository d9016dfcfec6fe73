"""How texts of different lengths are packed into one tensor without padding.

    texts of 3, 3 and 5 tokens:   a a a b b b c c c c c          (11, ...)

Layers that treat every token alike see one long sequence. Attention works per text: on a CPU on blocks of texts of
equal length, so nothing is padded; on a GPU, where few large kernels are faster than many small ones, on one block that
is padded and masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, zip_longest
from typing import Protocol

import torch

from gliner_bento.engine.layers.rows import SlotRows, TextRows, TextSlots
from gliner_bento.engine.layers.threads import torch_threads

Slots = tuple[int | None, ...]

# Queries for each thread, at least: with fewer, torch's bfloat16 attention on a CPU takes other kernels.
_QUERIES_PER_THREAD = 4


class Attend(Protocol):
    """Attention over texts of one length."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, slots: Slots, /
    ) -> torch.Tensor:
        """Contexts, in the shape of queries, keys and values, (texts, length, heads, width).

        mask: (texts, length), False for padding. slots: the adapter slot of each text; empty if no text has one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Packed texts of `lengths` tokens.

    blocks: consecutive texts of equal length, as (texts, length).
    size: number of packed positions, with those after the last text.
    index, mask: if attention runs on one padded block: (texts, longest), the packed position of each token, and whether
        there is a token.
    tokens, block_masks: if lengths are bucketed: whether there is a token at a position, (size), and per block, (texts,
        length); None if no text is ever padded.
    slots, slot_rows: of the texts' adapters.
    """

    lengths: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    size: int
    index: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    tokens: torch.Tensor | None = None
    block_masks: tuple[torch.Tensor | None, ...] = ()
    slots: TextSlots | None = None
    slot_rows: SlotRows | None = None

    @classmethod
    def of(cls, rows: TextRows, device: torch.device) -> Layout:
        """The layout for attention on `device`."""
        blocks = _blocks_of(rows.counts)
        if device.type == "cpu" or len(blocks) == 1:
            return cls(rows.counts, blocks, sum(rows.counts), slots=rows.slots, slot_rows=rows.slot_rows)
        return cls.padded(rows, device)

    @classmethod
    def bucketed(cls, lengths: Sequence[int], length_multiple: int, slots: TextSlots | None = None) -> Layout:
        """On a CPU: lengths rounded up to multiples of `length_multiple`, their sum to a bucket (see `bucket_size`).

        oneDNN generates code and caches memory for every shape, so the number of shapes is kept small.
        """
        longer = [-(-length // length_multiple) * length_multiple for length in lengths]
        size = bucket_size(sum(longer))
        tokens = torch.zeros(size, dtype=torch.bool)
        for length, start in zip(lengths, [0, *accumulate(longer)], strict=False):
            tokens[start : start + length] = True
        blocks = _blocks_of(longer)
        masks, start = [], 0
        for texts, length in blocks:
            # Also for a block without padding: a mask must not depend on the other texts, it may change rounding.
            masks.append(tokens[start : start + texts * length].view(texts, length) if length_multiple > 1 else None)
            start += texts * length
        return cls(
            tuple(longer),
            blocks,
            size,
            tokens=tokens,
            block_masks=tuple(masks),
            slots=slots,
            slot_rows=slots.slot_rows(longer) if slots else None,
        )

    @classmethod
    def padded(cls, rows: TextRows, device: torch.device) -> Layout:
        """All texts as one padded block."""
        lengths = rows.counts
        counts = torch.tensor(lengths)
        positions = torch.arange(max(lengths))
        mask = positions < counts[:, None]
        index = ((counts.cumsum(0) - counts)[:, None] + positions) * mask
        block = (len(lengths), max(lengths))
        index, mask = (tensor.to(device, non_blocking=True) for tensor in (index, mask))
        return cls(lengths, (block,), sum(lengths), index=index, mask=mask, slots=rows.slots, slot_rows=rows.slot_rows)

    def positions(self, device: torch.device) -> torch.Tensor:
        """Shape (size,): each token's position in its text, from 0; 0 for padding."""
        counted = [torch.arange(length) for length in self.lengths]
        positions = torch.cat([*counted, torch.zeros(self.size - sum(self.lengths), dtype=torch.long)])
        if self.tokens is not None:
            positions *= self.tokens
        return positions.to(device, non_blocking=True)

    def by_adapter(self) -> list[tuple[int | None, int]]:
        """Consecutive texts with the same adapter, as (slot, number of texts)."""
        if self.slots is None:
            return [(None, len(self.lengths))]
        return [(slot, len(list(texts))) for slot, texts in groupby(self.slots.of_texts)]

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        """Contexts (size, heads * width) of packed queries, keys and values, (size, 3, heads, width)."""
        slots: Slots = self.slots.of_texts if self.slots else ()
        if self.index is not None:
            q, k, v = qkv[self.index].unbind(2)
            return attend(q, k, v, self.mask, slots).flatten(2)[self.mask]
        contexts = qkv.new_empty(self.size, qkv.shape[2] * qkv.shape[3])
        start = text = 0
        for (texts, length), mask in zip_longest(self.blocks, self.block_masks):
            end = start + texts * length
            q, k, v = qkv[start:end].view(texts, length, *qkv.shape[1:]).unbind(2)
            with torch_threads(max(1, min(torch.get_num_threads(), length // _QUERIES_PER_THREAD))):
                contexts[start:end] = attend(q, k, v, mask, slots[text : text + texts]).reshape(texts * length, -1)
            start, text = end, text + texts
        contexts[start:] = 0
        return contexts


def _blocks_of(lengths: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((len(list(texts)), length) for length, texts in groupby(lengths))


def bucket_size(tokens: int) -> int:
    """The bucket of a number of tokens: multiples of 16 up to 64, of 64 beyond; never 0."""
    step = 16 if tokens <= 64 else 64
    return max(1, -(-tokens // step)) * step
