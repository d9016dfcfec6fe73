"""Which waiting items run together. Owns the choice and nothing else: pure functions, no clock, no locks, no engine.

A batch costs its padded tokens (every row is as long as the longest) plus a fixed price for running at all. Both are
counted in tokens here, so that "is it worth joining?" is one comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol


class Candidate(Protocol):
    """What the choice depends on."""

    @property
    def tokens(self) -> int:
        """Sub-word tokens, prompt included."""

    @property
    def group(self) -> Hashable:
        """Items of different groups never share a batch."""

    @property
    def overtaken(self) -> int:
        """How many batches took an item from behind this one and left this one waiting."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of one batch: at least 1, the last two at least 0; a field that a subclass adds at least 1.

    max_batch_size: items.
    max_batch_tokens: padded tokens, n * max(tokens); only an item that exceeds it on its own may, and runs alone.
    lookahead: how many waiting items, from the oldest, are looked at.
    max_overtakes: an item that was overtaken so often lets nobody pass any more.
    free_padding_tokens: padding that costs as much as running one more batch; an item that would cause more stays out.
    """

    max_batch_size: int
    max_batch_tokens: int
    lookahead: int = 128
    max_overtakes: int = 32
    free_padding_tokens: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in ("max_overtakes", "free_padding_tokens") else 1
            if getattr(self, field.name) < least:
                raise ValueError(f"{field.name} must be at least {least}")


def form_batch(waiting: Sequence[Candidate], limits: BatchLimits) -> list[int]:
    """Indices, ascending, of the items to run next out of `waiting` (non-empty, in the order of service).

    The first item is always in. The others are of its group and near its length, under the limits. No item's
    `overtaken` ever needs to exceed `max_overtakes`: where the best batch would pass such an item, nothing behind it is
    looked at.
    """
    window = min(len(waiting), limits.lookahead)
    while True:
        batch = _fill(waiting[:window], limits)
        passed = set(range(batch[-1])).difference(batch)
        barriers = [index for index in passed if waiting[index].overtaken >= limits.max_overtakes]
        if not barriers:
            return batch
        window = min(barriers) + 1


def is_full(batch: Sequence[Candidate], waiting_items: int, limits: BatchLimits) -> bool:
    """Whether an item that arrives later could not join `batch`, formed out of `waiting_items` items."""
    longest = max(candidate.tokens for candidate in batch)
    return (
        len(batch) >= limits.max_batch_size
        or (len(batch) + 1) * longest > limits.max_batch_tokens
        or waiting_items >= limits.lookahead
    )


def _fill(window: Sequence[Candidate], limits: BatchLimits) -> list[int]:
    """Grow a batch around the first item, always by the item that adds the least padding, then by age."""
    head = window[0]
    mates = [index for index in range(1, len(window)) if window[index].group == head.group]
    by_length = sorted(mates, key=lambda index: abs(window[index].tokens - head.tokens))  # stable: equals by age
    longer = deque(index for index in by_length if window[index].tokens >= head.tokens)
    shorter = deque(index for index in by_length if window[index].tokens < head.tokens)
    batch, longest = [0], head.tokens
    while len(batch) < limits.max_batch_size:
        joining = []
        for side in (longer, shorter):
            if side:  # where the nearest of a side does not fit, none behind it does, now or later
                tokens = window[side[0]].tokens
                padded = (len(batch) + 1) * max(longest, tokens)
                padding = padded - len(batch) * longest - tokens
                if padded <= limits.max_batch_tokens and padding <= limits.free_padding_tokens:
                    joining.append((padding, side[0], side))
        if not joining:
            break
        _, index, side = min(joining, key=lambda option: option[:2])
        batch.append(side.popleft())
        longest = max(longest, window[index].tokens)
    return sorted(batch)
