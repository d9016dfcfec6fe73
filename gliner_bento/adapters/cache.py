"""The memory's tier: which adapters are loaded, and who uses them.

    acquire ─▶ entry ─┬─ loaded ─▶ ready            an entry that somebody uses, or that is pinned, stays;
                      └─ pending ─▶ loading ─▶ ready   the others make room, the least recently used first

An adapter is loaded once for all that ask for it meanwhile. Where all entries are in use, what comes next waits until
one of them is released. Nobody's items wait for another's adapter: loading has threads of its own.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from gliner_bento.adapters.base import Stored
from gliner_bento.adapters.device import Key, Loaded
from gliner_bento.errors import AdapterNotFound, DeadlineExceeded, NotReady


@dataclass(slots=True)
class _Entry:
    """users: leases that were not released. loading: a thread is at it, or was. One that fails is an entry no more."""

    stored: Stored
    ready: Future[Loaded] = field(default_factory=Future)
    users: int = 0
    loading: bool = False


@dataclass(slots=True)
class Uses:
    """How often an adapter was asked for, and when last, in seconds since 1970."""

    count: int = 0
    last_s: float | None = None


class Lease:
    """A claim to an adapter (see `AdapterLease`)."""

    def __init__(self, key: Key, ready: Future[Loaded], release: Callable[[], None]) -> None:
        self.key = key
        self.ready = ready
        self._release = release

    def release(self) -> None:
        """See `AdapterLease`."""
        self._release()


class AdapterCache:
    """At most `capacity` adapters in memory. Thread-safe.

    find: where an adapter lies, by its id; raises what is wrong with the id. load: reads it. left: told the key of each
    adapter that leaves the memory. start_thread: called in each loading thread first.
    """

    def __init__(
        self,
        find: Callable[[str], Stored],
        load: Callable[[Stored], Loaded],
        *,
        capacity: int,
        threads: int,
        left: Callable[[Key], None] = lambda key: None,
        start_thread: Callable[[], None] = lambda: None,
    ) -> None:
        self._find = find
        self._load = load
        self._capacity = capacity
        self._left = left
        self._loaders = ThreadPoolExecutor(threads, thread_name_prefix="adapter", initializer=start_thread)
        self._changed = threading.Condition()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._leaving: set[str] = set()
        self._closed = False
        self._uses: dict[str, Uses] = {}

    def acquire(self, adapter_id: str, *, use: bool = True) -> Lease:
        """A claim to the adapter, which comes into memory unless it is there. Does not wait.

        use: count this one; else the adapter is only brought into memory.

        Raises what `find` raises, AdapterNotFound for one that is being removed, and NotReady after `close`.
        """
        stored = self._find(adapter_id)
        key = (stored.adapter_id, stored.version)
        with self._changed:
            if adapter_id in self._leaving:
                raise AdapterNotFound(f"adapter_id: {adapter_id!r} is being removed", param="adapter_id")
            if self._closed:
                raise _closed()
            entry = self._entries.setdefault(key, _Entry(stored))
            if entry.loading:  # else it keeps its place among those that wait
                self._entries.move_to_end(key)
            entry.users += 1
            entry.stored = stored
            if entry.ready.done():
                entry.ready.result().pinned = stored.pinned
            if use:
                uses = self._uses.setdefault(adapter_id, Uses())
                uses.count, uses.last_s = uses.count + 1, time.time()
            gone = self._load_what_fits()
        self._tell(gone)
        return Lease(key, entry.ready, lambda: self._release(key, entry))

    def loaded_keys(self) -> set[Key]:
        """Adapters in memory."""
        with self._changed:
            return {key for key, entry in self._entries.items() if entry.ready.done()}

    def uses(self, adapter_id: str) -> Uses:
        """Since the start."""
        with self._changed:
            uses = self._uses.get(adapter_id, Uses())
            return Uses(uses.count, uses.last_s)

    def remove(self, adapter_id: str, forget: Callable[[], object], timeout_s: float) -> None:
        """Refuse the adapter from now on, wait until nobody uses it, call `forget`, and let it go.

        Raises DeadlineExceeded if it was in use for so long, and what `forget` raises; then it is served again.
        """
        with self._changed:
            if adapter_id in self._leaving:
                raise AdapterNotFound(f"adapter_id: {adapter_id!r} is being removed", param="adapter_id")
            self._leaving.add(adapter_id)
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: not self._in_use(adapter_id), timeout_s):
                    raise DeadlineExceeded(f"{adapter_id!r} was in use for {timeout_s:.0f} s; it stays")
            forget()
            with self._changed:
                gone = [key for key in self._entries if key[0] == adapter_id]
                for key in gone:
                    del self._entries[key]
                self._uses.pop(adapter_id, None)
                gone += self._load_what_fits()
            self._tell(gone)
        finally:
            with self._changed:
                self._leaving.discard(adapter_id)

    def close(self) -> None:
        """Load nothing more; who waits for an adapter gets `NotReady`."""
        with self._changed:
            self._closed = True
            absent = [entry for entry in self._entries.values() if not entry.ready.done()]
            self._entries.clear()
        self._loaders.shutdown(wait=False, cancel_futures=True)
        for entry in absent:
            with suppress(InvalidStateError):  # it came just now
                entry.ready.set_exception(_closed())

    def _in_use(self, adapter_id: str) -> bool:
        return any(entry.users for key, entry in self._entries.items() if key[0] == adapter_id)

    def _release(self, key: Key, entry: _Entry) -> None:
        with self._changed:
            entry.users -= 1
            if not entry.users and not entry.loading and self._entries.get(key) is entry:
                del self._entries[key]  # nobody waits for it any more
            gone = self._load_what_fits()
            self._changed.notify_all()
        self._tell(gone)

    def _load_what_fits(self) -> list[Key]:
        """Begin to load what is pending, for as long as there is room; what had to leave. Called with the lock held."""
        gone = []
        for entry in [entry for entry in self._entries.values() if not entry.loading]:
            while self._loading() >= self._capacity and (key := self._dispensable()) is not None:
                del self._entries[key]
                gone.append(key)
            if self._loading() >= self._capacity:
                break
            entry.loading = True
            self._loaders.submit(self._run, entry)
        return gone

    def _loading(self) -> int:
        return sum(entry.loading for entry in self._entries.values())

    def _dispensable(self) -> Key | None:
        """The least recently used adapter that nobody uses, pinned ones last."""
        idle = [key for key, entry in self._entries.items() if not entry.users and entry.ready.done()]
        return min(idle, key=lambda key: self._entries[key].stored.pinned, default=None)

    def _run(self, entry: _Entry) -> None:
        """In a loading thread."""
        stored = entry.stored
        try:
            loaded = self._load(stored)
        except BaseException as error:  # the pool would swallow it, and whoever waits would wait for ever
            with self._changed:
                key = (stored.adapter_id, stored.version)
                if self._entries.get(key) is entry:  # the next one to ask tries again
                    del self._entries[key]
                gone = self._load_what_fits()
                self._changed.notify_all()
            entry.ready.set_exception(error)
        else:
            entry.ready.set_result(loaded)
            with self._changed:
                loaded.pinned = entry.stored.pinned
                gone = self._load_what_fits()
                self._changed.notify_all()
        self._tell(gone)

    def _tell(self, gone: list[Key]) -> None:
        for key in gone:
            self._left(key)


def _closed() -> NotReady:
    return NotReady("the server is shutting down")
