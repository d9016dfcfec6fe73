"""What the parts of this package tell each other and the runner. Imports no torch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Source = Literal["folder", "hub", "upload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """The settings of adapters, under their own names: a view of `Settings`; see docs/settings.md for each."""

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
class Stored:
    """An adapter on disk.

    version: says which content: two adapters of one id and version are the same.
    folder: holds `adapter_config.json` and `adapter_model.safetensors`.
    size_bytes: of both files.
    pinned: kept in memory while others make room.
    """

    adapter_id: str
    version: str
    folder: Path
    source: Source
    size_bytes: int
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class SlotState:
    """Adapters on the device. slots: how many one batch may use at most. in_use: those of running batches."""

    slots: int = 0
    resident: frozenset[Hashable] = frozenset()
    in_use: frozenset[Hashable] = frozenset()


class Observer(Protocol):
    """Hooks for metrics, called from the adapters' threads, several at once. They must neither block nor raise."""

    def on_load(self, seconds: float, outcome: Literal["completed", "failed"]) -> None:
        """An adapter has come from disk into memory, or has failed to."""

    def on_evict(self) -> None:
        """An adapter has left the memory, to make room or because it was removed."""
