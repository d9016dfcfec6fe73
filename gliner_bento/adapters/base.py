"""Types shared by the parts of this package and the runner. Imports no torch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from gliner_bento.frozen import frozen

Source = Literal["folder", "hub", "upload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """The settings of adapters, a view of `Settings`. docs/settings.md describes each."""

    max_lora_rank: int
    max_cpu_adapters: int
    disk_cache_dir: Path
    max_disk_adapters: int
    adapter_root: Path | None
    adapter_id_pattern: str
    max_adapter_bytes: int
    allow_adapter_hub: bool
    adapter_loading_threads: int


@dataclass(frozen=True, slots=True)
class StoredAdapter:
    """An adapter on disk.

    version: identifies the content. Adapters with the same id and version are the same.
    folder: holds `adapter_config.json` and `adapter_model.safetensors`.
    size_bytes: size of both files together.
    pinned: whether it is kept in memory: evicted only after all others.
    """

    adapter_id: str
    version: str
    folder: Path
    source: Source
    size_bytes: int
    pinned: bool = False


@frozen()
class SlotState:
    """The slots of the device. slots: number of slots, which limits the adapters of a batch. resident: keys of the
    adapters in slots. in_use: keys of the adapters that running batches use."""

    slots: int = 0
    resident: frozenset[Hashable] = frozenset()
    in_use: frozenset[Hashable] = frozenset()


class AdapterObserver(Protocol):
    """Hooks for metrics, called concurrently from several threads. They must neither block nor raise."""

    def on_load(self, seconds: float, outcome: Literal["completed", "failed"]) -> None:
        """An adapter was loaded into memory, or failed to load."""

    def on_evict(self) -> None:
        """An adapter has left the memory: evicted, or removed."""
