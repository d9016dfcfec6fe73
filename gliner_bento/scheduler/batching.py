"""Chooses which waiting items run together. Pure functions: no clock, no locks, no engine.

Costs are in tokens. An engine that packs runs items without padding: a batch costs the sum of its items' costs. Other
engines pad: every item costs as much as the most expensive one. An item then joins a batch only if this adds no more
padding than one more batch would cost (`free_padding_tokens`).
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


def at_least(minimum: int, *, default: Any = MISSING) -> Any:
    """A field of `BatchLimits` whose minimum is not 1."""
    return field(default=default, metadata={"minimum": minimum})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of one batch. The first three are settings of the same names, the other two constants.

    max_batch_size: maximum number of items.
    max_batch_tokens: maximum cost; an item that exceeds it gets a batch of its own.
    batch_lookahead: how many waiting items are considered, in the order of service.
    max_bypasses: how often an item may be bypassed.
    free_padding_tokens: padding that costs as much as running one more batch; an item that would add more cannot join.
    """

    max_batch_size: int
    max_batch_tokens: int
    batch_lookahead: int
    max_bypasses: int = at_least(0, default=32)
    free_padding_tokens: int = at_least(0, default=32)

    def __post_init__(self) -> None:
        for limit in fields(self):
            minimum = limit.metadata.get("minimum", 1)
            if getattr(self, limit.name) < minimum:
                raise ValueError(f"{limit.name} must be at least {minimum}")


def batch_cost(costs: Sequence[int], *, packs: bool) -> int:
    """Cost of a batch of items with these costs, in tokens. packs: see `Engine`."""
    return sum(costs) if packs else len(costs) * max(costs, default=0)


class AdapterChoice:
    """Which adapters may join a batch: at most as many as there are slots, and at most `max_new` that no running batch
    uses, so that no lane waits for slots of another lane."""

    def __init__(self, slot_state: SlotState, max_new: int) -> None:
        self.slot_state = slot_state
        self._max_new = max_new
        self._joined: set[Hashable] = set()

    def admits(self, adapter: Hashable) -> bool:
        """Whether an item with this adapter may join."""
        if adapter is None or adapter in self._joined:
            return True
        new = sum(joined not in self.slot_state.in_use for joined in self._joined)
        return len(self._joined) < self.slot_state.slots and (adapter in self.slot_state.in_use or new < self._max_new)

    def join(self, adapter: Hashable) -> None:
        """An item with this adapter has joined."""
        if adapter is not None:
            self._joined.add(adapter)


def form_batch(
    waiting: Sequence[Candidate], limits: BatchLimits, *, packs: bool, slots: SlotState = NO_ADAPTERS, lanes: int = 1
) -> list[int]:
    """Indices, ascending, of the items to run next out of `waiting` (non-empty, in the order of service).

    The first item is always in the batch. If `packs`, the next items that fit join it, those with adapters on the
    device first; otherwise, items of similar cost join it. If this would bypass an item more than `max_bypasses` times,
    only the items up to that one are considered.

    slots: the adapters on the device. lanes: how many batches run concurrently.
    """
    fill = _fill_packed if packs else _fill_padded
    considered = min(len(waiting), limits.batch_lookahead)
    while True:
        batch = fill(waiting[:considered], limits, AdapterChoice(slots, max_new=max(1, slots.slots // lanes)))
        bypassed = set(range(batch[-1])).difference(batch)
        barriers = [index for index in bypassed if waiting[index].bypassed >= limits.max_bypasses]
        if not barriers:
            return batch
        considered = min(barriers) + 1


def is_full(batch: Sequence[Candidate], waiting_items: int, limits: BatchLimits, *, packs: bool) -> bool:
    """Whether no later item could join `batch`, which was formed out of `waiting_items` items. Assumes that the later
    item has the mean cost of the batch if the engine packs, and its highest cost otherwise."""
    cost = batch_cost([candidate.cost for candidate in batch], packs=packs)
    return (
        len(batch) >= limits.max_batch_size
        or cost * (len(batch) + 1) / len(batch) > limits.max_batch_tokens
        or waiting_items >= limits.batch_lookahead
    )


def _fill_packed(items: Sequence[Candidate], limits: BatchLimits, adapters: AdapterChoice) -> list[int]:
    """Take items in order while they fit. Items whose adapter is not on the device come last. A smaller item may bypass
    an item that does not fit."""
    batch, budget = [0], limits.max_batch_tokens - items[0].cost
    adapters.join(items[0].adapter)
    resident = adapters.slot_state.resident | {None, items[0].adapter}
    order = sorted(range(1, len(items)), key=lambda index: items[index].adapter not in resident)  # stable
    for index in order:
        if len(batch) == limits.max_batch_size or budget <= 0:
            break
        if items[index].cost <= budget and adapters.admits(items[index].adapter):
            batch.append(index)
            adapters.join(items[index].adapter)
            budget -= items[index].cost
    return sorted(batch)


def _fill_padded(items: Sequence[Candidate], limits: BatchLimits, adapters: AdapterChoice) -> list[int]:
    """Start with the first item; add, one by one, the item that adds the least padding (the first of equal ones)."""
    first = items[0]
    adapters.join(first.adapter)
    others = range(1, len(items))
    by_difference = sorted(others, key=lambda index: abs(items[index].cost - first.cost))  # stable
    higher = deque(index for index in by_difference if items[index].cost >= first.cost)
    lower = deque(index for index in by_difference if items[index].cost < first.cost)
    batch, highest = [0], first.cost
    while len(batch) < limits.max_batch_size:
        options = []
        for side in (higher, lower):
            while side and not adapters.admits(items[side[0]].adapter):
                side.popleft()  # an adapter that is not admitted now is not admitted later
            if side:  # only its first item is tried: later items add more padding
                cost = items[side[0]].cost
                padded = (len(batch) + 1) * max(highest, cost)
                padding = padded - len(batch) * highest - cost
                if padded <= limits.max_batch_tokens and padding <= limits.free_padding_tokens:
                    options.append((padding, side[0], side))
        if not options:
            break
        _, index, side = min(options, key=lambda option: option[:2])
        batch.append(side.popleft())
        adapters.join(items[index].adapter)
        highest = max(highest, items[index].cost)
    return sorted(batch)
