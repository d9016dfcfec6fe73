"""How rows of different lengths stand in one tensor without padding.

    rows of 3, 3 and 5 tokens:   a a a b b b c c c c c          (11, ...)

Layers that treat every token alike see one long sequence. Attention looks at rows: on a CPU at blocks of rows of equal
length, so that nothing is padded; on a GPU, where few large kernels beat many small ones, at one block that is padded
and masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, zip_longest
from typing import Protocol

import torch

from gliner_bento.adapters.linear import Owners, RowSlots

Slots = tuple[int | None, ...]


class Attend(Protocol):
    """Attention over rows of one length."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, slots: Slots, /
    ) -> torch.Tensor:
        """Contexts; they, queries, keys and values are (rows, length, heads, width). mask: (rows, length), False:
        padding. slots: of each row the slot of its adapter; empty where none has one."""


@dataclass(frozen=True)
class Rows:
    """How many of a matrix's rows, which stand text after text, are each text's; and with which adapter it is read."""

    counts: tuple[int, ...]
    slots: RowSlots | None = None

    @cached_property
    def owners(self) -> Owners | None:
        """Whose the matrix's rows are; None where no text has an adapter."""
        return self.slots.owners(self.counts) if self.slots else None

    def owner(self, row: int, count: int) -> Owners | None:
        """Whose the rows of a matrix are that all belong to text `row`."""
        return self.slots.owner(row, count) if self.slots else None

    def slot(self, row: int) -> int | None:
        """The slot of a text's adapter."""
        return self.slots.of_rows[row] if self.slots else None

    def split(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Each text's rows of `x`."""
        return x.split_with_sizes(list(self.counts))


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of `lengths` tokens, side by side.

    blocks: neighbours of equal length as (rows, length).
    size: tokens in all, those behind the last row included.
    index, mask: where rows are looked at as one padded block: (rows, longest), the packed position of each place, and
        whether there is a token.
    tokens, block_masks: where rows were rounded up: (size), and of each block (rows, length), whether there is a token;
        of a block that is full, None.
    slots, owners: of rows with adapters.
    """

    lengths: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    size: int
    index: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    tokens: torch.Tensor | None = None
    block_masks: tuple[torch.Tensor | None, ...] = ()
    slots: RowSlots | None = None
    owners: Owners | None = None

    @classmethod
    def of(cls, rows: Rows, device: torch.device) -> Layout:
        """How rows are looked at on `device`."""
        blocks = _blocks_of(rows.counts)
        if device.type == "cpu" or len(blocks) == 1:
            return cls(rows.counts, blocks, sum(rows.counts), slots=rows.slots, owners=rows.owners)
        return cls.padded(rows, device)

    @classmethod
    def rounded(cls, lengths: Sequence[int], row_multiple: int, slots: RowSlots | None = None) -> Layout:
        """On a CPU: rows rounded up to multiples of `row_multiple`, and all of them as `rounded_up` says.

        For each shape that it meets oneDNN makes code and keeps memory: of few shapes, that is little.
        """
        longer = [-(-length // row_multiple) * row_multiple for length in lengths]
        size = rounded_up(sum(longer))
        tokens = torch.zeros(size, dtype=torch.bool)
        for length, start in zip(lengths, [0, *accumulate(longer)], strict=False):
            tokens[start : start + length] = True
        blocks = _blocks_of(longer)
        masks, start = [], 0
        for rows, length in blocks:
            mask = tokens[start : start + rows * length].view(rows, length)
            masks.append(None if bool(mask.all()) else mask)
            start += rows * length
        owners = slots.owners(longer) if slots else None
        return cls(tuple(longer), blocks, size, tokens=tokens, block_masks=tuple(masks), slots=slots, owners=owners)

    @classmethod
    def padded(cls, rows: Rows, device: torch.device) -> Layout:
        """All rows as one padded block."""
        lengths = rows.counts
        counts = torch.tensor(lengths)
        places = torch.arange(max(lengths))
        mask = places < counts[:, None]
        index = ((counts.cumsum(0) - counts)[:, None] + places) * mask
        block = (len(lengths), max(lengths))
        index, mask = (part.to(device, non_blocking=True) for part in (index, mask))
        return cls(lengths, (block,), sum(lengths), index=index, mask=mask, slots=rows.slots, owners=rows.owners)

    def positions(self, device: torch.device) -> torch.Tensor:
        """Shape (size,): each token's place in its row, from 0; for those that only round up, 0."""
        parts = [torch.arange(length) for length in self.lengths]
        positions = torch.cat([*parts, torch.zeros(self.size - sum(self.lengths), dtype=torch.long)])
        if self.tokens is not None:
            positions *= self.tokens
        return positions.to(device, non_blocking=True)

    def by_adapter(self) -> list[tuple[int | None, int]]:
        """Neighbours with one adapter, as (slot, rows)."""
        if self.slots is None:
            return [(None, len(self.lengths))]
        return [(slot, len(list(rows))) for slot, rows in groupby(self.slots.of_rows)]

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        """Contexts (size, heads * width) of packed queries, keys and values, (size, 3, heads, width)."""
        slots: Slots = self.slots.of_rows if self.slots else ()
        if self.index is not None:
            q, k, v = qkv[self.index].unbind(2)
            return attend(q, k, v, self.mask, slots).flatten(2)[self.mask]
        contexts = qkv.new_empty(self.size, qkv.shape[2] * qkv.shape[3])
        start = row = 0
        for (rows, length), mask in zip_longest(self.blocks, self.block_masks):
            end = start + rows * length
            q, k, v = qkv[start:end].view(rows, length, *qkv.shape[1:]).unbind(2)
            contexts[start:end] = attend(q, k, v, mask, slots[row : row + rows]).reshape(rows * length, -1)
            start, row = end, row + rows
        contexts[start:] = 0
        return contexts


def _blocks_of(lengths: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((len(list(rows)), length) for length, rows in groupby(lengths))


def rounded_up(tokens: int) -> int:
    """So many rows that layers meet few sizes: a multiple of 16 up to 64, of 64 beyond; never 0."""
    step = 16 if tokens <= 64 else 64
    return max(1, -(-tokens // step)) * step
