"""Which text, and which adapter slot, each row of a matrix belongs to.

The texts of a batch are ordered by their adapter's slot; texts of the base model come last. A matrix has the rows of
the first text (its tokens, words, labels, ...), then those of the second one, and so on. So the rows of a slot are
contiguous:

    x   ┌─ slot 0 ─┬─ slot 2 ─┬── base ──┐
        └──────────┴──────────┴──────────┘
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, groupby
from typing import NamedTuple

import torch
from torch.nn import functional as F


def copied(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of a CPU tensor on `device`. Does not wait until it is copied."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@dataclass(frozen=True)
class TextSlots:
    """The adapter slot of each text of a batch; None: the base model. count: number of slots that the device has."""

    slot_of_text: tuple[int | None, ...]
    count: int
    device: torch.device

    def slot_rows(self, counts: Sequence[int]) -> SlotRows:
        """The rows of each slot, in a matrix that has `counts[i]` rows for text i."""
        slot_counts = [0] * self.count
        for slot, count in zip(self.slot_of_text, counts, strict=True):
            if slot is not None:
                slot_counts[slot] += count
        return SlotRows(tuple(slot_counts), self.device)


@dataclass(frozen=True)
class SlotRows:
    """How many rows of a matrix belong to each slot, in order of slots; the rows after them are the base model's."""

    counts: tuple[int, ...]
    device: torch.device

    def only(self, slots: Container[int]) -> SlotRows:
        """The rows of these slots."""
        return SlotRows(tuple(count if slot in slots else 0 for slot, count in enumerate(self.counts)), self.device)

    @cached_property
    def total(self) -> int:
        """Number of rows of all slots."""
        return sum(self.counts)

    @cached_property
    def slots(self) -> frozenset[int]:
        """Slots that have rows."""
        return frozenset(slot for slot, count in enumerate(self.counts) if count)

    @cached_property
    def ends(self) -> torch.Tensor:
        """Shape (slots,): where each slot's rows end."""
        return copied(torch.tensor(list(accumulate(self.counts)), dtype=torch.int32), self.device)

    @cached_property
    def slot_of_row(self) -> torch.Tensor:
        """Shape (total,): the slot of each row."""
        counts = copied(torch.tensor(self.counts), self.device)
        return torch.arange(len(counts), device=self.device).repeat_interleave(counts, output_size=self.total)


