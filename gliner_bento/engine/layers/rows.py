"""Which text, and which adapter slot, each row of a packed matrix belongs to.

Texts of a batch are ordered by their adapter's slot, those of the base model last. A matrix holds the rows (tokens,
words, labels, ...) of one text after the other, so the rows of one slot are contiguous:

    x   ┌─ slot 0 ─┬─ slot 2 ─┬── base ──┐
        └──────────┴──────────┴──────────┘
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch


@dataclass(frozen=True)
class TextSlots:
    """The adapter slot of each text of a batch, None for the base model. count: slots of the device in all."""

    of_texts: tuple[int | None, ...]
    count: int
    device: torch.device

    def slot_rows(self, counts: Sequence[int]) -> SlotRows:
        """The rows of each slot, in a matrix with `counts` rows for each text."""
        of_slots = [0] * self.count
        for slot, count in zip(self.of_texts, counts, strict=True):
            if slot is not None:
                of_slots[slot] += count
        return SlotRows(tuple(of_slots), self.device)

    def slot_rows_of(self, text: int, count: int) -> SlotRows | None:
        """The same for a matrix with `count` rows, all of one text; None for the base model."""
        slot = self.of_texts[text]
        if slot is None:
            return None
        return SlotRows(tuple(count if number == slot else 0 for number in range(self.count)), self.device)


@dataclass(frozen=True)
class SlotRows:
    """How many rows of a matrix belong to each slot, in order of slots; the rows after them are the base model's."""

    of_slots: tuple[int, ...]
    device: torch.device

    def only(self, slots: Container[int]) -> SlotRows:
        """The rows of these slots."""
        return SlotRows(tuple(count if slot in slots else 0 for slot, count in enumerate(self.of_slots)), self.device)

    @cached_property
    def total(self) -> int:
        """Rows of all slots."""
        return sum(self.of_slots)

    @cached_property
    def slots(self) -> frozenset[int]:
        """Slots that have rows."""
        return frozenset(slot for slot, count in enumerate(self.of_slots) if count)

    @cached_property
    def ends(self) -> torch.Tensor:
        """Shape (slots,): where each slot's rows end."""
        return torch.tensor(list(accumulate(self.of_slots)), dtype=torch.int32, device=self.device)

    @cached_property
    def slot_of_row(self) -> torch.Tensor:
        """Shape (total,): the slot of each row."""
        counts = torch.tensor(self.of_slots, device=self.device)
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
        """See `TextSlots`."""
        return self.slots.slot_rows_of(text, count) if self.slots else None

    def slot(self, text: int) -> int | None:
        """The slot of a text's adapter."""
        return self.slots.of_texts[text] if self.slots else None

    def split(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Each text's rows of `x`."""
        return x.split_with_sizes(list(self.counts))
