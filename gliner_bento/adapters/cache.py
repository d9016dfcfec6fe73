"""The memory tier: which adapters are loaded, and which items use them.

    acquire ─▶ entry ─┬─ loaded ─▶ ready
                      └─ pending ─▶ loading ─▶ ready

If the memory is full, a new entry evicts the least recently used entry that is not in use; pinned entries are evicted
last. While all entries are in use, a new entry is pending until an entry is released. An adapter is loaded once for all
items that wait for it. Loading has threads of its own, so that items whose adapter is loaded do not wait for other
adapters.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from gliner_bento.adapters.base import StoredAdapter
from gliner_bento.adapters.device import Key, LoadedAdapter
from gliner_bento.errors import AdapterNotFound, DeadlineExceeded, NotReady

Load = Callable[[StoredAdapter], LoadedAdapter]


@dataclass(slots=True)
class _Entry:
    """An adapter that is loaded, being loaded or pending. An entry that fails to load is removed.

    users: number of open leases. load: replaces the cache's `load`. started: whether loading has begun.
    """

    stored: StoredAdapter
    ready: Future[LoadedAdapter] = field(default_factory=Future)
    users: int = 0
    load: Load | None = None
    started: bool = False


@dataclass(slots=True)
class Uses:
    """How often an adapter was requested, and the last time, in seconds since 1970."""

    count: int = 0
    last_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease on an adapter (see `AdapterLease`)."""

    key: Key
    ready: Future[LoadedAdapter]
    release: Callable[[], None]


