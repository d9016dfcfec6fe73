"""Sealed mappings that wait between a request to a language model and its response: in memory, or in Redis."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from gliner_bento.gateway.options import GatewayOptions

_MAX_BYTES = 64 * 2**20


class WaitingMappings(Protocol):
    """A store of sealed mappings. Each expires `mapping_lifetime_s` after it was stored."""

    async def put(self, keys: Sequence[bytes], sealed: str) -> None:
        """Store a mapping under each of the keys. Raises `StorageUnavailable`."""

    async def get(self, keys: Sequence[bytes]) -> Sequence[str]:
        """The mappings that wait under the keys, in their order. Raises `StorageUnavailable`."""

    async def aclose(self) -> None:
        """Close connections; after the last request."""


def waiting_mappings(options: GatewayOptions) -> WaitingMappings:
    """The store that the settings choose."""
    if options.redis_url is None:
        return MappingsInMemory(_MAX_BYTES, options.mapping_lifetime_s)
    from gliner_bento.gateway.redis_mappings import MappingsInRedis  # noqa: PLC0415  # needs the extra redis

    return MappingsInRedis(options.redis_url.get_secret_value(), options.mapping_lifetime_s)


class MappingsInMemory:
    """The mappings of one gateway process. When the store is full, the least recently used ones go.

    max_bytes: of all mappings. lifetime_s: of each, from when it was stored.
    """

    def __init__(self, max_bytes: int, lifetime_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes, self._lifetime_s, self._clock = max_bytes, lifetime_s, clock
        self._entries: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._bytes = 0

    async def put(self, keys: Sequence[bytes], sealed: str) -> None:
        """See `WaitingMappings`; a mapping that is larger than the store is not stored."""
        for key in keys:
            self._remove(key)
            self._entries[key] = self._clock() + self._lifetime_s, sealed
            self._bytes += _size(sealed)
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    async def get(self, keys: Sequence[bytes]) -> Sequence[str]:
        """See `WaitingMappings`."""
        return [sealed for key in keys if (sealed := self._get(key))]

    async def aclose(self) -> None:
        """Nothing is open."""

    def _get(self, key: bytes) -> str | None:
        ends_s, sealed = self._entries.get(key, (0.0, ""))
        if not sealed:
            return None
        if ends_s <= self._clock():
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return sealed

    def _remove(self, key: bytes) -> None:
        if key in self._entries:
            self._bytes -= _size(self._entries.pop(key)[1])


_ENTRY_BYTES = 500  # of a key and its place


def _size(sealed: str) -> int:
    return len(sealed) + _ENTRY_BYTES
