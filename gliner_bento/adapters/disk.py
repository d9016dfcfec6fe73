"""The disk tier: installed adapters, shared by processes with the same base model, and the operator's own adapters.

    disk_cache_dir/<fingerprint>/    the store of one base model
        adapters/<id>/    the two files and manifest.json, written elsewhere and renamed (atomic)
        adapters/.<...>/  being installed or removed; a leftover of a crash if no process has locked it
        pins/<id>         exists if the id is pinned
        lock
    adapter_root/<id>/    the operator's, never written to

Changing `adapters` and `pins` requires the lock; looking up does not.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypeVar
from uuid import uuid4

from gliner_bento.adapters.archive import FILES, SOURCE_FILES, check_complete
from gliner_bento.adapters.base import AdapterSettings, Source, StoredAdapter
from gliner_bento.adapters.manifest import MANIFEST_FILE, Manifest
from gliner_bento.adapters.sources import Fill
from gliner_bento.adapters.storage_errors import storage_errors
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, Conflict, InvalidField, StorageFull, TooLarge
from gliner_bento.storage.files import file_lock, sync
from gliner_bento.tasks.base import BASE_ADAPTER_ID

logger = logging.getLogger(__name__)

_STAGING_LOCK = "lock"
_STAGED, _ASIDE = ".new-", ".old-"  # prefixes of folders that are being installed or removed
_MAX_ID_BYTES = 200  # file systems allow 255


T = TypeVar("T")


class AdapterStore:
    """The adapters in the cache and in the operator's folder, which has precedence. Thread-safe and process-safe.

    fingerprint: of the base model. Stores with the same fingerprint share their installed adapters.
    """

    def __init__(self, settings: AdapterSettings, fingerprint: str) -> None:
        self.cache_dir = settings.disk_cache_dir
        self.folder = self.cache_dir / fingerprint
        self._adapters = self.folder / "adapters"
        self._pins = self.folder / "pins"
        self._lock_file = self.folder / "lock"
        self._root = settings.adapter_root
        self.max_disk_adapters = settings.max_disk_adapters
        self._id_pattern = re.compile(settings.adapter_id_pattern)
        self._max_bytes = settings.max_adapter_bytes
        self._known: dict[str, tuple[tuple[int, int, int], StoredAdapter]] = {}  # by id: `_stamp`, adapter
        self._sweep()
        for name in _names(self._root):
            if not self._is_id(name):
                logger.warning("adapter_root: %r is not a valid adapter id and is not served", name)
        _report_unattributed(self.cache_dir)

    def check_writable(self) -> None:
        """Raises `OSError` if nothing can be installed. Does not detect a full disk; `install` does."""
        with self._locked():
            TemporaryFile(dir=self._adapters).close()

    def check_id(self, adapter_id: str) -> None:
        """Raises `InvalidField` for an invalid adapter id."""
        if not self._is_id(adapter_id):
            raise InvalidField(
                f"adapter_id: must match {self._id_pattern.pattern}, not begin with a dot, not be {BASE_ADAPTER_ID}",
                param="adapter_id",
            )

    def check_not_in_root(self, adapter_id: str) -> None:
        """Raises `Conflict` if the id belongs to an adapter in `adapter_root`, which only the operator changes."""
        if self._in_root(adapter_id):
            raise Conflict(
                f"adapter_id: {adapter_id!r} comes from adapter_root; change or remove its folder there",
                param="adapter_id",
            )

    def find(self, adapter_id: str) -> StoredAdapter:
        """The adapter on disk. Costs a few `stat` calls.

        Raises `InvalidField`, `AdapterNotFound`, or `AdapterInvalid` if its manifest is damaged.
        """
        self.check_id(adapter_id)
        stored = self._in_root(adapter_id) or self._in_cache(adapter_id)
        if stored is None:
            raise AdapterNotFound(f"adapter_id: no adapter {adapter_id!r}", param="adapter_id")
        pinned = (self._pins / adapter_id).exists()
        return stored if stored.pinned == pinned else dataclasses.replace(stored, pinned=pinned)

    def all(self) -> list[StoredAdapter]:
        """All adapters, sorted by id. If both folders have an id, lists the operator's adapter."""
        stored = []
        for adapter_id in sorted({*_names(self._adapters), *_names(self._root)}):
            try:
                stored.append(self.find(adapter_id))
            except (InvalidField, AdapterNotFound):
                continue  # not an adapter, or removed meanwhile
            except (AdapterInvalid, OSError) as error:
                logger.warning("adapter %s is not listed: %s", adapter_id, error)
        return stored

    def verified(self, stored: StoredAdapter) -> Path:
        """Check the hashes of an adapter's files; returns its folder. The operator's adapters have no hashes.

        Raises `AdapterNotFound` if the adapter was removed or replaced, `AdapterInvalid` if it is damaged.
        """
        folder = stored.folder
        if folder.parent != self._adapters:
            return folder
        stamp = _stamp(folder)
        manifest = Manifest.read(folder)
        undamaged = manifest is not None and manifest.matches(folder)
        if self.find(stored.adapter_id).version != stored.version or _stamp(folder) != stamp:
            raise AdapterNotFound(f"adapter_id: {stored.adapter_id!r} has been replaced", param="adapter_id")
        if not undamaged:
            raise _damaged(stored.adapter_id)
        return folder

    def install(
        self,
        adapter_id: str,
        fill: Fill,
        *,
        source: Source,
        check: Callable[[Path], T],
        pinned: bool = False,
        replace: bool = False,
    ) -> tuple[StoredAdapter, T]:
        """Install the files that `fill` writes, if `check` accepts their folder. Returns what `check` returns, too.

        pinned: pin the adapter; False does not unpin an installed one.
        replace: replace an adapter of this id that has other content; if the old one was pinned, the new one is too.

        Installing the same content twice changes nothing. Raises `Conflict` if the operator has an adapter of this id,
        or if one with other content is installed and `replace` is False; also raises `TooLarge`, `StorageFull`,
        `InvalidField`, and what `fill` and `check` raise.
        """
        self.check_id(adapter_id)
        self.check_not_in_root(adapter_id)
        with storage_errors(), self._staging() as folder:
            fill(folder)
            check_complete(os.listdir(folder))
            manifest = Manifest.of(folder, source)
            if manifest.size_bytes > self._max_bytes:
                raise TooLarge(f"adapter: its files have more than {self._max_bytes} bytes", param="adapter")
            checked = check(folder)
            manifest.write(folder)
            for name in (*FILES, MANIFEST_FILE, "."):
                sync(folder / name)
            with self._locked():
                discarded = self._publish(adapter_id, folder, manifest, pinned=pinned, replace=replace)
                stored = self.find(adapter_id)
            for path in discarded:
                shutil.rmtree(path, ignore_errors=True)
            return stored, checked

    def set_pinned(self, adapter_id: str, pinned: bool) -> StoredAdapter:
        """Pin or unpin an adapter; raises as `find` does."""
        with storage_errors(), self._locked():
            self.find(adapter_id)
            self._pin(adapter_id, pinned)
            return self.find(adapter_id)

    def remove(self, adapter_id: str) -> bool:
        """Remove an installed adapter; returns whether it existed. Raises `Conflict` for one of the operator's."""
        self.check_id(adapter_id)
        self.check_not_in_root(adapter_id)
        if not (self._adapters / adapter_id).exists():
            return False
        with storage_errors():
            with self._locked():
                if not (self._adapters / adapter_id).exists():
                    return False
                discarded = self._move_aside(adapter_id)
                self._pin(adapter_id, False)
                sync(self._adapters)
            shutil.rmtree(discarded, ignore_errors=True)
        return True

    def touch(self, stored: StoredAdapter) -> None:
        """Note that an adapter from the hub is used now, for LRU eviction. Ignores errors."""
        if stored.source == "hub":
            with suppress(OSError):
                os.utime(stored.folder)

    def _is_id(self, name: str) -> bool:
        """Whether `name` matches the pattern and is a safe name of a folder."""
        return (
            bool(name and self._id_pattern.fullmatch(name))
            and name.isprintable()
            and name != BASE_ADAPTER_ID
            and not name.startswith(".")
            and not {"/", "\\"} & set(name)
            and len(name.encode()) <= _MAX_ID_BYTES
        )

    def _in_root(self, adapter_id: str) -> StoredAdapter | None:
        if self._root is None:
            return None
        folder = self._root / adapter_id
        config, *weights = [_status(folder / name) for name in SOURCE_FILES]
        if config is None:
            return None
        present = [config, *(status for status in weights if status)]
        return StoredAdapter(
            adapter_id,
            version="-".join(f"{status.st_mtime_ns}-{status.st_size}" for status in present),
            folder=folder,
            source="folder",
            size_bytes=sum(status.st_size for status in present),
        )

    def _in_cache(self, adapter_id: str) -> StoredAdapter | None:
        folder = self._adapters / adapter_id
        while (stamp := _stamp(folder)) is not None:
            known = self._known.get(adapter_id)
            if known and known[0] == stamp:
                return known[1]
            if manifest := Manifest.read(folder):
                stored = StoredAdapter(adapter_id, manifest.version, folder, manifest.source, manifest.size_bytes)
                self._known[adapter_id] = (stamp, stored)
                return stored
            if _stamp(folder) == stamp:  # else another thread or server has changed it meanwhile
                raise _damaged(adapter_id)
        self._known.pop(adapter_id, None)
        return None

    def _publish(self, adapter_id: str, folder: Path, manifest: Manifest, *, pinned: bool, replace: bool) -> list[Path]:
        """Rename `folder` to the adapter's folder. Returns the folders to delete. Called with the lock held."""
        self.check_not_in_root(adapter_id)
        target = self._adapters / adapter_id
        existing = Manifest.read(target)
        same = existing is not None and existing.version == manifest.version
        if existing is not None and not same and not replace:
            raise Conflict(
                f"adapter_id: {adapter_id!r} exists with other content ({existing.difference(manifest)}); choose "
                "another id, or send replace=true, which replaces it on every server that shares it",
                param="adapter_id",
            )
        if existing is not None and same and existing.matches(target):
            if pinned:
                self._pin(adapter_id, True)
            return []
        occupied = target.exists()  # also by a damaged adapter
        victims = [] if occupied else self._victims()
        if pinned or not occupied:
            self._pin(adapter_id, pinned)
        discarded = [self._move_aside(adapter_id)] if occupied else []
        os.rename(folder, target)
        discarded += [self._move_aside(victim) for victim in victims]
        sync(self._adapters)
        return discarded

    def _victims(self) -> list[str]:
        """The unpinned adapters from the hub to evict so that one more fits. Raises `StorageFull` if too few exist."""
        ids = _names(self._adapters)
        excess = len(ids) + 1 - self.max_disk_adapters
        if excess <= 0:
            return []
        evictable = [
            (status.st_mtime_ns, name)
            for name in ids
            if (manifest := Manifest.read(self._adapters / name)) is not None
            and manifest.source == "hub"
            and not (self._pins / name).exists()
            and (status := _status(self._adapters / name)) is not None
        ]
        if len(evictable) < excess:
            raise StorageFull(
                f"adapter: {len(ids)} are stored and max_disk_adapters is {self.max_disk_adapters}; delete one",
                param="adapter",
            )
        return [name for _, name in sorted(evictable)[:excess]]

    def _move_aside(self, adapter_id: str) -> Path:
        """Rename an adapter's folder before its deletion. Returns the new path. Called with the lock held."""
        path = self._adapters / f"{_ASIDE}{uuid4().hex}"
        os.rename(self._adapters / adapter_id, path)
        return path

    def _pin(self, adapter_id: str, pinned: bool) -> None:
        path = self._pins / adapter_id
        if pinned:
            self._pins.mkdir(exist_ok=True)
            path.touch()
        else:
            path.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the store's lock, which excludes all other processes and threads."""
        self._adapters.mkdir(parents=True, exist_ok=True)
        with file_lock(self._lock_file):
            yield

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """An empty folder on the same file system. Removed afterwards; after a crash, at the next start."""
        staging = self._adapters / f"{_STAGED}{uuid4().hex}"
        try:
            with ExitStack() as stack:
                with self._locked():
                    staging.mkdir()
                    stack.enter_context(file_lock(staging / _STAGING_LOCK))
                folder = staging / "adapter"
                folder.mkdir()
                yield folder
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove the leftovers of a crash."""
        if not self._adapters.is_dir():
            return
        try:
            with self._locked():
                for path in (*self._adapters.glob(f"{_STAGED}*"), *self._adapters.glob(f"{_ASIDE}*")):
                    # Another process may be using the folder, or have removed it meanwhile.
                    with suppress(BlockingIOError, FileNotFoundError), file_lock(path / _STAGING_LOCK, wait=False):
                        shutil.rmtree(path, ignore_errors=True)
        except OSError as error:
            logger.warning("cannot remove the leftovers of a crash in the adapter cache: %s", error)


def _names(folder: Path | None) -> list[str]:
    """The names in a folder, without hidden ones; empty without a folder."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")] if folder else []
    except (FileNotFoundError, NotADirectoryError):
        return []


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _stamp(folder: Path) -> tuple[int, int, int] | None:
    """A value that changes with each installation; None if nothing is installed."""
    status = _status(folder / MANIFEST_FILE)
    return None if status is None else (status.st_mtime_ns, status.st_ino, status.st_size)


def _report_unattributed(cache_dir: Path) -> None:
    """Warn about adapters of an earlier version, which stored the adapters of all models in one folder."""
    if _names(cache_dir / "adapters"):
        logger.warning(
            "the adapters in %s are not served: an earlier version stored them without their base model; PUT them "
            "again and delete that folder",
            cache_dir / "adapters",
        )


def _damaged(adapter_id: str) -> AdapterInvalid:
    return AdapterInvalid(
        f"adapter_id: {adapter_id!r} is damaged on disk; delete it and install it again", param="adapter_id"
    )