@dataclass(frozen=True)
class TextRows:
    """How many rows of a matrix belong to each text of a batch. slots: the texts' adapters; None: no text has one."""

    counts: tuple[int, ...]
    slots: TextSlots | None = None

    @cached_property
    def slot_rows(self) -> SlotRows | None:
        """The rows of each slot; None if no text has an adapter."""
        return self.slots.slot_rows(self.counts) if self.slots else None

    def slot_rows_of(self, text: int, count: int) -> SlotRows | None:
        """The rows of each slot, in a matrix with `count` rows, all of one text; None for the base model."""
        text_slot = self.slot(text)
        if self.slots is None or text_slot is None:
            return None
        slot_counts = tuple(count if slot == text_slot else 0 for slot in range(self.slots.count))
        return SlotRows(slot_counts, self.slots.device)

    def slot(self, text: int) -> int | None:
        """The slot of a text's adapter; None for the base model."""
        return self.slots.slot_of_text[text] if self.slots else None

    @property
    def size(self) -> int:
        """Number of rows of all texts, padding included."""
        return sum(self.counts)

    def split(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Each text's rows of `x`."""
        return x.split_with_sizes(list(self.counts))

    def blocks(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """`x` in blocks (texts, rows, ...) of texts with equal numbers of rows. Here, each text is a block."""
        return [text[None] for text in self.split(x)]

    def reaching(self, x: torch.Tensor, more: int) -> Sequence[torch.Tensor]:
        """`blocks` with `more` further rows at the end of each text: zeros, or the next text's rows."""
        x = F.pad(x, (0, 0, 0, more))
        return [x[first : first + count + more][None] for first, count in zip(self.firsts, self.counts, strict=True)]

    @cached_property
    def firsts(self) -> Sequence[int]:
        """Each text's first row."""
        return [0, *accumulate(self.counts[:-1])]

    def with_padding(self, values: Sequence[int]) -> Sequence[int]:
        """A value for each row; padding gets 0. values: those of the rows that are not padding."""
        return values

    def by_slot(self, x: torch.Tensor) -> Sequence[tuple[int | None, torch.Tensor, torch.Tensor]]:
        """`blocks` of texts with the same adapter, in order: (slot, block, mask). mask: (texts, rows), False for
        padding."""
        return [
            (self.slot(index), text[None], text.new_ones((1, len(text)), dtype=torch.bool))
            for index, text in enumerate(self.split(x))
        ]

    def joined(self, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
        """The rows (N, ...) of all blocks, which are in the order of `by_slot`."""
        return torch.cat([block.flatten(0, 1) for block in blocks])

    def groups(self, sizes: Mapping[int, int]) -> Sequence[Sequence[int]]:
        """Groups of texts to compute together. Here, each text is a group. sizes: rows of each text, by its index."""
        return [[text] for text in sizes]

    def by_adapter(self) -> list[tuple[int | None, int]]:
        """Consecutive texts with the same adapter, as (slot, number of texts)."""
        if self.slots is None:
            return [(None, len(self.counts))]
        return [(slot, len(list(texts))) for slot, texts in groupby(self.slots.slot_of_text)]

    def block_slot_rows(self, block: int, rows: int) -> SlotRows | None:
        """The rows of each slot, in a matrix with `rows` rows for each text of the block with this index."""
        return self.slot_rows_of(block, rows)


@dataclass(frozen=True)
class PaddedRows(TextRows):
    """Rows that are padded to one block of `texts` texts with `height` rows each; the texts beyond `counts` are empty.

    device_counts: (texts,), `counts` on the device.
    """

    texts: int = 0
    height: int = 0
    device_counts: torch.Tensor = field(default_factory=lambda: torch.empty(0), compare=False)

    @cached_property
    def mask(self) -> torch.Tensor:
        """(texts, height), False for padding."""
        return torch.arange(self.height, device=self.device_counts.device) < self.device_counts[:, None]

    @cached_property
    def slot_rows(self) -> SlotRows | None:
        """The rows of each slot, padding included."""
        return self.block_slot_rows(0, self.height)

    @property
    def size(self) -> int:
        return self.texts * self.height

    def split(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Each text's rows of `x`, without padding."""
        return [text[:count] for text, count in zip(self.blocks(x)[0], self.counts, strict=False)]

    def blocks(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """All of `x` as one block."""
        return [x.view(self.texts, self.height, *x.shape[1:])]

    def reaching(self, x: torch.Tensor, more: int) -> Sequence[torch.Tensor]:
        return [F.pad(block, (0, 0, 0, more)) for block in self.blocks(x)]

    @cached_property
    def firsts(self) -> Sequence[int]:
        return [text * self.height for text in range(self.texts)]

    def by_slot(self, x: torch.Tensor) -> Sequence[tuple[int | None, torch.Tensor, torch.Tensor]]:
        """See `TextRows`. Empty texts are in the block of the last text."""
        consecutive = self.by_adapter()
        slots = [slot for slot, _ in consecutive]
        sizes = [texts for _, texts in consecutive]
        sizes[-1] += self.texts - len(self.counts)
        (block,) = self.blocks(x)
        blocks, masks = block.split_with_sizes(sizes), self.mask.split_with_sizes(sizes)
        return list(zip(slots, blocks, masks, strict=True))

    def groups(self, sizes: Mapping[int, int]) -> Sequence[Sequence[int]]:
        """See `TextRows`. A group has texts of one adapter whose sizes differ by a factor of less than two."""
        groups: dict[object, list[int]] = {}
        for text, size in sizes.items():
            groups.setdefault((self.slot(text), size.bit_length()), []).append(text)
        return list(groups.values())

    def with_padding(self, values: Sequence[int]) -> Sequence[int]:
        padded = [0] * self.size
        first = 0
        for text, count in enumerate(self.counts):
            padded[text * self.height : text * self.height + count] = values[first : first + count]
            first += count
        return padded

    def block_slot_rows(self, block: int, rows: int) -> SlotRows | None:
        return self.slots.slot_rows([rows] * len(self.counts)) if self.slots else None


class BatchRows(NamedTuple):
    """How many tokens, words, labels and relations belong to each text of a batch."""

    tokens: TextRows
    words: TextRows
    labels: TextRows
    relations: TextRows

    def with_counts(self, rows: BatchRows) -> BatchRows:
        """These rows with the counts of `rows`."""
        return BatchRows(*(replace(ours, counts=theirs.counts) for ours, theirs in zip(self, rows, strict=True)))
