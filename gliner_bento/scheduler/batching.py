"""Which waiting items run together: pure functions, no clock, no locks, no engine.

Costs are in tokens. An engine that packs runs items without padding: a batch costs the sum of its items' costs. Other
engines pad: every item costs as much as the most expensive one. There, an item joins a batch if this adds less padding
than running one more batch would cost (`free_padding_tokens`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Protocol

from gliner_bento.engine.base import SlotState

NO_ADAPTERS = SlotState()


class Candidate(Protocol):
    """A waiting item, as far as the choice of a batch depends on it."""

    @property
    def cost(self) -> int:
        """Cost in a batch, in tokens; at least 1."""

    @property
    def adapter(self) -> Hashable:
        """Key of the item's adapter; None: the base model."""

    @property
    def bypassed(self) -> int:
        """How many batches took a later item and left this one waiting."""


def least(minimum: int, default: Any = MISSING) -> Any:
    """A field with a lower bound other than 1."""
    return field(default=default, metadata={"least": minimum})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Bounds of one batch: settings, under their own names, and two constants.

    max_batch_size: maximum number of items.
    max_batch_tokens: maximum cost; an item that exceeds it gets a batch of its own.
    batch_lookahead: how many waiting items, oldest first, are considered.
    max_bypasses: how often an item may be bypassed.
    free_padding_tokens: padding that costs as much as running one more batch; an item that would add more cannot join.
    """

    max_batch_size: int
    max_batch_tokens: int
    batch_lookahead: int
    max_bypasses: int = least(0, 32)
    free_padding_tokens: int = least(0, 32)

    def __post_init__(self) -> None:
        for limit in fields(self):
            minimum = limit.metadata.get("least", 1)
            if getattr(self, limit.name) < minimum:
                raise ValueError(f"{limit.name} must be at least {minimum}")


def batch_cost(costs: Sequence[int], *, packs: bool) -> int:
    """Cost of a batch of items with these costs, in tokens."""
    return sum(costs) if packs else len(costs) * max(costs, default=0)


class AdapterChoice:
    """Which adapters may join a batch: at most as many as there are slots, and at most `new` of those that no running
    batch uses, so that no lane waits for slots of another lane."""

    def __init__(self, slots: SlotState, new: int) -> None:
        self.slots = slots
        self._new = new
        self._joined: set[Hashable] = set()

    def admits(self, adapter: Hashable) -> bool:
        """Whether an item with this adapter may join."""
        if adapter is None or adapter in self._joined:
            return True
        new = sum(joined not in self.slots.in_use for joined in self._joined)
        return len(self._joined) < self.slots.slots and (adapter in self.slots.in_use or new < self._new)

    def join(self, adapter: Hashable) -> None:
        """An item with this adapter has joined."""
        if adapter is not None:
            self._joined.add(adapter)


def form_batch(
    waiting: Sequence[Candidate], limits: BatchLimits, *, packs: bool, slots: SlotState = NO_ADAPTERS, lanes: int = 1
) -> list[int]:
    """Indices, ascending, of the items to run next out of `waiting` (non-empty, in the order of service).

    The first item is always in the batch. Packed, the next items that fit join it, those with resident adapters first;
    padded, those of similar cost. If that would bypass an item more than `max_bypasses` times, only the items up to it
    are considered.

    slots, lanes: adapters on the device, and how many batches run concurrently.
    """
    fill = _fill_packed if packs else _fill_padded
    window = min(len(waiting), limits.batch_lookahead)
    while True:
        batch = fill(waiting[:window], limits, AdapterChoice(slots, max(1, slots.slots // lanes)))
        bypassed = set(range(batch[-1])).difference(batch)
        barriers = [index for index in bypassed if waiting[index].bypassed >= limits.max_bypasses]
        if not barriers:
            return batch
        window = min(barriers) + 1


def is_full(batch: Sequence[Candidate], waiting_items: int, limits: BatchLimits, *, packs: bool) -> bool:
    """Whether a later item, of the batch's highest (padded) or mean (packed) cost, could not join `batch`, which was
    formed out of `waiting_items` items."""
    cost = batch_cost([candidate.cost for candidate in batch], packs=packs)
    return (
        len(batch) >= limits.max_batch_size
        or cost * (len(batch) + 1) > limits.max_batch_tokens * len(batch)
        or waiting_items >= limits.batch_lookahead
    )


def _fill_packed(window: Sequence[Candidate], limits: BatchLimits, adapters: AdapterChoice) -> list[int]:
    """Take items in order while they fit. Items whose adapter is not resident come last. A smaller item may bypass an
    item that does not fit."""
    batch, budget = [0], limits.max_batch_tokens - window[0].cost
    adapters.join(window[0].adapter)
    resident = adapters.slots.resident | {None, window[0].adapter}
    order = sorted(range(1, len(window)), key=lambda index: window[index].adapter not in resident)  # stable
    for index in order:
        if len(batch) == limits.max_batch_size or budget <= 0:
            break
        if window[index].cost <= budget and adapters.admits(window[index].adapter):
            batch.append(index)
            adapters.join(window[index].adapter)
            budget -= window[index].cost
    return sorted(batch)


def _fill_padded(window: Sequence[Candidate], limits: BatchLimits, adapters: AdapterChoice) -> list[int]:
    """Grow a batch around the first item, always by the item that adds the least padding, then by age."""
    head = window[0]
    adapters.join(head.adapter)
    others = range(1, len(window))
    by_cost = sorted(others, key=lambda index: abs(window[index].cost - head.cost))  # stable: equals by age
    higher = deque(index for index in by_cost if window[index].cost >= head.cost)
    lower = deque(index for index in by_cost if window[index].cost < head.cost)
    batch, highest = [0], head.cost
    while len(batch) < limits.max_batch_size:
        joining = []
        for side in (higher, lower):
            while side and not adapters.admits(window[side[0]].adapter):
                side.popleft()  # an adapter that is not admitted now is not admitted later
            if side:  # if the nearest of a side does not fit, none of that side will
                cost = window[side[0]].cost
                padded = (len(batch) + 1) * max(highest, cost)
                padding = padded - len(batch) * highest - cost
                if padded <= limits.max_batch_tokens and padding <= limits.free_padding_tokens:
                    joining.append((padding, side[0], side))
        if not joining:
            break
        _, index, side = min(joining, key=lambda option: option[:2])
        batch.append(side.popleft())
        adapters.join(window[index].adapter)
        highest = max(highest, window[index].cost)
    return sorted(batch)
