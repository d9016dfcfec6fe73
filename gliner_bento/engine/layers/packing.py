"""How texts of different lengths are packed into one tensor without padding.

    texts of 3, 3 and 5 tokens:   a a a b b b c c c c c          (11, ...)

Layers that treat every token alike see one long sequence. Attention works per text: on a CPU on blocks of texts of
equal length, so nothing is padded; on a GPU, where few large kernels are faster than many small ones, on one block that
is padded and masked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Protocol

import torch
from torch.nn import functional as F

from gliner_bento.engine.layers.rows import SlotRows, TextRows, copied
from gliner_bento.engine.layers.threads import torch_threads

Slots = tuple[int | None, ...]

# Queries for each thread, at least: with fewer, torch's bfloat16 attention on a CPU takes other kernels.
_QUERIES_PER_THREAD = 4


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive texts that attention treats as texts of one length.

    slots: the adapter slot of each text; empty if no text has one.
    allowed: (texts, 1, 1, length), False for padding; None if there is none. blocked: its complement.
    together: texts may be multiplied in one product; else text by text, so that rounding does not depend on the others.
    cache: tensors that all layers share, because they depend on the block alone.
    """

    texts: int
    length: int
    slots: Slots = ()
    allowed: torch.Tensor | None = None
    blocked: torch.Tensor | None = None
    together: bool = False
    cache: dict[object, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def masked(cls, mask: torch.Tensor, slots: Slots = (), *, together: bool = False) -> Block:
        """mask: (texts, length), False for padding."""
        allowed = mask[:, None, None, :]
        return cls(mask.shape[0], mask.shape[1], slots, allowed, ~allowed, together)


class Attend(Protocol):
    """Attention over the texts of a block."""

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: Block, /) -> torch.Tensor:
        """Contexts, in the shape of queries, keys and values, (texts, length, heads, width)."""


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float | None = None
) -> torch.Tensor:
    """Softmax attention in the shapes of `Attend`. mask: True where a key is attended to, or added to the scores."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(1, 2)


class Layout(Protocol):
    """Packed texts, at `size` packed positions with those after the last text. slot_rows: of their tokens."""

    @property
    def slot_rows(self) -> SlotRows | None: ...

    @property
    def positions(self) -> torch.Tensor:
        """Shape (size,): each token's position in its text, from 0; 0 for padding."""

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        """Contexts (size, heads * width) of packed queries, keys and values, (size, 3, heads, width)."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """A `Layout` on the CPU with attention on blocks of texts of equal length.

    lengths: of the texts, bucketed. tokens: whether there is a token at a position, (size).
    """

    lengths: tuple[int, ...]
    blocks: tuple[Block, ...]
    size: int
    tokens: torch.Tensor
    slot_rows: SlotRows | None

    @classmethod
    def of(cls, rows: TextRows, length_multiple: int) -> BlockLayout:
        """Lengths rounded up to multiples of `length_multiple`, their sum to a bucket (see `bucket_size`).

        oneDNN generates code and caches memory for every shape, so the number of shapes is kept small.
        """
        longer = [-(-length // length_multiple) * length_multiple for length in rows.counts]
        size = bucket_size(sum(longer))
        tokens = torch.zeros(size, dtype=torch.bool)
        for length, start in zip(rows.counts, [0, *accumulate(longer)], strict=False):
            tokens[start : start + length] = True
        blocks, start, text = [], 0, 0
        for length, equal in groupby(longer):
            texts = len(list(equal))
            slots = rows.slots.of_texts[text : text + texts] if rows.slots else ()
            mask = tokens[start : start + texts * length].view(texts, length)
            # Also for a block without padding: a mask must not depend on the other texts, it may change rounding.
            blocks.append(Block.masked(mask, slots) if length_multiple > 1 else Block(texts, length, slots))
            start, text = start + texts * length, text + texts
        slot_rows = rows.slots.slot_rows(longer) if rows.slots else None
        return cls(tuple(longer), tuple(blocks), size, tokens, slot_rows)

    @property
    def positions(self) -> torch.Tensor:
        """See `Layout`."""
        counted = [torch.arange(length) for length in self.lengths]
        positions = torch.cat([*counted, torch.zeros(self.size - sum(self.lengths), dtype=torch.long)])
        return positions.mul_(self.tokens)

    def attend(self, attend: Attend, qkv: torch.Tensor) -> torch.Tensor:
        """See `Layout`."""
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
    """A `Layout` with attention on one padded block of (texts, length).

    index: (texts * length), the packed position of each token of the block; any for padding.
    cells: (size), the index into the flat block of each packed position; any for those after the last text.
    """

    block: Block
    index: torch.Tensor
    cells: torch.Tensor
    positions: torch.Tensor
    slot_rows: SlotRows | None

    @classmethod
    def of(cls, rows: TextRows, device: torch.device) -> PaddedLayout:
        """The layout of exactly these texts, not of a bucket."""
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
        """mask: (texts, length), False for padding. rows: the tokens of each text."""
        block = Block.masked(mask, rows.slots.of_texts if rows.slots else (), together=True)
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
        """See `Layout`."""
        q, k, v = self.padded(qkv).unbind(2)
        return self.packed(attend(q, k, v, self.block)).flatten(1)


def bucket_size(tokens: int) -> int:
    """The bucket of a number of tokens: multiples of 16 up to 64, of 64 beyond; never 0."""
    step = 16 if tokens <= 64 else 64
    return max(1, -(-tokens // step)) * step
