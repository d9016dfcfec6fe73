"""What the gateway asks about adapters: each call in a thread, so that none delays a text, and each error as data.

An archive comes in pieces: BentoML's hop would hold a file whole in memory, several times, and the event loop with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from gliner_bento.adapters.base import AdapterInfo, CacheStatus
from gliner_bento.errors import AdapterNotFound, GLiNERBentoError, NotReady, StorageFull
from gliner_bento.types import RunnerOutcome

CHANGES_AT_ONCE = 4
FORGOTTEN_S = 600.0
"""After so long without a piece, whoever sent an archive is taken to have gone."""


class Adapters(Protocol):
    """What is asked of the adapters. Each call may block, and raises the `GLiNERBentoError` that the caller is told."""

    def infos(self) -> list[AdapterInfo]:
        """All adapters that are served."""

    def info(self, adapter_id: str) -> AdapterInfo:
        """One of them; raises `InvalidField`, `AdapterNotFound`."""

    def put(
        self,
        adapter_id: str,
        *,
        archive: Path | None = None,
        source: str | None = None,
        revision: str | None = None,
        pinned: bool | None = None,
        preload: bool = True,
    ) -> tuple[AdapterInfo, bool]:
        """Serve an adapter from now on, or change one that is served; true if it is new. Does not keep `archive`."""

    def remove(self, adapter_id: str, timeout_s: float) -> None:
        """Serve it no longer, once what runs with it has ended."""

    def status(self) -> CacheStatus:
        """Which adapters are where."""


class AdapterCalls:
    """The runner's calls that concern adapters; all answer that there are none where `adapters` is None.

    uploads: the folder for archives on their way in.
    """

    def __init__(self, adapters: Adapters | None, uploads: Path) -> None:
        self._adapters = adapters
        self._uploads = Uploads(uploads)
        self._changing = ThreadPoolExecutor(CHANGES_AT_ONCE, thread_name_prefix="adapter-change")

    async def infos(self) -> RunnerOutcome:
        """All adapters, as data."""
        return await self._outcome(lambda adapters: [dataclasses.asdict(info) for info in adapters.infos()])

    async def info(self, adapter_id: str) -> RunnerOutcome:
        """One adapter, as data."""
        return await self._outcome(lambda adapters: dataclasses.asdict(adapters.info(adapter_id)))

    async def status(self) -> RunnerOutcome:
        """The `CacheStatus`, as data."""
        return await self._outcome(lambda adapters: dataclasses.asdict(adapters.status()))

    async def upload(self, upload_id: str, offset: int, data: bytes) -> RunnerOutcome:
        """Take the next piece of an archive; the same piece twice does no harm."""
        return await self._outcome(lambda _: self._uploads.write(upload_id, offset, data))

    async def put(self, adapter_id: str, upload_id: str | None, **options: Any) -> RunnerOutcome:
        """`{"adapter": as data, "created": bool}`. The archive that came as `upload_id` is gone afterwards."""

        def put(adapters: Adapters) -> dict[str, Any]:
            archive = self._uploads.path_of(upload_id) if upload_id else None
            try:
                info, created = adapters.put(adapter_id, archive=archive, **options)
            finally:
                if archive:
                    archive.unlink(missing_ok=True)
            return {"adapter": dataclasses.asdict(info), "created": created}

        return await self._outcome(put, self._changing)

    async def remove(self, adapter_id: str, timeout_s: float) -> RunnerOutcome:
        """None, once it is gone."""
        return await self._outcome(lambda adapters: adapters.remove(adapter_id, timeout_s), self._changing)

    def close(self) -> None:
        """Begin nothing more."""
        self._changing.shutdown(wait=False, cancel_futures=True)

    async def _outcome(
        self, ask: Callable[[Adapters], object], pool: ThreadPoolExecutor | None = None
    ) -> RunnerOutcome:
        try:
            if self._adapters is None:
                raise AdapterNotFound("adapters are not enabled (enable_lora)")
            return {"result": await asyncio.get_running_loop().run_in_executor(pool, ask, self._adapters)}
        except GLiNERBentoError as error:
            return {"error": error.detail().model_dump()}


class Uploads:
    """Archives on their way in: files in a folder of their own, each until it is used or forgotten about.

    Runner processes with the same folder share them: the pieces of one archive may come to any of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, upload_id: str) -> Path:
        """The file; raises `NotReady` if it is not here."""
        path = self._folder / upload_id
        if not path.is_file():
            raise NotReady("the upload was lost; send it again")
        return path

    def write(self, upload_id: str, offset: int, data: bytes) -> None:
        """Put `data` at `offset`; 0 begins the file. Raises `NotReady` if its beginning is not here, `StorageFull`."""
        try:
            if not offset:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._remove_forgotten()
                (self._folder / upload_id).touch()
            with self.path_of(upload_id).open("r+b") as file:
                file.seek(offset)
                file.write(data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise StorageFull("the server has no room for the upload") from None

    def _remove_forgotten(self) -> None:
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > FORGOTTEN_S:
                    path.unlink()
