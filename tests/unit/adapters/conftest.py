"""Adapters in a temporary folder, caches of adapters, and threads that end with the test."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_shelf import Make, Shelf
from disk_store import store_in
from managed_server import SAVED, SLOTS, Archive, Serve, Server
from peft_adapters import Save, Saved, encoder, model, save_adapter
from views import view
from waiting import PATIENCE_S

from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.adapters.cache import AdapterCache
from gliner_bento.adapters.device import DeviceSlots, Key
from gliner_bento.adapters.disk import AdapterStore
from gliner_bento.adapters.manager import AdapterManager
from gliner_bento.engine.layers.factory import LayerFactory


@pytest.fixture
def thread() -> Iterator[Callable[..., threading.Thread]]:
    """Start a thread; it is joined at the end of the test."""
    threads = []

    def start(call: Callable[..., object], *given: object) -> threading.Thread:
        threads.append(threading.Thread(target=call, args=given, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for started in threads:
        started.join(PATIENCE_S)
        assert not started.is_alive()


@pytest.fixture
def _busy_threads() -> Iterator[None]:
    """Switch threads as often as possible."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def save(**options: Any) -> Saved:
        return save_adapter(tmp_path / "adapter", **options)

    return save


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def store(cache: Path) -> AdapterStore:
    return store_in(cache)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Saved]:
    folder = tmp_path_factory.mktemp("saved")
    adapters = {name: save_adapter(folder / name, **options) for name, options in SAVED.items()}
    broken = Saved(shutil.copytree(adapters["a"].folder, folder / "nan"), adapters["a"].peft)
    broken.tensors(lambda tensors: next(iter(tensors.values())).fill_(torch.nan))
    return adapters | {"nan": broken}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Each call simulates another process over the same folders."""
    managers = []
    (tmp_path / "root").mkdir()

    def serve(*, max_disk_adapters: int = 9, has_root: bool = True, observer: Any = None, **changes: Any) -> Server:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = model(encoder()).eval()
        layers = LayerFactory(net, slots=SLOTS)
        layers.adapt(net)
        root, cache = tmp_path / "root", tmp_path / "cache"
        options: dict[str, Any] = {
            "disk_cache_dir": cache,
            "adapter_root": root if has_root else None,
            "max_disk_adapters": max_disk_adapters,
            "adapter_id_pattern": r"\w+",
            "max_adapter_bytes": 100_000,
            "max_lora_rank": 8,
            "max_cpu_adapters": 3,
        }
        settings = view(AdapterSettings, **options | changes)
        slots = DeviceSlots(layers.sinks, SLOTS)
        managers.append(
            AdapterManager(AdapterStore(settings, "base"), slots, layers.describe(), settings, observer=observer)
        )
        return Server(managers[-1], slots, net, root, cache)

    yield serve
    for manager in managers:
        manager.close()


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


@pytest.fixture
def archive(saved: dict[str, Saved], tmp_path: Path) -> Archive:
    def archive(name: str, kind: str = "zip") -> Path:
        return Path(shutil.make_archive(str(tmp_path / f"upload-{name}"), kind, saved[name].folder))

    return archive


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    shelf = Shelf()
    yield shelf
    shelf.open_all()


@pytest.fixture
def make(shelf: Shelf) -> Iterator[Make]:
    caches = []

    def make(
        capacity: int = 2, threads: int = 2, on_evict: Callable[[Key], None] = shelf.evicted.append
    ) -> AdapterCache:
        options = {"capacity": capacity, "threads": threads, "on_evict": on_evict, "start_thread": shelf.start_thread}
        caches.append(AdapterCache(shelf.find, shelf.load, **options))
        return caches[-1]

    yield make
    shelf.open_all()
    for cache in caches:
        cache.close()
