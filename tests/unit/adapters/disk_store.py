"""Stores of adapters in a folder, and what is installed into them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from views import view

from gliner_bento.adapters.archive import CONFIG_FILE, WEIGHTS_FILE
from gliner_bento.adapters.base import AdapterSettings, Source, StoredAdapter
from gliner_bento.adapters.disk import AdapterStore

BASE = "base"
ID_PATTERN = r"[A-Za-z0-9_.-]{1,128}"

Fill = Callable[[Path], None]


def store_in(
    cache: Path,
    root: Path | None = None,
    *,
    base: str = BASE,
    most: int = 10,
    pattern: str = ID_PATTERN,
    max_bytes: int = 10_000,
) -> AdapterStore:
    settings = view(
        AdapterSettings,
        disk_cache_dir=cache,
        adapter_root=root,
        max_disk_adapters=most,
        adapter_id_pattern=pattern,
        max_adapter_bytes=max_bytes,
    )
    return AdapterStore(settings, base)


def filled(content: str = "weights", config: str = "{}") -> Fill:
    def fill(folder: Path) -> None:
        (folder / CONFIG_FILE).write_text(config)
        (folder / WEIGHTS_FILE).write_text(content)

    return fill


def install(
    store: AdapterStore, adapter_id: str = "a", fill: Fill | None = None, *, source: Source = "upload", **options
) -> StoredAdapter:
    options = {"check": lambda folder: None} | options
    return store.install(adapter_id, fill or filled(), source=source, **options)[0]


def ids(store: AdapterStore) -> list[str]:
    return [stored.adapter_id for stored in store.all()]


def in_cache(cache: Path) -> list[str]:
    """All names in the store's folder of adapters, hidden ones too."""
    return sorted(os.listdir(cache / BASE / "adapters"))


def folder_in(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir()
    return folder
