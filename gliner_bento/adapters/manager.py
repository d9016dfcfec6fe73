"""The adapters of one model, all tiers together: leases for the engine, and the operations of `/v1/adapters`."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.adapters.adapter import Adapter, ModelLayers, check_adapter, read_adapter
from gliner_bento.adapters.base import AdapterObserver, AdapterSettings, Source, StoredAdapter
from gliner_bento.adapters.cache import AdapterCache, Lease
from gliner_bento.adapters.device import DeviceSlots, Key, LoadedAdapter, load_for
from gliner_bento.adapters.disk import AdapterStore
from gliner_bento.adapters.sources import Fill, from_archive, from_folder, from_hub
from gliner_bento.commands import (
    AdapterCommand,
    ChangeAdapter,
    FindAdapter,
    InstallAdapter,
    ListAdapters,
    ReadAdapterCache,
    RemoveAdapter,
)
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, GLiNERBentoError, InvalidField

T = TypeVar("T")
logger = logging.getLogger(__name__)

_HUB = "hub:"
_PRELOAD_TIMEOUT_S = 60.0
_CACHED_LAYOUTS = 1000


@dataclass(frozen=True, slots=True)
class _Installed:
    """The result of an installation: the adapter on disk, and its tensors, which were parsed for the check."""

    stored: StoredAdapter
    adapter: Adapter


class AdapterManager:
    """Thread-safe. All methods but `acquire`, `in_memory` and `close` block while they read and write files."""

    def __init__(
        self,
        store: AdapterStore,
        slots: DeviceSlots,
        layers: ModelLayers,
        settings: AdapterSettings,
        *,
        observer: AdapterObserver | None = None,
    ) -> None:
        self._store = store
        self._slots = slots
        self._layers = layers
        self._max_rank = settings.max_lora_rank
        self._max_bytes = settings.max_adapter_bytes
        self._root = settings.adapter_root
        self._allow_hub = settings.allow_adapter_hub
        self._observer = observer
        self._layout_of = lru_cache(_CACHED_LAYOUTS)(  # reads and checks the files of each adapter once
            lambda stored: check_adapter(stored.folder, layers, max_rank=settings.max_lora_rank)
        )
        self._cache = AdapterCache(
            store.find,
            self._load,
            # An adapter on the device is in memory too.
            capacity=max(settings.max_cpu_adapters, slots.count),
            threads=settings.adapter_loading_threads,
            on_evict=self._on_evict,
            start_thread=_use_one_thread,
        )

    def acquire(self, adapter_id: str) -> Lease:
        """A lease on an item's adapter. Raises InvalidField, AdapterNotFound."""
        return self._cache.acquire(adapter_id)

    def start(self) -> None:
        """Log how many adapters are stored, and where. Start to load pinned ones into memory."""
        adapters = self._store.all()
        in_root = sum(stored.folder.parent == self._root for stored in adapters)
        root = f", {in_root} in {self._root} (adapter_root)" if self._root else ""
        logger.info("adapters: %d in %s%s", len(adapters) - in_root, self._store.folder, root)
        for stored in adapters:
            if stored.pinned:
                with suppress(GLiNERBentoError):  # removed meanwhile
                    lease = self._cache.acquire(stored.adapter_id, count=False)
                    lease.ready.add_done_callback(partial(_preloaded, lease))

    def in_memory(self) -> tuple[str, ...]:
        """Ids of the adapters in memory. Does not block."""
        return tuple(sorted({adapter_id for adapter_id, _ in self._cache.loaded_keys()}))

    def apply(self, command: AdapterCommand[T], archive: Path | None = None) -> T:
        """Carry out a command. archive: a .zip or .tar.gz, of `InstallAdapter`."""
        result: Any = None
        match command:
            case ListAdapters():
                result = self.infos()
            case FindAdapter():
                result = self.info(command.adapter_id)
            case ReadAdapterCache():
                result = self.status()
            case InstallAdapter():
                result = self.install(command, archive)
            case ChangeAdapter():
                result = self.change(command)
            case RemoveAdapter():
                self.remove(command.adapter_id, command.timeout_s)
            case _:
                raise TypeError(command)
        return cast(T, result)

    def infos(self) -> list[AdapterInfo]:
        """All adapters that fit this model, sorted by id."""
        infos = []
        for stored in self._store.all():
            try:
                infos.append(self._info(stored))
            except AdapterInvalid as error:
                logger.warning("adapter %s is not listed: %s", stored.adapter_id, error)
        return infos

    def info(self, adapter_id: str) -> AdapterInfo:
        """Raises InvalidField, AdapterNotFound."""
        return self._info(self._store.find(adapter_id))

    def install(self, command: InstallAdapter, archive: Path | None = None) -> tuple[AdapterInfo, bool]:
        """See `InstallAdapter`. archive: a .zip or .tar.gz."""
        adapter_id, source = command.adapter_id, command.source
        self._store.check_id(adapter_id)
        known = {stored.adapter_id for stored in self._store.all()}
        installed: _Installed | None = None
        if archive is not None or source is not None:
            fill, kind = self._source(archive, source, command.revision)
            stored, adapter = self._store.install(
                adapter_id,
                fill,
                source=kind,
                check=self._check,
                pinned=bool(command.pinned),
                replace=command.replace,
            )
            installed = _Installed(stored, adapter)
        return self.change(command, installed), adapter_id not in known

    def change(self, command: InstallAdapter | ChangeAdapter, installed: _Installed | None = None) -> AdapterInfo:
        """Pin, unpin and load an adapter as the command says. installed: it has just been installed."""
        adapter_id = command.adapter_id
        try:
            if command.pinned is not None:
                self._store.set_pinned(adapter_id, command.pinned)
            stored = self._store.find(adapter_id)
            if command.preload:
                self._preload(adapter_id, installed)
            return self._info(stored, installed)
        except AdapterNotFound:
            if installed is None:
                raise
            return self._info(installed.stored, installed)  # another request has removed or replaced it meanwhile

    def remove(self, adapter_id: str, timeout_s: float) -> None:
        """Refuse new items, wait for running ones, delete. Raises AdapterNotFound, Conflict, DeadlineExceeded."""
        with suppress(AdapterInvalid):  # a damaged adapter can be removed
            self._store.find(adapter_id)
        self._store.check_not_in_root(adapter_id)  # before `cache.remove`, which refuses new leases
        self._cache.remove(adapter_id, lambda: self._store.remove(adapter_id), timeout_s)

    def status(self) -> AdapterCacheStatus:
        """Which tiers hold which adapters."""
        return AdapterCacheStatus(
            in_memory=self.in_memory(),
            on_disk=tuple(stored.adapter_id for stored in self._store.all()),
            device_slots=tuple(key[0] if key else None for key in self._slots.contents()),
            disk_cache_dir=str(self._store.cache_dir),
            max_disk_adapters=self._store.max_disk_adapters,
        )

    def close(self) -> None:
        """Stop loading adapters."""
        self._cache.close()

    def _source(self, archive: Path | None, source: str | None, revision: str | None) -> tuple[Fill, Source]:
        if archive is not None:
            return from_archive(archive, self._max_bytes), "upload"
        if source is not None and source.startswith(_HUB):
            if not self._allow_hub:
                raise InvalidField("source: the hub is not enabled (setting allow_adapter_hub)", param="source")
            return from_hub(source.removeprefix(_HUB), revision, self._max_bytes), "hub"
        return from_folder(self._below_root(source or ""), self._max_bytes), "folder"

    def _below_root(self, name: str) -> Path:
        """A folder below `adapter_root`."""
        if self._root:
            with suppress(OSError, ValueError):  # not a possible folder name
                root = self._root.resolve()
                folder = (root / name).resolve()
                if root in folder.parents and folder.is_dir():
                    return folder
        raise InvalidField(f"source: no folder {name!r} in adapter_root", param="source")

    def _check(self, folder: Path) -> Adapter:
        _use_one_thread()
        return read_adapter(folder, self._layers, max_rank=self._max_rank)

    def _preload(self, adapter_id: str, installed: _Installed | None) -> None:
        """Wait until the adapter is in memory; raises if it cannot be loaded."""
        load = partial(self._load, installed=installed)
        lease = self._cache.acquire(adapter_id, count=False, load=load)
        try:
            wait([lease.ready], _PRELOAD_TIMEOUT_S)
            if lease.ready.done():
                lease.ready.result()
        finally:
            lease.release()

    def _load(self, stored: StoredAdapter, installed: _Installed | None = None) -> LoadedAdapter:
        began = time.perf_counter()
        outcome: Literal["completed", "failed"] = "failed"
        try:
            adapter = self._read(stored, installed)
            outcome = "completed"
            return adapter
        finally:
            if self._observer:
                self._observer.on_load(time.perf_counter() - began, outcome)

    def _on_evict(self, key: Key) -> None:
        self._slots.forget(key)
        if self._observer:
            self._observer.on_evict()

    def _read(self, stored: StoredAdapter, installed: _Installed | None) -> LoadedAdapter:
        """Load an adapter: from the tensors in `installed` if the version is the same, else from disk."""
        if installed is not None and installed.stored.version == stored.version:
            adapter = installed.adapter
        else:
            adapter = read_adapter(self._store.verified(stored), self._layers, max_rank=self._max_rank)
        self._store.touch(stored)
        return load_for(self._slots.sinks, (stored.adapter_id, stored.version), adapter, pinned=stored.pinned)

    def _info(self, stored: StoredAdapter, installed: _Installed | None = None) -> AdapterInfo:
        """The info of an adapter. Reads no file if `installed` has the same version."""
        if installed is not None and installed.stored.version == stored.version:
            rank, layers = installed.adapter.rank, installed.adapter.updates.keys()
        else:
            layout = self._layout_of(stored)
            rank, layers = layout.rank, layout.layers.keys()
        uses = self._cache.uses(stored.adapter_id)
        return AdapterInfo(
            id=stored.adapter_id,
            source=stored.source,
            rank=rank,
            targets=tuple(sorted(layers)),
            bytes=stored.size_bytes,
            tier=self._tier((stored.adapter_id, stored.version)),
            pinned=stored.pinned,
            uses=uses.count,
            last_used=None if uses.last_s is None else _timestamp(uses.last_s),
        )

    def _tier(self, key: Key) -> Literal["device", "cpu", "disk"]:
        if key in self._slots.contents():
            return "device"
        return "cpu" if key in self._cache.loaded_keys() else "disk"


def _use_one_thread() -> None:
    """Keep the calling thread from creating OpenMP threads, which would slow down batches (decision 6)."""
    torch.set_num_threads(1)


def _timestamp(seconds: float) -> str:
    """RFC 3339, of seconds since 1970."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _preloaded(lease: Lease, ready: Future[LoadedAdapter]) -> None:
    lease.release()
    if error := ready.exception():
        logger.warning("pinned adapter %s cannot be loaded: %s", lease.key[0], error)
