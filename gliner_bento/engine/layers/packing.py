"""How texts of different lengths are packed into one tensor without padding.

    texts of 3, 3 and 5 tokens:   a a a b b b c c c c c          (11, ...)

Layers that treat every token alike see one long sequence. Attention works per text. On a CPU, it runs on blocks of
texts of equal length, without padding. On a GPU, where few large kernels are faster than many small ones, it runs on
one block that is padded and masked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

import torch
from torch.nn import functional as F

from gliner_bento.engine.layers.rows import SlotRows, TextRows, copied
from gliner_bento.engine.layers.threads import torch_threads

Slots = tuple[int | None, ...]

# Minimum number of queries per thread: with fewer, torch's bfloat16 attention on a CPU uses other kernels.
_QUERIES_PER_THREAD = 4


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive texts that attention treats as texts of one length.

    slots: the adapter slot of each text; empty if no text has one.
    allowed: (texts, 1, 1, length), False for padding; None if there is no padding. padding: the inverse of `allowed`.
    together: multiply all texts in one product; else one by one, so that a text's rounding does not depend on others.
    cache: tensors that depend only on the block, kept for all layers.
    """

    texts: int
    length: int
    slots: Slots = ()
    allowed: torch.Tensor | None = None
    padding: torch.Tensor | None = None
    together: bool = False
    cache: dict[object, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def masked(cls, mask: torch.Tensor, slots: Slots = (), *, together: bool = False) -> Block:
        """A padded block. mask: (texts, length), False for padding."""
        allowed = mask[:, None, None, :]
        texts, length = mask.shape
        return cls(texts, length, slots, allowed=allowed, padding=~allowed, together=together)


class Attend(Protocol):
    """Attention over the texts of a block."""

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: Block, /) -> torch.Tensor:
        """Contexts. They have the shape of queries, keys and values: (texts, length, heads, head size)."""


def softmax_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float | None = None
) -> torch.Tensor:
    """Softmax attention in the shapes of `Attend`. mask: bools, True for allowed keys; or numbers to add to scores."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(1, 2)


class Layout(Protocol):
    """Places packed texts in tensors of `size` rows, which may include padding. slot_rows: the rows of each slot."""

    @property
    def slot_rows(self) -> SlotRows | None: ...

    @property
    def positions(self) -> torch.Tensor:
        """Shape (size,): each token's position in its text, from 0; 0 for padding."""

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        """Contexts (size, heads * head size) of packed queries, keys and values (size, 3, heads, head size)."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """A `Layout` on the CPU with attention on blocks of texts of equal length.

    lengths: bucketed length of each text. is_token: (size,), False for padding.
    """

    lengths: tuple[int, ...]
    blocks: tuple[Block, ...]
    size: int
    is_token: torch.Tensor
    slot_rows: SlotRows | None

    @classmethod
    def of(cls, rows: TextRows, length_multiple: int) -> BlockLayout:
        """Rounds lengths up to multiples of `length_multiple`, and their sum up to a bucket (see `bucket_size`).

        oneDNN generates code and caches memory for every shape, so the number of shapes is kept small.
        """
        lengths = [(count + length_multiple - 1) // length_multiple * length_multiple for count in rows.counts]
        size = bucket_size(sum(lengths))
        is_token = torch.zeros(size, dtype=torch.bool)
        start = 0
        for count, length in zip(rows.counts, lengths, strict=True):
            is_token[start : start + count] = True
            start += length
        blocks, start, first_text = [], 0, 0
        for length, equal in groupby(lengths):
            texts = len(list(equal))
            slots = rows.slots.slot_of_text[first_text : first_text + texts] if rows.slots else ()
            mask = is_token[start : start + texts * length].view(texts, length)
            # A mask may change rounding, so whether there is one must not depend on the other texts' padding.
            blocks.append(Block.masked(mask, slots) if length_multiple > 1 else Block(texts, length, slots))
            start, first_text = start + texts * length, first_text + texts
        slot_rows = rows.slots.slot_rows(lengths) if rows.slots else None
        return cls(tuple(lengths), tuple(blocks), size, is_token, slot_rows)

    @property
    def positions(self) -> torch.Tensor:
        text_positions = [torch.arange(length) for length in self.lengths]
        positions = torch.cat([*text_positions, torch.zeros(self.size - sum(self.lengths), dtype=torch.long)])
        return positions.mul_(self.is_token)

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        contexts = qkv.new_empty(self.size, qkv.shape[2] * qkv.shape[3])
        start = 0
        for block in self.blocks:
            texts, length = block.texts, block.length
            end = start + texts * length
            q, k, v = qkv[start:end].view(texts, length, *qkv.shape[1:]).unbind(2)
            with torch_threads(max(1, min(torch.get_num_threads(), length // _QUERIES_PER_THREAD))):
                contexts[start:end] = attend(q, k, v, block).reshape(texts * length, -1)
            start = end
        contexts[start:] = 0
        return contexts


@dataclass(frozen=True, slots=True)
class PaddedLayout:
    """A `Layout` with attention on one padded block of (texts, length). The flat block has texts * length cells.

    index: (texts * length,), the packed row of each cell; arbitrary for padding.
    cells: (size,), the cell of each packed row; arbitrary for rows after the last text.
    """

    block: Block
    index: torch.Tensor
    cells: torch.Tensor
    positions: torch.Tensor
    slot_rows: SlotRows | None

    @classmethod
    def of(cls, rows: TextRows, device: torch.device) -> PaddedLayout:
        """The layout of exactly these texts, not padded to a bucket."""
        longest, size = max(rows.counts), sum(rows.counts)
        counts = torch.tensor(rows.counts)
        positions = torch.arange(longest)
        mask = positions < counts[:, None]
        cells = mask.flatten().nonzero()[:, 0]
        index = torch.zeros(mask.numel(), dtype=torch.long)
        index[cells] = torch.arange(size)
        mask, index, cells = (copied(tensor, device) for tensor in (mask, index, cells))
        return cls.masked(mask, index, cells, rows)

    @classmethod
    def masked(cls, mask: torch.Tensor, index: torch.Tensor, cells: torch.Tensor, rows: TextRows) -> PaddedLayout:
        """A layout from its parts. mask: (texts, length), False for padding. rows: the tokens of each text."""
        block = Block.masked(mask, rows.slots.slot_of_text if rows.slots else (), together=True)
        return cls(block, index, cells, cells % block.length, rows.slot_rows)

    @property
    def mask(self) -> torch.Tensor:
        """(texts, length), False for padding."""
        assert self.block.allowed is not None
        return self.block.allowed[:, 0, 0]

    def padded(self, x: torch.Tensor) -> torch.Tensor:
        """(size, ...) -> (texts, length, ...)."""
        return x[self.index].view(self.block.texts, self.block.length, *x.shape[1:])

    def packed(self, x: torch.Tensor) -> torch.Tensor:
        """(texts, length, ...) -> (size, ...)."""
        return x.flatten(0, 1)[self.cells]

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = self.padded(qkv).unbind(2)
        return self.packed(attend(q, k, v, self.block)).flatten(1)


def bucket_size(tokens: int) -> int:
    """`tokens` rounded up to a multiple of 16 if they are at most 64, else of 64; never 0."""
    step = 16 if tokens <= 64 else 64
    steps = (tokens + step - 1) // step
    return max(1, steps) * step
