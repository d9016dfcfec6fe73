"""The device's tier: which adapter has which slot.

A batch holds the slots of its adapters while it runs, all at once or none; a slot that nobody holds goes to the next
adapter that needs one, the least recently used first. Slots are written here alone.
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
"""An adapter's id and version: what tells one content from another."""


class Sink(Protocol):
    """Something of a model that adapters change. `put` is called for a slot that no batch uses."""

    def prepare(self, updates: Mapping[str, LowRank]) -> Any:
        """What `put` needs of an adapter, on the CPU; None: it does not change this."""

    def put(self, slot: int, prepared: Any) -> None:
        """`slot` has this adapter from now on, or with None the base model."""


@dataclass(eq=False, slots=True)
class Loaded:
    """An adapter in memory. prepared: for each sink of the model what it needs. pinned: slots are taken from others
    first."""

    key: Key
    rank: int
    targets: tuple[str, ...]
    prepared: tuple[Any, ...]
    pinned: bool = False


def loaded(key: Key, adapter: Adapter, sinks: Sequence[Sink], *, pinned: bool = False) -> Loaded:
    """What `sinks` make of an adapter."""
    prepared = tuple(sink.prepare(adapter.updates) for sink in sinks)
    return Loaded(key, adapter.rank, tuple(sorted(adapter.updates)), prepared, pinned)


@dataclass(slots=True)
class _Slot:
    number: int
    adapter: Loaded | None = None
    holders: int = 0
    last_use: int = 0


@dataclass(slots=True, eq=False)
class _Turn:
    """A batch's place in the order in which slots are given out."""

    adapters: Collection[Loaded]
    held: list[_Slot] = field(default_factory=list)


class DeviceSlots:
    """`count` slots over the sinks of a model. Thread-safe.

    written: called after slots were written, before a batch uses them (where queues of a device must be waited for).
    """

    def __init__(self, sinks: Sequence[Sink], count: int, written: Callable[[], None] = lambda: None) -> None:
        self.count = count
        self.sinks = sinks
        self._written = written
        self._slots = [_Slot(number) for number in range(count)]
        self._turns: deque[_Turn] = deque()
        self._changed = threading.Condition()
        self._uses = 0
        self._state = SlotState(count)

    @contextmanager
    def hold(self, adapters: Collection[Loaded]) -> Iterator[dict[Loaded, int]]:
        """The slot of each of different `adapters`, for as long as the context lasts.

        Waits, in the order of calls, while others hold what is needed. Raises ValueError for more than there are slots.
        """
        if len(adapters) > len(self._slots):
            raise ValueError(f"{len(adapters)} adapters do not fit {len(self._slots)} slots")
        turn = _Turn(adapters)
        with self._changed:
            self._turns.append(turn)
            try:
                self._changed.wait_for(lambda: self._turns[0] is turn and self._have_room(adapters))
                self._take(turn)
            except BaseException:
                self._leave(turn)
                raise
            finally:
                self._turns.remove(turn)
                self._tell()
        try:
            yield {slot.adapter: slot.number for slot in turn.held if slot.adapter is not None}
        finally:
            with self._changed:
                self._leave(turn)
                self._tell()

    def state(self) -> SlotState:
        """What is on the device, and what of it is held."""
        return self._state  # without the lock: slots are written under it

    def contents(self) -> tuple[Key | None, ...]:
        """The adapter of each slot."""
        with self._changed:
            return tuple(slot.adapter.key if slot.adapter else None for slot in self._slots)

    def forget(self, key: Key) -> None:
        """Free the adapter's slot, unless a batch holds it."""
        with self._changed:
            for slot in self._slots:
                if slot.adapter is not None and slot.adapter.key == key and not slot.holders:
                    self._write(slot, None)
            self._tell()

    def _tell(self) -> None:
        """Something has changed. Called with the lock held."""
        resident = frozenset(slot.adapter.key for slot in self._slots if slot.adapter)
        held = frozenset(slot.adapter.key for slot in self._slots if slot.adapter and slot.holders)
        self._state = SlotState(len(self._slots), resident, held)
        self._changed.notify_all()

    def _have_room(self, adapters: Collection[Loaded]) -> bool:
        there = {slot.adapter for slot in self._slots if slot.adapter}
        missing = sum(adapter not in there for adapter in adapters)
        wanted = set(adapters)
        return missing <= sum(not slot.holders and slot.adapter not in wanted for slot in self._slots)

    def _take(self, turn: _Turn) -> None:
        """Hold a slot for each adapter of the turn; there is room."""
        self._uses += 1
        there = {slot.adapter: slot for slot in self._slots if slot.adapter}
        missing = [adapter for adapter in turn.adapters if adapter not in there]
        for adapter in turn.adapters:
            if adapter in there:
                self._give(turn, there[adapter])
        free = sorted((slot for slot in self._slots if not slot.holders), key=_readiness)
        for adapter, slot in zip(missing, free, strict=False):
            self._write(slot, adapter)
            self._give(turn, slot)
        if missing:
            self._written()

    def _give(self, turn: _Turn, slot: _Slot) -> None:
        slot.holders += 1
        slot.last_use = self._uses
        turn.held.append(slot)

    def _leave(self, turn: _Turn) -> None:
        for slot in turn.held:
            slot.holders -= 1
        turn.held.clear()

    def _write(self, slot: _Slot, adapter: Loaded | None) -> None:
        """A slot whose writing fails is free, and its content of no adapter."""
        slot.adapter = None
        prepared = adapter.prepared if adapter else [None] * len(self.sinks)
        for sink, part in zip(self.sinks, prepared, strict=True):
            sink.put(slot.number, part)
        slot.adapter = adapter


def _readiness(slot: _Slot) -> tuple[bool, bool, int]:
    """Free slots first, then those of adapters that are not pinned, then the least recently used."""
    return slot.adapter is not None, slot.adapter is not None and slot.adapter.pinned, slot.last_use
