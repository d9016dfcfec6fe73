"""Adapters that live in a dictionary: what the runner would hold, behind the runner's own calls."""

from __future__ import annotations

import threading
from pathlib import Path

from gliner_bento.adapters.base import AdapterInfo, CacheStatus
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, Conflict

SOME_TIME_S = 1_767_225_600.25


class MemoryAdapters:
    """An adapter is its content; one that says so is bad. `go_on` is clear while a put is to hang."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.pinned: dict[str, bool] = {}
        self.asked: list[dict] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def infos(self) -> list[AdapterInfo]:
        return [self.info(adapter_id) for adapter_id in self.contents]

    def info(self, adapter_id: str) -> AdapterInfo:
        self._find(adapter_id)
        used = adapter_id == "used"
        return AdapterInfo(
            adapter_id=adapter_id,
            source="upload",
            rank=4,
            targets=("query", "value"),
            size_bytes=len(self.contents[adapter_id]),
            tier="cpu",
            pinned=self.pinned[adapter_id],
            uses=3 if used else 0,
            last_use_s=SOME_TIME_S if used else None,
        )

    def put(self, adapter_id, *, archive: Path | None = None, source=None, revision=None, pinned=None, preload=True):
        self.go_on.wait(30)
        content = archive.read_bytes() if archive else source.encode() if source else None
        asked = {"source": source, "revision": revision, "pinned": pinned, "preload": preload}
        self.asked.append({"adapter_id": adapter_id, "uploaded": archive is not None} | asked)
        if content == b"bad":
            raise AdapterInvalid("adapter: this is none", param="adapter")
        if content is None:
            self._find(adapter_id)
        elif self.contents.get(adapter_id, content) != content:
            raise Conflict("another adapter has this id")
        created = adapter_id not in self.contents
        self.contents.setdefault(adapter_id, content)
        if pinned is not None or created:
            self.pinned[adapter_id] = bool(pinned)
        return self.info(adapter_id), created

    def remove(self, adapter_id: str, timeout_s: float) -> None:
        self._find(adapter_id)
        del self.contents[adapter_id]

    def status(self) -> CacheStatus:
        ids = tuple(self.contents)
        return CacheStatus(
            in_memory=ids[:2], on_disk=ids, device_slots=(*ids[:1], None), disk_cache_dir="cache", max_disk_adapters=9
        )

    def _find(self, adapter_id: str) -> None:
        if adapter_id not in self.contents:
            raise AdapterNotFound(f"adapter_id: no adapter {adapter_id!r}", param="adapter_id")
