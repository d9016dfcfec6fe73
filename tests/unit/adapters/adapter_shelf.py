"""Adapters for a cache to find and to load, and what tests do with its leases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from waiting import PATIENCE_S

from gliner_bento.adapters.base import StoredAdapter
from gliner_bento.adapters.cache import AdapterCache, Lease
from gliner_bento.adapters.device import Key, LoadedAdapter
from gliner_bento.errors import AdapterInvalid, AdapterNotFound


class Shelf:
    """Adapters to find and to load: any name is one, unless it is `missing`.

    closed: loading waits until the gate of an adapter opens. damaged: cannot be loaded. loads: those that began, in
    order. evicted: those that the cache reported.
    """

    def __init__(self) -> None:
        self.stored: dict[str, StoredAdapter] = {}
        self.missing: set[str] = set()
        self.damaged: set[str] = set()
        self.loads: list[str] = []
        self.evicted: list[Key] = []
        self.began: list[int] = []
        self._gates: dict[str, threading.Event] = {}

    def put(self, adapter_id: str, version: str = "1", *, pinned: bool = False) -> None:
        self.stored[adapter_id] = StoredAdapter(adapter_id, version, Path(adapter_id), "upload", 1, pinned)

    def close(self, adapter_id: str) -> None:
        self._gates[adapter_id] = threading.Event()

    def open(self, adapter_id: str) -> None:
        self._gates[adapter_id].set()

    def open_all(self) -> None:
        for gate in self._gates.values():
            gate.set()

    def find(self, adapter_id: str) -> StoredAdapter:
        if adapter_id in self.missing:
            raise AdapterNotFound(adapter_id)
        if adapter_id not in self.stored:
            self.put(adapter_id)
        return self.stored[adapter_id]

    def load(self, stored: StoredAdapter) -> LoadedAdapter:
        self.loads.append(stored.adapter_id)
        if gate := self._gates.get(stored.adapter_id):
            assert gate.wait(PATIENCE_S)
        if stored.adapter_id in self.damaged:
            raise AdapterInvalid(stored.adapter_id)
        return LoadedAdapter((stored.adapter_id, stored.version), 1, (), (), stored.pinned)

    def start_thread(self) -> None:
        self.began.append(threading.get_ident())


Make = Callable[..., AdapterCache]


def ready(lease: Lease) -> LoadedAdapter:
    return lease.ready.result(PATIENCE_S)


def use(cache: AdapterCache, *ids: str) -> None:
    """Acquire, load and release them one after the other."""
    for adapter_id in ids:
        lease = cache.acquire(adapter_id)
        ready(lease)
        lease.release()


def is_refused(cache: AdapterCache, adapter_id: str) -> bool:
    try:
        cache.acquire(adapter_id).release()
    except AdapterNotFound:
        return True
    return False


def in_memory(cache: AdapterCache) -> str:
    return "".join(sorted(adapter_id for adapter_id, _ in cache.loaded_keys()))
