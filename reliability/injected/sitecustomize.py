"""Faults inside a server's processes, for `make chaos`: on their path, this module replaces the engine's forward pass
and the clock by ones that look for orders in the folder that `CHAOS_ORDERS` names.

hang: one batch never ends; the order is deleted. out_of_memory: while it exists, batches of several items want more
memory than there is. kill_load: while it exists, loading the checkpoint in the folder of this name kills the process.
clock: while it exists, it is a day later.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

ENGINE = "gliner_bento.engine.engine"
ORDERS = "CHAOS_ORDERS"
_DAY_S = 86_400


class _Loader(Loader):
    """Loads the module, then replaces the forward pass."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See `Loader`."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        self._loader.exec_module(module)
        engine, orders = module.GLiNEREngine, Path(os.environ[ORDERS])
        forward = engine.forward

        def disturbed(self: Any, collated: Any, threads: int) -> Any:
            try:
                (orders / "hang").unlink()
            except FileNotFoundError:
                pass
            else:
                threading.Event().wait()
            if (orders / "out_of_memory").exists() and len(collated.items) > 1:
                module.torch.empty(2**50)
            return forward(self, collated, threads)

        load = engine.load

        def killed(model: str, **options: Any) -> Any:
            order = orders / "kill_load"
            if order.exists() and order.read_text() == Path(model).name:
                os.kill(os.getpid(), signal.SIGKILL)
            return load(model, **options)

        engine.forward, engine.load = disturbed, killed


class _Finder(MetaPathFinder):
    """Finds the engine as Python does."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        if name != ENGINE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        spec.loader = _Loader(spec.loader)
        return spec


def _disturb_clock() -> None:
    now, order = time.time, Path(os.environ[ORDERS]) / "clock"
    time.time = lambda: now() + _DAY_S * order.exists()


if ORDERS in os.environ:
    sys.meta_path.insert(0, _Finder())
    _disturb_clock()
