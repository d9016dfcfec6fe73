"""How rows of different lengths stand in one tensor without padding.

    rows of 3, 3 and 5 tokens:   a a a b b b c c c c c          (11, ...)

Layers that treat every token alike see one long sequence. Attention looks at rows: on a CPU at blocks of rows of equal
length, so that nothing is padded; on a GPU, where few large kernels beat many small ones, at one block that is padded
and masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, "torch.Tensor | None"], torch.Tensor]
"""(queries, keys, values, mask) -> contexts, all (rows, length, heads, width); mask (rows, length), False: padding."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of `lengths` tokens, side by side.

    blocks: neighbours of equal length as (rows, length).
    index: where rows are looked at as one padded block: (rows, longest), the packed position of each place.
    mask: with `index`: (rows, longest), True where there is a token; else, if rows were rounded up, (size), the same.
    size: tokens in all, those behind the last row included.
    """

    lengths: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    size: int
    index: torch.Tensor | None = None
    mask: torch.Tensor | None = None

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> Layout:
        """How rows of these lengths are looked at on `device`."""
        blocks = tuple((len(list(rows)), length) for length, rows in groupby(lengths))
        if device.type == "cpu" or len(blocks) == 1:
            return cls(tuple(lengths), blocks, sum(lengths))
        return cls.padded(lengths, device)

    @classmethod
    def rounded(cls, lengths: Sequence[int], row_multiple: int) -> Layout:
        """On a CPU: rows rounded up to multiples of `row_multiple`, and all of them as `rounded_up` says.

        For each shape that it meets oneDNN makes code and keeps memory: of few shapes, that is little.
        """
        longer = [-(-length // row_multiple) * row_multiple for length in lengths]
        size = rounded_up(sum(longer))
        mask = torch.zeros(size, dtype=torch.bool)
        start = 0
        for length, room in zip(lengths, longer, strict=True):
            mask[start : start + length] = True
            start += room
        blocks = tuple((len(list(rows)), length) for length, rows in groupby(longer))
        return cls(tuple(longer), blocks, size, mask=mask)

    @classmethod
    def padded(cls, lengths: Sequence[int], device: torch.device) -> Layout:
        """All rows as one padded block."""
        counts = torch.tensor(lengths)
        places = torch.arange(max(lengths))
        mask = places < counts[:, None]
        index = ((counts.cumsum(0) - counts)[:, None] + places) * mask
        block = (len(lengths), max(lengths))
        there = [part.to(device, non_blocking=True) for part in (index, mask)]
        return cls(tuple(lengths), (block,), sum(lengths), *there)

    def positions(self, device: torch.device) -> torch.Tensor:
        """Shape (size,): each token's place in its row, from 0; for those that only round up, 0."""
        parts = [torch.arange(length) for length in self.lengths]
        positions = torch.cat([*parts, torch.zeros(self.size - sum(self.lengths), dtype=torch.long)])
        if self.mask is not None and self.index is None:
            positions *= self.mask
        return positions.to(device, non_blocking=True)

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        """Contexts (T, heads * width) of `qkv` (T, 3, heads, width), row by row."""
        if self.index is not None:
            q, k, v = qkv[self.index].unbind(2)
            return attend(q, k, v, self.mask).flatten(2)[self.mask]
        contexts = qkv.new_empty(self.size, qkv.shape[2] * qkv.shape[3])
        start = 0
        for rows, length in self.blocks:
            end = start + rows * length
            q, k, v = qkv[start:end].view(rows, length, *qkv.shape[1:]).unbind(2)
            contexts[start:end] = attend(q, k, v, self._mask(start, rows, length)).reshape(rows * length, -1)
            start = end
        contexts[start:] = 0
        return contexts

    def _mask(self, start: int, rows: int, length: int) -> torch.Tensor | None:
        """A block's mask, (rows, length); None where all of it are tokens."""
        if self.mask is None:
            return None
        mask = self.mask[start : start + rows * length].view(rows, length)
        return None if bool(mask.all()) else mask


def rounded_up(tokens: int) -> int:
    """So many rows that layers meet few sizes: a multiple of 16 up to 64, of 64 beyond; never 0."""
    step = 16 if tokens <= 64 else 64
    return max(1, -(-tokens // step)) * step


def split_rows(x: torch.Tensor, counts: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Packed `x` (sum of counts, ...) as a view for each row."""
    return tuple(x.split_with_sizes(list(counts)))
