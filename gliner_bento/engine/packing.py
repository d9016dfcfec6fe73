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
    index: where rows are padded: (rows, longest), the packed position of each place; None where they are not.
    mask: (rows, longest), True where there is a token; None where there is no padding.
    """

    lengths: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    index: torch.Tensor | None = None
    mask: torch.Tensor | None = None

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> Layout:
        """How rows of these lengths are looked at on `device`."""
        blocks = tuple((len(list(rows)), length) for length, rows in groupby(lengths))
        if device.type == "cpu" or len(blocks) == 1:
            return cls(tuple(lengths), blocks)
        return cls.padded(lengths, device)

    @classmethod
    def padded(cls, lengths: Sequence[int], device: torch.device) -> Layout:
        """All rows as one padded block."""
        counts = torch.tensor(lengths)
        places = torch.arange(max(lengths))
        mask = places < counts[:, None]
        index = ((counts.cumsum(0) - counts)[:, None] + places) * mask
        block = (len(lengths), max(lengths))
        return cls(tuple(lengths), (block,), index.to(device, non_blocking=True), mask.to(device, non_blocking=True))

    def positions(self, device: torch.device) -> torch.Tensor:
        """Shape (T,): each token's place in its row, from 0."""
        return torch.cat([torch.arange(length) for length in self.lengths]).to(device, non_blocking=True)

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        """Contexts (T, heads * width) of `qkv` (T, 3, heads, width), row by row."""
        if self.index is not None:
            q, k, v = qkv[self.index].unbind(2)
            return attend(q, k, v, self.mask).flatten(2)[self.mask]
        parts, start = [], 0
        for rows, length in self.blocks:
            block = qkv[start : start + rows * length].view(rows, length, *qkv.shape[1:])
            q, k, v = block.unbind(2)
            parts.append(attend(q, k, v, None).reshape(rows * length, -1))
            start += rows * length
        return torch.cat(parts) if len(parts) > 1 else parts[0]


def split_rows(x: torch.Tensor, counts: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Packed `x` (sum of counts, ...) as a view for each row."""
    return tuple(x.split_with_sizes(list(counts)))
