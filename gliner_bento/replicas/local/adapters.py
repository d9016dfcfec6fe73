"""The adapters of a replica in this process. For use in an event loop: blocking work runs in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Protocol, TypeVar

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.adapters.base import AdapterObserver, AdapterSettings
from gliner_bento.errors import AdapterNotFound, StartupError
from gliner_bento.replicas.base import Archive
from gliner_bento.replicas.local.uploads import Uploads
from gliner_bento.settings import Settings

if TYPE_CHECKING:
    from gliner_bento.engine.engine import GLiNEREngine

T = TypeVar("T")

MAX_CONCURRENT_CHANGES = 4
"""Maximum number of concurrent installations and removals. These may take long, so they have their own thread pool."""


class Manager(Protocol):
    """The methods of `AdapterManager` that are used here. All but `in_memory` and `close` block. They raise
    errors of `errors.py`."""

    def infos(self) -> Sequence[AdapterInfo]:
        """All adapters."""

    def info(self, adapter_id: str) -> AdapterInfo:
        """One adapter."""

    def install(
        self,
        adapter_id: str,
        *,
        archive: Path | None,
        source: str | None,
        revision: str | None,
        pinned: bool | None,
        preload: bool,
        replace: bool,
    ) -> tuple[AdapterInfo, bool]:
        """Install an adapter, or change an installed one. Does not use `archive` after it returns."""

    def remove(self, adapter_id: str, timeout_s: float) -> None:
        """Delete an adapter."""

    def in_memory(self) -> Sequence[str]:
        """Ids of the adapters in memory."""

    def status(self) -> AdapterCacheStatus:
        """Which adapters are in which tier."""

    def close(self) -> None:
        """Stop loading."""


@contextmanager
def _storing_in(folder: Path) -> Iterator[Path]:
    """Raise `StartupError` for an `OSError` in this context."""
    try:
        yield folder
    except OSError as error:
        raise StartupError(
            f"disk_cache_dir: adapters cannot be stored in {folder}: {error.strerror}; choose another folder"
        ) from None


class LocalAdapters:
    """The `ReplicaAdapters` of a replica in this process.

    manager: None if adapters are not enabled. uploads: stores archives while they arrive.
    """

    def __init__(self, manager: Manager | None, uploads: Uploads) -> None:
        self._manager = manager
        self._uploads = uploads
        self._changes = ThreadPoolExecutor(MAX_CONCURRENT_CHANGES, thread_name_prefix="adapter-change")

    @staticmethod
    def check_storage(settings: Settings) -> None:
        """Raise `StartupError` if adapters are enabled and cannot be stored. Called before the model is loaded."""
        if settings.enable_lora:
            with _storing_in(settings.disk_cache_dir) as folder:
                folder.mkdir(parents=True, exist_ok=True)
                TemporaryFile(dir=folder).close()

    @classmethod
    def load(cls, engine: GLiNEREngine, settings: Settings, observer: AdapterObserver | None) -> LocalAdapters:
        """Connect `engine` to its adapters, if they are enabled, and start to load the pinned ones.

        Raises `StartupError` if this model's store cannot be written to; `check_storage` has checked `disk_cache_dir`.
        """
        uploads = Uploads(settings.disk_cache_dir / "uploads")
        if engine.adapter_slots is None:
            return cls(None, uploads)
        from gliner_bento.adapters.disk import AdapterStore  # noqa: PLC0415
        from gliner_bento.adapters.manager import AdapterManager  # noqa: PLC0415  # imports torch

        options = settings.view(AdapterSettings)
        assert engine.info.fingerprint is not None  # None only for ONNX models, which have no slots
        store = AdapterStore(options, engine.info.fingerprint)
        with _storing_in(store.folder):
            store.check_writable()
        manager = AdapterManager(store, engine.adapter_slots, engine.adaptable_layers, options, observer=observer)
        engine.serve_adapters(manager.acquire)
        manager.start()
        return cls(manager, uploads)

    @property
    def resident(self) -> Sequence[str]:
        """Ids of the adapters in memory."""
        return self._manager.in_memory() if self._manager else ()

    async def list(self) -> Sequence[AdapterInfo]:
        """See `ReplicaAdapters`."""
        return await self._run(self._enabled.infos)

    async def get(self, adapter_id: str) -> AdapterInfo:
        """See `ReplicaAdapters`."""
        return await self._run(partial(self._enabled.info, adapter_id))

    async def install(
        self,
        adapter_id: str,
        *,
        archive: Archive | None = None,
        source: str | None = None,
        revision: str | None = None,
        pinned: bool | None = None,
        preload: bool = True,
        replace: bool = False,
    ) -> tuple[AdapterInfo, bool]:
        """See `ReplicaAdapters`."""
        manager = self._enabled
        upload = None if archive is None else await self._uploads.receive(archive)
        try:
            change = self._changes.submit(
                manager.install,
                adapter_id,
                archive=upload.path if upload else None,
                source=source,
                revision=revision,
                pinned=pinned,
                preload=preload,
                replace=replace,
            )
        except BaseException:
            if upload:
                upload.delete()
            raise
        if upload:
            change.add_done_callback(lambda _: upload.delete())  # also if the change is cancelled before it starts
        return await asyncio.wrap_future(change)

    async def remove(self, adapter_id: str, timeout_s: float) -> None:
        """See `ReplicaAdapters`."""
        await self._run(partial(self._enabled.remove, adapter_id, timeout_s), self._changes)

    async def cache_status(self) -> AdapterCacheStatus:
        """See `ReplicaAdapters`."""
        return await self._run(self._enabled.status)

    def close(self) -> None:
        """Start no more changes, and stop loading."""
        self._changes.shutdown(wait=False, cancel_futures=True)
        if self._manager:
            self._manager.close()

    @property
    def _enabled(self) -> Manager:
        if self._manager is None:
            raise AdapterNotFound.disabled()
        return self._manager

    @staticmethod
    async def _run(work: Callable[[], T], pool: ThreadPoolExecutor | None = None) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)
