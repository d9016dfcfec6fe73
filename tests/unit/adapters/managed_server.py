"""An adapter manager over a model of its own, and the adapters that tests install."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft_adapters import TEXT_ENCODER
from waiting import PATIENCE_S

from gliner_bento.adapter_types import AdapterInfo
from gliner_bento.adapters.archive import WEIGHTS_FILE
from gliner_bento.adapters.cache import Lease
from gliner_bento.adapters.device import DeviceSlots, LoadedAdapter
from gliner_bento.adapters.manager import AdapterManager
from gliner_bento.commands import InstallAdapter

SLOTS = 2
LAYER = f"{TEXT_ENCODER}encoder.layer.0.attention.self.query_proj"
SAVED: dict[str, dict[str, Any]] = {
    "a": {"r": 2},
    "b": {"r": 3, "target_modules": ["query_proj", "value_proj"]},
    "c": {"r": 4},
    "high": {"r": 9},
}


@dataclass
class Server:
    """A manager over a model of its own. root: the operator's folder."""

    manager: AdapterManager
    slots: DeviceSlots
    net: Any
    root: Path
    cache: Path

    def install(self, adapter_id: str, archive: Path | None = None, **options: Any) -> tuple[AdapterInfo, bool]:
        return self.manager.apply(InstallAdapter(adapter_id, **options), archive)

    def ready(self, adapter_id: str) -> tuple[Lease, LoadedAdapter]:
        lease = self.manager.acquire(adapter_id)
        return lease, lease.ready.result(PATIENCE_S)

    def use(self, *ids: str, on_device: bool = False) -> None:
        for adapter_id in ids:
            lease, adapter = self.ready(adapter_id)
            if on_device:
                with self.slots.hold([adapter]):
                    pass
            lease.release()

    def tiers(self) -> dict[str, str]:
        return {info.id: info.tier for info in self.manager.infos()}


Serve = Callable[..., Server]
Archive = Callable[[str], Path]


def damage(server: Server, adapter_id: str) -> None:
    """Flip a bit of the last byte of an installed adapter's weights."""
    path = server.cache / "base" / "adapters" / adapter_id / WEIGHTS_FILE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
