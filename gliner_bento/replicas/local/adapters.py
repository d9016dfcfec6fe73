"""The adapters of a replica in this process. For use in an event loop: blocking work runs in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Protocol, TypeVar

from gliner_bento.adapters.base import AdapterObserver, AdapterSettings
from gliner_bento.commands import RULES, AdapterCommand
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

    def apply(self, command: AdapterCommand[T], archive: Path | None = None) -> T:
        """Carry out a command. Does not use `archive` after it returns."""

    def in_memory(self) -> Sequence[str]:
        """Ids of the adapters in memory."""

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
    """Carries out the commands about the adapters of a replica in this process.

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

    async def apply(self, command: AdapterCommand[T], archive: Archive | None = None) -> T:
        """See `Replica`."""
        if self._manager is None:
            raise AdapterNotFound.disabled()
        upload = None if archive is None else await self._uploads.receive(archive)
        work = partial(self._manager.apply, command, upload.path if upload else None)
        if RULES[type(command)].reads:
            return await asyncio.get_running_loop().run_in_executor(None, work)
        try:
            change = self._changes.submit(work)
        except BaseException:
            if upload:
                upload.delete()
            raise
        if upload:
            change.add_done_callback(lambda _: upload.delete())  # also if the change is cancelled before it starts
        return await asyncio.wrap_future(change)

    def close(self) -> None:
        """Start no more changes, and stop loading."""
        self._changes.shutdown(wait=False, cancel_futures=True)
        if self._manager:
            self._manager.close()
