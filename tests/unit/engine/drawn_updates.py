"""Random LoRA updates and what they add to rows by definition."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gliner_bento.engine.layers.lora import LoraUpdate
from gliner_bento.engine.layers.rows import SlotRows

CPU = torch.device("cpu")
PATIENCE_S = 240.0
SLOTS = 4
DTYPES = [torch.float32, torch.bfloat16]


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_update(seed: int, inputs: int, rank: int, outputs: int, *, biased: bool = True) -> LoraUpdate:
    """As strong as a layer itself."""
    bias = drawn(seed + 2, outputs) if biased else None
    return LoraUpdate(drawn(seed, inputs, rank) / inputs**0.5, drawn(seed + 1, rank, outputs) / rank**0.5, bias)


def delta(x: torch.Tensor, update: LoraUpdate | None) -> torch.Tensor | float:
    """What an update adds, computed by definition."""
    if update is None:
        return 0.0
    y = x.double() @ update.a.double() @ update.b.double()
    return y if update.bias is None else y + update.bias.double()


def row_by_row(
    y: torch.Tensor, x: torch.Tensor, slots: Sequence[int | None], updates: dict[int, LoraUpdate | None]
) -> torch.Tensor:
    """`y` plus the updates of the rows of `x`, which belong to these slots."""
    added = [
        of_y.double() + delta(of_x, None if slot is None else updates.get(slot))
        for of_y, of_x, slot in zip(y, x, slots, strict=True)
    ]
    return torch.stack(added) if added else y.double()


def rows_of_slots(counts: Sequence[int]) -> SlotRows:
    """The number of rows of each slot."""
    return SlotRows(tuple(counts), CPU)


def spread(counts: Sequence[int], base: int = 0) -> list[int | None]:
    """The slot of each row, those of the base model last."""
    return [slot for slot, count in enumerate(counts) for _ in range(count)] + [None] * base
