"""Adapters in a dictionary: the `Manager` of a local replica, and what a `MemoryReplica` does with commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from waiting import PATIENCE_S

from gliner_bento.adapter_types import AdapterCacheStatus, AdapterInfo
from gliner_bento.commands import (
    RULES,
    AdapterCommand,
    ChangeAdapter,
    FindAdapter,
    InstallAdapter,
    ListAdapters,
    ReadAdapterCache,
    RemoveAdapter,
)
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, Conflict

LAST_USED = "2026-01-01T00:00:00.250Z"


class MemoryManager:
    """An adapter is its archive's content; `bad` is an invalid one.

    proceed: clear it to let changes hang. begun: ids of every installation or change; changes: the arguments, once it
    may proceed. timeouts_s: of every `remove`.
    """

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.pinned: dict[str, bool] = {}
        self.changes: list[dict[str, Any]] = []
        self.timeouts_s: list[float] = []
        self._lock = threading.Lock()
        self.begun: list[str] = []
        self.proceed = threading.Event()
        self.proceed.set()
        self.closed = False

    def infos(self) -> list[AdapterInfo]:
        return [self.info(adapter_id) for adapter_id in sorted(self.contents)]

    def info(self, adapter_id: str) -> AdapterInfo:
        self._find(adapter_id)
        used = adapter_id == "used"
        return AdapterInfo(
            id=adapter_id,
            source="upload",
            rank=4,
            targets=["query", "value"],
            bytes=len(self.contents[adapter_id]),
            tier="cpu",
            pinned=self.pinned[adapter_id],
            uses=3 if used else 0,
            last_used=LAST_USED if used else None,
        )

    def apply(self, command: AdapterCommand[Any], archive: Path | None = None) -> Any:
        return self.carry_out(command, archive.read_bytes() if archive else None)

    def carry_out(self, command: AdapterCommand[Any], uploaded: bytes | None = None) -> Any:
        """`apply`, with the archive's content."""
        match command:
            case ListAdapters():
                return self.infos()
            case FindAdapter():
                return self.info(command.adapter_id)
            case ReadAdapterCache():
                return self.status()
            case InstallAdapter():
                return self.change(uploaded=uploaded, **asdict(command))
            case ChangeAdapter():
                return self.change(**asdict(command))[0]
            case RemoveAdapter():
                return self.remove(command.adapter_id, command.timeout_s)

    def change(
        self,
        adapter_id: str,
        uploaded: bytes | None = None,
        *,
        source=None,
        revision=None,
        pinned=None,
        preload=True,
        replace=False,
    ) -> tuple[AdapterInfo, bool]:
        self.begun.append(adapter_id)
        self.proceed.wait(PATIENCE_S)
        options = {"source": source, "revision": revision, "pinned": pinned, "preload": preload, "replace": replace}
        self.changes.append({"adapter_id": adapter_id, "uploaded": uploaded is not None} | options)
        content = uploaded if uploaded is not None else source.encode() if source else None
        if content == b"bad":
            raise AdapterInvalid("adapter: this is none", param="adapter")
        if content is None:
            self._find(adapter_id)
        elif self.contents.get(adapter_id, content) != content and not replace:
            raise Conflict("another adapter has this id")
        created = adapter_id not in self.contents
        if created or content is not None:
            self.contents[adapter_id] = content or b""
        if pinned is not None or created:
            self.pinned[adapter_id] = bool(pinned)
        return self.info(adapter_id), created

    def remove(self, adapter_id: str, timeout_s: float) -> None:
        self.timeouts_s.append(timeout_s)
        self.proceed.wait(PATIENCE_S)
        with self._lock:
            self._find(adapter_id)
            del self.contents[adapter_id]

    def in_memory(self) -> Sequence[str]:
        return list(self.contents)[:2]

    def status(self) -> AdapterCacheStatus:
        ids = list(self.contents)
        return AdapterCacheStatus(
            in_memory=ids[:2], on_disk=ids, device_slots=[*ids[:1], None], disk_cache_dir="cache", max_disk_adapters=9
        )

    def close(self) -> None:
        self.closed = True

    def _find(self, adapter_id: str) -> None:
        if adapter_id not in self.contents:
            raise AdapterNotFound(f"adapter_id: no adapter {adapter_id!r}", param="adapter_id")


async def applied(
    manager: MemoryManager | None, command: AdapterCommand[Any], archive: AsyncIterable[bytes] | None = None
) -> Any:
    """`apply` of a `MemoryReplica`. manager: None: adapters are not enabled. Changes may block, in threads."""
    if manager is None:
        raise AdapterNotFound.disabled()
    if RULES[type(command)].reads:
        return manager.carry_out(command)
    content = b"".join([piece async for piece in archive]) if archive is not None else b""
    return await asyncio.to_thread(manager.carry_out, command, content or None)
