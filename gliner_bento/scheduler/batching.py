"""Which waiting items run together. Owns the choice and nothing else: pure functions, no clock, no locks, no engine.

What a batch costs is counted in tokens. An engine that packs lays its items side by side: a batch costs the sum of
theirs. Any other pads: every item costs as much as the dearest, and running at all has a price of its own, so that "is
it worth joining?" is one comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol

from gliner_bento.engine.base import SlotState

NO_ADAPTERS = SlotState()


class Candidate(Protocol):
    """What the choice depends on."""

    @property
    def cost(self) -> int:
        """What the item costs in a batch, in tokens; at least 1."""

    @property
    def adapter(self) -> Hashable:
        """Which adapter the item is read with; None: the base model."""

    @property
    def overtaken(self) -> int:
        """How many batches took an item from behind this one and left this one waiting."""


def least(minimum: int, default: Any = MISSING) -> Any:
    """A field that refuses less than `minimum`; the others refuse less than 1."""
    return field(default=default, metadata={"least": minimum})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Bounds of one batch: settings, under their own names, and two constants.

    max_batch_size: items.
    max_batch_tokens: what the batch may cost; only an item that exceeds it on its own may, and runs alone.
    batch_lookahead: how many waiting items, from the oldest, are looked at.
    max_overtakes: an item that was overtaken so often lets nobody pass any more.
    free_padding_tokens: padding that costs as much as running one more batch; an item that would cause more stays out.
    """

    max_batch_size: int
    max_batch_tokens: int
    batch_lookahead: int
    max_overtakes: int = least(0, 32)
    free_padding_tokens: int = least(0, 32)

    def __post_init__(self) -> None:
        for limit in fields(self):
            minimum = limit.metadata.get("least", 1)
            if getattr(self, limit.name) < minimum:
                raise ValueError(f"{limit.name} must be at least {minimum}")


def batch_cost(costs: Sequence[int], *, packs: bool) -> int:
    """What a batch of items with these costs costs itself, in tokens."""
    return sum(costs) if packs else len(costs) * max(costs, default=0)


class AdapterChoice:
    """Which adapters may join a batch: as many as there are slots and, of those that no running batch holds, `new` (so
    that no lane waits for another's slots)."""

    def __init__(self, room: SlotState, new: int) -> None:
        self.room = room
        self._new = new
        self._taken: set[Hashable] = set()

    def admits(self, adapter: Hashable) -> bool:
        """Whether an item with this adapter may join."""
        if adapter is None or adapter in self._taken:
            return True
        fresh = sum(taken not in self.room.in_use for taken in self._taken)
        return len(self._taken) < self.room.slots and (adapter in self.room.in_use or fresh < self._new)

    def take(self, adapter: Hashable) -> None:
        """An item with this adapter has joined."""
        if adapter is not None:
            self._taken.add(adapter)


def form_batch(
    waiting: Sequence[Candidate], limits: BatchLimits, *, packs: bool, room: SlotState = NO_ADAPTERS, lanes: int = 1
) -> list[int]:
    """Indices, ascending, of the items to run next out of `waiting` (non-empty, in the order of service).

    The first item is always in. Packed, the others are those that come next and fit, first of all those whose adapters
    are on the device; padded, those of near cost. No item's `overtaken` ever needs to exceed `max_overtakes`: where the
    best batch would pass such an item, nothing behind it is looked at.

    room, lanes: adapters on the device, and how many batches run at once.
    """
    fill = _fill_packed if packs else _fill_padded
    window = min(len(waiting), limits.batch_lookahead)
    while True:
        batch = fill(waiting[:window], limits, AdapterChoice(room, max(1, room.slots // lanes)))
        passed = set(range(batch[-1])).difference(batch)
        barriers = [index for index in passed if waiting[index].overtaken >= limits.max_overtakes]
        if not barriers:
            return batch
        window = min(barriers) + 1


def is_full(batch: Sequence[Candidate], waiting_items: int, limits: BatchLimits, *, packs: bool) -> bool:
    """Whether an item that arrives later, of the batch's dearest (padded) or mean (packed) cost, could not join
    `batch`, formed out of `waiting_items` items."""
    cost = batch_cost([candidate.cost for candidate in batch], packs=packs)
    return (
        len(batch) >= limits.max_batch_size
        or cost * (len(batch) + 1) > limits.max_batch_tokens * len(batch)
        or waiting_items >= limits.batch_lookahead
    )


def _fill_packed(window: Sequence[Candidate], limits: BatchLimits, adapters: AdapterChoice) -> list[int]:
    """Take what comes next, for as long as there is room; a smaller item may pass one that does not fit, and one whose
    adapter is on the device one whose adapter is not."""
    batch, room = [0], limits.max_batch_tokens - window[0].cost
    adapters.take(window[0].adapter)
    there = adapters.room.resident | {None, window[0].adapter}
    order = sorted(range(1, len(window)), key=lambda index: window[index].adapter not in there)  # stable
    for index in order:
        if len(batch) == limits.max_batch_size or room <= 0:
            break
        if window[index].cost <= room and adapters.admits(window[index].adapter):
            batch.append(index)
            adapters.take(window[index].adapter)
            room -= window[index].cost
    return sorted(batch)


def _fill_padded(window: Sequence[Candidate], limits: BatchLimits, adapters: AdapterChoice) -> list[int]:
    """Grow a batch around the first item, always by the item that adds the least padding, then by age."""
    head = window[0]
    adapters.take(head.adapter)
    mates = range(1, len(window))
    by_cost = sorted(mates, key=lambda index: abs(window[index].cost - head.cost))  # stable: equals by age
    dearer = deque(index for index in by_cost if window[index].cost >= head.cost)
    cheaper = deque(index for index in by_cost if window[index].cost < head.cost)
    batch, dearest = [0], head.cost
    while len(batch) < limits.max_batch_size:
        joining = []
        for side in (dearer, cheaper):
            while side and not adapters.admits(window[side[0]].adapter):
                side.popleft()  # nor will it be admitted later
            if side:  # where the nearest of a side does not fit, none behind it does, now or later
                cost = window[side[0]].cost
                padded = (len(batch) + 1) * max(dearest, cost)
                padding = padded - len(batch) * dearest - cost
                if padded <= limits.max_batch_tokens and padding <= limits.free_padding_tokens:
                    joining.append((padding, side[0], side))
        if not joining:
            break
        _, index, side = min(joining, key=lambda option: option[:2])
        batch.append(side.popleft())
        adapters.take(window[index].adapter)
        dearest = max(dearest, window[index].cost)
    return sorted(batch)
