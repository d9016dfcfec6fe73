"""The device tier: which adapter is in which slot.

A batch reserves the slots of all its adapters while it runs. An adapter without a slot gets the least recently used
slot that no batch has reserved. Only this module writes slots.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from gliner_bento.adapters.adapter import Adapter, LowRank
from gliner_bento.adapters.base import SlotState

Key = tuple[str, str]
"""An adapter's id and version, which identify its content."""


class AdapterSink(Protocol):
    """A part of the model that adapters change. Holds, for each slot, its share of the slot's adapter."""

    def prepare(self, updates: Mapping[str, LowRank]) -> Any:
        """Convert an adapter's updates, on the CPU, for `write`. Returns None if it does not change this part."""

    def write(self, slot: int, prepared: Any) -> None:
        """Write what `prepare` returned into `slot`, which no batch has reserved. None clears the slot."""


@dataclass(eq=False, slots=True)
class LoadedAdapter:
    """An adapter in memory. targets: the layers that it changes. prepared: the output of each sink's `prepare`.
    pinned: evicted from its slot last."""

    key: Key
    rank: int
    targets: tuple[str, ...]
    prepared: tuple[Any, ...]
    pinned: bool = False


def load_for(sinks: Sequence[AdapterSink], key: Key, adapter: Adapter, *, pinned: bool = False) -> LoadedAdapter:
    """An adapter, prepared for the sinks of a model."""
    prepared = tuple(sink.prepare(adapter.updates) for sink in sinks)
    return LoadedAdapter(key, adapter.rank, tuple(sorted(adapter.updates)), prepared, pinned)


@dataclass(slots=True)
class _Slot:
    """users: number of batches that have reserved it. last_use: sequence number of the last batch that reserved it."""

    number: int
    adapter: LoadedAdapter | None = None
    users: int = 0
    last_use: int = 0


@dataclass(slots=True, eq=False)
class _Reservation:
    """The adapters of one batch, and the slots that it has reserved for them. Reservations are granted in order."""

    adapters: Collection[LoadedAdapter]
    slots: list[_Slot] = field(default_factory=list)


class DeviceSlots:
    """`count` slots for adapters; each sink holds its share of every slot. Thread-safe.

    synchronize: called after slots were written, before a batch uses them; on a GPU it waits for all streams.
    """

    def __init__(
        self, sinks: Sequence[AdapterSink], count: int, synchronize: Callable[[], None] = lambda: None
    ) -> None:
        self.count = count
        self.sinks = sinks
        self._synchronize = synchronize
        self._slots = [_Slot(number) for number in range(count)]
        self._queue: deque[_Reservation] = deque()
        self._changed = threading.Condition()
        self._uses = 0
        self._state = SlotState(count)

    @contextmanager
    def hold(self, adapters: Collection[LoadedAdapter]) -> Iterator[dict[LoadedAdapter, int]]:
        """Reserve a slot for each adapter while the context lasts. `adapters` must not repeat.

        Waits, in the order of calls, while other batches hold the slots. Raises ValueError if there are too few slots.
        """
        if len(adapters) > len(self._slots):
            raise ValueError(f"{len(adapters)} adapters do not fit {len(self._slots)} slots")
        reservation = _Reservation(adapters)
        with self._changed:
            self._queue.append(reservation)
            try:
                self._changed.wait_for(lambda: self._queue[0] is reservation and self._has_slots_for(adapters))
                self._reserve(reservation)
            except BaseException:
                self._release(reservation)
                raise
            finally:
                self._queue.remove(reservation)
                self._notify()
        try:
            yield {slot.adapter: slot.number for slot in reservation.slots if slot.adapter is not None}
        finally:
            with self._changed:
                self._release(reservation)
                self._notify()

    def state(self) -> SlotState:
        """The adapters on the device, without waiting for the lock, which is held while slots are written."""
        return self._state

    def contents(self) -> tuple[Key | None, ...]:
        """The adapter of each slot."""
        with self._changed:
            return tuple(slot.adapter.key if slot.adapter else None for slot in self._slots)

    def forget(self, key: Key) -> None:
        """Clear the adapter's slot, unless a batch has reserved it."""
        with self._changed:
            for slot in self._slots:
                if slot.adapter is not None and slot.adapter.key == key and not slot.users:
                    self._write(slot, None)
            self._notify()

    def _notify(self) -> None:
        """Publish the state and wake waiting batches. Called with the lock held."""
        resident = frozenset(slot.adapter.key for slot in self._slots if slot.adapter)
        in_use = frozenset(slot.adapter.key for slot in self._slots if slot.adapter and slot.users)
        self._state = SlotState(len(self._slots), resident, in_use)
        self._changed.notify_all()

    def _has_slots_for(self, adapters: Collection[LoadedAdapter]) -> bool:
        resident = {slot.adapter for slot in self._slots if slot.adapter}
        missing = sum(adapter not in resident for adapter in adapters)
        requested = set(adapters)
        available = sum(not slot.users and slot.adapter not in requested for slot in self._slots)
        return missing <= available

    def _reserve(self, reservation: _Reservation) -> None:
        """Reserve a slot for each adapter; `_has_slots_for` must be true."""
        self._uses += 1
        slot_of = {slot.adapter: slot for slot in self._slots if slot.adapter}
        missing = [adapter for adapter in reservation.adapters if adapter not in slot_of]
        for adapter in reservation.adapters:
            if adapter in slot_of:
                self._add(reservation, slot_of[adapter])
        unreserved = sorted((slot for slot in self._slots if not slot.users), key=_eviction_order)
        for adapter, slot in zip(missing, unreserved, strict=False):
            self._write(slot, adapter)
            self._add(reservation, slot)
        if missing:
            self._synchronize()

    def _add(self, reservation: _Reservation, slot: _Slot) -> None:
        slot.users += 1
        slot.last_use = self._uses
        reservation.slots.append(slot)

    def _release(self, reservation: _Reservation) -> None:
        for slot in reservation.slots:
            slot.users -= 1
        reservation.slots.clear()

    def _write(self, slot: _Slot, adapter: LoadedAdapter | None) -> None:
        """Write an adapter into a slot, or clear it. If writing fails, the slot counts as empty."""
        slot.adapter = None
        prepared = adapter.prepared if adapter else [None] * len(self.sinks)
        for sink, part in zip(self.sinks, prepared, strict=True):
            sink.write(slot.number, part)
        slot.adapter = adapter


def _eviction_order(slot: _Slot) -> tuple[bool, bool, int]:
    """Sort key: empty slots first, then those of adapters that are not pinned; the least recently used first."""
    return slot.adapter is not None, slot.adapter is not None and slot.adapter.pinned, slot.last_use
