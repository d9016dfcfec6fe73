"""Sealed mappings that wait in memory between a request to a language model and its response."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable


class WaitingMappings:
    """A bounded store; when it is full, the least recently used mappings go.

    max_bytes: of all mappings. lifetime_s: of each, from when it was stored.
    """

    def __init__(self, max_bytes: int, lifetime_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes, self._lifetime_s, self._clock = max_bytes, lifetime_s, clock
        self._entries: OrderedDict[Hashable, tuple[float, str]] = OrderedDict()
        self._bytes = 0

    def put(self, key: Hashable, sealed: str) -> None:
        """Store a mapping; one that is larger than the store is not stored."""
        self._remove(key)
        self._entries[key] = self._clock() + self._lifetime_s, sealed
        self._bytes += _size(sealed)
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    def get(self, key: Hashable) -> str | None:
        """The mapping; None if it is unknown or has expired."""
        ends_s, sealed = self._entries.get(key, (0.0, ""))
        if not sealed:
            return None
        if ends_s <= self._clock():
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return sealed

    def _remove(self, key: Hashable) -> None:
        if key in self._entries:
            self._bytes -= _size(self._entries.pop(key)[1])


_ENTRY_BYTES = 500  # of a key and its place


def _size(sealed: str) -> int:
    return len(sealed) + _ENTRY_BYTES