class AdapterCache:
    """At most `capacity` adapters in memory. Thread-safe.

    find: looks up an id on disk, and raises an error for an unknown one. load: reads an adapter. on_evict: called with
    the key of each adapter that leaves the memory. start_thread: called at the start of each loading thread.
    """

    def __init__(
        self,
        find: Callable[[str], StoredAdapter],
        load: Load,
        *,
        capacity: int,
        threads: int,
        on_evict: Callable[[Key], None] = lambda key: None,
        start_thread: Callable[[], None] = lambda: None,
    ) -> None:
        self._find = find
        self._load = load
        self._capacity = capacity
        self._on_evict = on_evict
        self._loaders = ThreadPoolExecutor(threads, thread_name_prefix="adapter", initializer=start_thread)
        self._changed = threading.Condition()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._removing: set[str] = set()
        self._closed = False
        self._uses: dict[str, Uses] = {}

    def acquire(self, adapter_id: str, *, count: bool = True, load: Load | None = None) -> Lease:
        """A lease on the adapter; starts to load it if it is not in memory. Does not wait.

        count: whether this counts as a use. load: if loading has not begun, replaces the cache's `load`; for a PUT,
        which already has the tensors.

        Raises what `find` raises, AdapterNotFound for an adapter that is being removed, and NotReady after `close`.
        """
        stored = self._find(adapter_id)
        key = (stored.adapter_id, stored.version)
        with self._changed:
            if adapter_id in self._removing:
                raise _being_removed(adapter_id)
            if self._closed:
                raise _closed()
            entry = self._entries.setdefault(key, _Entry(stored))
            if entry.started:  # a pending entry keeps its position in the queue
                self._entries.move_to_end(key)
            else:
                entry.load = entry.load or load
            entry.users += 1
            entry.stored = stored
            if entry.ready.done():
                entry.ready.result().pinned = stored.pinned
            if count:
                uses = self._uses.setdefault(adapter_id, Uses())
                uses.count, uses.last_s = uses.count + 1, time.time()
            evicted = self._load_pending()
        self._report(evicted)
        return Lease(key, entry.ready, lambda: self._release(key, entry))

    def loaded_keys(self) -> set[Key]:
        """The keys of the adapters in memory."""
        with self._changed:
            return {key for key, entry in self._entries.items() if entry.ready.done()}

    def uses(self, adapter_id: str) -> Uses:
        """Uses of an adapter since the start."""
        with self._changed:
            uses = self._uses.get(adapter_id, Uses())
            return Uses(uses.count, uses.last_s)

    def remove(self, adapter_id: str, delete: Callable[[], object], timeout_s: float) -> None:
        """Refuse new leases of the adapter, wait until no item uses it, call `delete`, and drop it from memory.

        Raises DeadlineExceeded if it is still in use after `timeout_s`, or `delete`'s error. The adapter then stays.
        """
        with self._changed:
            if adapter_id in self._removing:
                raise _being_removed(adapter_id)
            self._removing.add(adapter_id)
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: not self._in_use(adapter_id), timeout_s):
                    raise DeadlineExceeded(
                        f"{adapter_id!r} is still in use after {timeout_s:.0f} s; it was not removed"
                    )
            delete()
            with self._changed:
                removed = [key for key in self._entries if key[0] == adapter_id]
                for key in removed:
                    del self._entries[key]
                self._uses.pop(adapter_id, None)
                evicted = removed + self._load_pending()
            self._report(evicted)
        finally:
            with self._changed:
                self._removing.discard(adapter_id)

    def close(self) -> None:
        """Stop loading; items that wait for an adapter fail with `NotReady`."""
        with self._changed:
            self._closed = True
            unfinished = [entry for entry in self._entries.values() if not entry.ready.done()]
            self._entries.clear()
        self._loaders.shutdown(wait=False, cancel_futures=True)
        for entry in unfinished:
            with suppress(InvalidStateError):  # loaded meanwhile
                entry.ready.set_exception(_closed())

    def _in_use(self, adapter_id: str) -> bool:
        return any(entry.users for key, entry in self._entries.items() if key[0] == adapter_id)

    def _release(self, key: Key, entry: _Entry) -> None:
        with self._changed:
            entry.users -= 1
            if not entry.users and not entry.started and self._entries.get(key) is entry:
                del self._entries[key]  # no item waits for it
            evicted = self._load_pending()
            self._changed.notify_all()
        self._report(evicted)

    def _load_pending(self) -> list[Key]:
        """Start to load pending entries up to the capacity. Returns the evicted keys. Called with the lock held."""
        evicted = []
        for entry in [entry for entry in self._entries.values() if not entry.started]:
            while self._count_started() >= self._capacity and (key := self._evictable()) is not None:
                del self._entries[key]
                evicted.append(key)
            if self._count_started() >= self._capacity:
                break
            entry.started = True
            self._loaders.submit(self._run, entry)
        return evicted

    def _count_started(self) -> int:
        """Number of entries that are loaded or being loaded."""
        return sum(entry.started for entry in self._entries.values())

    def _evictable(self) -> Key | None:
        """The least recently used adapter that no item uses, pinned ones last."""
        lru_first = [key for key, entry in self._entries.items() if not entry.users and entry.ready.done()]
        return min(lru_first, key=lambda key: self._entries[key].stored.pinned, default=None)

    def _run(self, entry: _Entry) -> None:
        """Load an entry, in a loading thread."""
        stored = entry.stored
        load, entry.load = entry.load or self._load, None
        try:
            loaded = load(stored)
        except BaseException as error:  # the pool would swallow it, and items would wait for ever
            with self._changed:
                key = (stored.adapter_id, stored.version)
                if self._entries.get(key) is entry:  # removed, so that the next request tries again
                    del self._entries[key]
                evicted = self._load_pending()
                self._changed.notify_all()
            entry.ready.set_exception(error)
        else:
            entry.ready.set_result(loaded)
            with self._changed:
                loaded.pinned = entry.stored.pinned
                evicted = self._load_pending()
                self._changed.notify_all()
        self._report(evicted)

    def _report(self, evicted: list[Key]) -> None:
        for key in evicted:
            self._on_evict(key)


def _closed() -> NotReady:
    return NotReady("the server is shutting down")


def _being_removed(adapter_id: str) -> AdapterNotFound:
    return AdapterNotFound(f"adapter_id: {adapter_id!r} is being removed", param="adapter_id")
