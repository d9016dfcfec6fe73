"""All tiers together: adapters are used, listed, evicted and removed, on disk, in memory and in slots."""

from __future__ import annotations

import logging
import os
import shutil
import time
from dataclasses import replace
from datetime import datetime

import pytest
import torch
from managed_server import LAYER, Serve, Server, damage
from peft_adapters import TEXT_ENCODER
from polling import PATIENCE_S, wait_until

from gliner_bento.adapters.archive import CONFIG_FILE, WEIGHTS_FILE
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.errors import (
    AdapterInvalid,
    AdapterNotFound,
    Conflict,
    DeadlineExceeded,
    NotReady,
)

# Tiers


def test_an_adapter_moves_from_disk_to_memory_to_a_slot_and_back(server: Server, archive) -> None:
    for name in "abc":
        server.manager.install(name, archive=archive(name), preload=False)
    server.manager.install("d", archive=archive("a"), preload=False)
    assert set(server.tiers().values()) == {"disk"}
    server.use("a", "b")
    assert server.tiers() == {"a": "cpu", "b": "cpu", "c": "disk", "d": "disk"}
    server.use("a", on_device=True)
    assert server.tiers() == {"a": "device", "b": "cpu", "c": "disk", "d": "disk"}
    status = server.manager.status()
    assert (status.in_memory, status.on_disk, status.device_slots) == (("a", "b"), tuple("abcd"), ("a", None))
    assert (status.disk_cache_dir, status.max_disk_adapters) == (str(server.cache), 9)
    server.use("b", "c", on_device=True)
    assert server.tiers() == {"a": "cpu", "b": "device", "c": "device", "d": "disk"}
    server.use("d")  # memory holds three: a is evicted
    assert server.tiers() == {"a": "disk", "b": "device", "c": "device", "d": "cpu"}
    server.use("a")  # b is evicted, from its slot too
    assert server.tiers() == {"a": "cpu", "b": "disk", "c": "device", "d": "cpu"}
    assert server.manager.status().device_slots == ("c", None)


def test_an_adapter_on_the_device_computes_its_update(server: Server, saved, archive) -> None:
    """And nothing after it was evicted."""
    for name in "ab":
        server.manager.install(name, archive=archive(name))
    layer = server.net.get_submodule(LAYER)
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        base = layer(x)
        (lease_a, a), (lease_b, b) = server.ready("a"), server.ready("b")
        with server.slots.hold([a, b]) as slot_of:
            for name, adapter in (("a", a), ("b", b)):
                weight, _ = saved[name].deltas()[LAYER.removeprefix(TEXT_ENCODER)]
                with on_slot(slot_of[adapter]):
                    torch.testing.assert_close(layer(x), base + x @ weight.T)
            slot = slot_of[a]
        lease_a.release()
        lease_b.release()
        server.manager.remove("a", PATIENCE_S)
        with on_slot(slot):
            assert torch.equal(layer(x), base)


def test_adapters_on_the_device_are_in_memory(serve: Serve, archive) -> None:
    server = serve(max_cpu_adapters=1)
    for name in "ab":
        server.manager.install(name, archive=archive(name))
    assert server.tiers() == {"a": "cpu", "b": "cpu"}


def test_pinned_adapters_are_evicted_last(server: Server, archive) -> None:
    for name in "abc":
        server.manager.install(name, archive=archive(name), pinned=name == "a")
    server.manager.install("d", archive=archive("a"))
    assert server.tiers() == {"a": "cpu", "b": "disk", "c": "cpu", "d": "cpu"}
    server.use("a", "c", on_device=True)
    server.use("d", on_device=True)
    assert server.tiers() == {"a": "device", "b": "disk", "c": "cpu", "d": "device"}
    server.manager.install("a", pinned=False)
    server.use("c", "d", on_device=True)
    assert server.tiers() == {"a": "cpu", "b": "disk", "c": "device", "d": "device"}


class Tally:
    """An `Observer`."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.evictions = 0

    def on_load(self, seconds: float, outcome: str) -> None:
        assert seconds > 0
        self.loads.append(outcome)

    def on_evict(self) -> None:
        self.evictions += 1


def test_loads_and_evictions_are_observed(serve: Serve, archive) -> None:
    tally = Tally()
    server = serve(observer=tally)
    for name in "abc":
        server.manager.install(name, archive=archive(name))
    server.manager.install("d", archive=archive("a"), preload=False)
    assert (tally.loads, tally.evictions) == (["completed"] * 3, 0)
    damage(server, "d")
    with pytest.raises(AdapterInvalid):
        server.manager.install("d")
    assert (tally.loads, tally.evictions) == ([*["completed"] * 3, "failed"], 1)
    server.manager.remove("b", 0.0)
    server.manager.remove("d", 0.0)
    assert tally.evictions == 2


def test_uses_are_reported(server: Server, archive) -> None:
    server.manager.install("one", archive=archive("a"))
    server.manager.install("one")
    before_s = time.time()
    server.use("one", "one")
    info = server.manager.info("one")
    assert info.uses == 2
    assert info.last_used is not None
    last_used_s = datetime.fromisoformat(info.last_used.replace("Z", "+00:00")).timestamp()
    assert before_s - 0.001 <= last_used_s <= time.time()
    server.manager.remove("one", 0.0)
    server.manager.install("one", archive=archive("a"))
    assert (server.manager.info("one").uses, server.manager.info("one").last_used) == (0, None)


# Removing


def test_a_removed_adapter_is_in_no_tier(server: Server, archive) -> None:
    for name in "ab":
        server.manager.install(name, archive=archive(name))
        server.use(name, on_device=True)
    server.manager.remove("a", 0.0)
    status = server.manager.status()
    assert (status.in_memory, status.on_disk, status.device_slots) == (("b",), ("b",), (None, "b"))
    assert os.listdir(server.cache / "base" / "adapters") == ["b"]
    for call in (server.manager.info, server.manager.acquire, lambda name: server.manager.remove(name, 0.0)):
        with pytest.raises(AdapterNotFound):
            call("a")
    info, created = server.manager.install("a", archive=archive("c"))
    assert (info.rank, created) == (4, True)
    assert server.ready("a")[1].rank == 4


def test_removing_waits_for_the_items_of_an_adapter(server: Server, archive, thread) -> None:
    server.manager.install("one", archive=archive("a"))
    lease, adapter = server.ready("one")
    with pytest.raises(DeadlineExceeded):
        server.manager.remove("one", 0.0)
    server.use("one")
    removing = thread(server.manager.remove, "one", PATIENCE_S)

    def is_refused() -> bool:
        try:
            server.use("one")
        except AdapterNotFound:
            return True
        return False

    wait_until(is_refused)
    assert server.manager.info("one").tier == "cpu"
    with server.slots.hold([adapter]):
        pass
    assert removing.is_alive()
    lease.release()
    removing.join(PATIENCE_S)
    assert server.manager.infos() == []
    assert server.manager.status().device_slots == (None, None)


def test_the_operators_own_cannot_be_removed_and_stays_available(server: Server, saved) -> None:
    """Even if it is in use, the error is immediate."""
    shutil.copytree(saved["a"].folder, server.root / "own")
    lease, _ = server.ready("own")
    with pytest.raises(Conflict):
        server.manager.remove("own", 0.0)
    server.use("own")
    lease.release()
    assert server.tiers() == {"own": "cpu"}


# Damage


def test_a_damaged_adapter_fails_its_items(server: Server, archive) -> None:
    for name in "ab":
        server.manager.install(name, archive=archive(name), preload=False)
    damage(server, "a")
    for _ in range(2):
        lease = server.manager.acquire("a")
        assert isinstance(lease.ready.exception(PATIENCE_S), AdapterInvalid)
        lease.release()
        server.use("b", on_device=True)
    assert server.tiers() == {"a": "disk", "b": "device"}
    with pytest.raises(AdapterInvalid):
        server.manager.install("a")
    info, created = server.manager.install("a", archive=archive("a"))  # repairs it
    assert (info.tier, created) == ("cpu", False)
    server.use("a")


@pytest.mark.parametrize("name", [WEIGHTS_FILE, CONFIG_FILE, "manifest.json"])
def test_a_damaged_adapter_can_be_removed(server: Server, archive, name: str) -> None:
    for adapter_id in "ab":
        server.manager.install(adapter_id, archive=archive(adapter_id), preload=False)
    (server.cache / "base" / "adapters" / "a" / name).write_text("damaged")
    server.manager.remove("a", 0.0)
    assert os.listdir(server.cache / "base" / "adapters") == ["b"]
    with pytest.raises(AdapterNotFound):
        server.manager.info("a")


def test_an_adapter_of_another_model_is_not_listed(server: Server, saved, archive, caplog) -> None:
    server.manager.install("b", archive=archive("b"))
    shutil.copytree(saved["high"].folder, server.root / "a")
    with caplog.at_level(logging.WARNING, "gliner_bento.adapters"):
        assert list(server.tiers()) == ["b"]
    assert "adapter a is not listed" in caplog.text
    with pytest.raises(AdapterInvalid):
        server.manager.info("a")


# Starting again


def test_another_server_over_the_same_folders_serves_the_same(serve: Serve, server: Server, saved, archive) -> None:
    shutil.copytree(saved["c"].folder, server.root / "own")
    server.manager.install("a", archive=archive("a"), pinned=True)
    server.manager.install("b", archive=archive("b"))
    server.use("a", "b", "own", on_device=True)
    before = server.manager.infos()
    server.manager.close()
    again = serve()
    assert again.manager.infos() == [replace(info, tier="disk", uses=0, last_used=None) for info in before]
    again.use("a", "b", "own")
    assert len(again.manager.status().in_memory) == 3


def test_pinned_adapters_are_loaded_at_the_start(serve: Serve, server: Server, archive, caplog) -> None:
    for name in "abc":
        server.manager.install(name, archive=archive(name), pinned=name != "b")
    server.manager.install("d", archive=archive("a"), pinned=True)
    damage(server, "d")
    again = serve(adapter_loading_threads=1)
    with caplog.at_level(logging.WARNING, "gliner_bento.adapters"):
        again.manager.start()
        wait_until(lambda: "adapter d" in caplog.text)  # the last one
    assert again.manager.status().in_memory == ("a", "c")
    assert [info.uses for info in again.manager.infos()] == [0, 0, 0, 0]
    again.manager.remove("a", 0.0)  # it is not leased any more
    again.use("b")
    assert again.tiers() == {"b": "cpu", "c": "cpu", "d": "disk"}


def test_the_stores_folder_and_its_adapters_are_logged_at_the_start(
    serve: Serve, server: Server, saved, archive, caplog
) -> None:
    for name in "ab":
        server.manager.install(name, archive=archive(name))
    shutil.copytree(saved["c"].folder, server.root / "own")
    with caplog.at_level(logging.INFO, "gliner_bento.adapters"):
        serve().manager.start()
        serve(has_root=False).manager.start()
    assert caplog.messages == [
        f"adapters: 2 in {server.cache / 'base'}, 1 in {server.root} (adapter_root)",
        f"adapters: 2 in {server.cache / 'base'}",
    ]


def test_more_pinned_adapters_than_memory_do_not_fail_the_start(serve: Serve, server: Server, archive) -> None:
    for name in "abcdef":
        server.manager.install(name, archive=archive(name if name in "abc" else "a"), pinned=True)
    again = serve()
    again.manager.start()
    wait_until(lambda: len(again.manager.status().in_memory) == 3)
    again.use(*"abcdef", on_device=True)
    assert len(again.manager.status().in_memory) == 3


def test_after_closing_nothing_is_loaded(server: Server, archive) -> None:
    server.manager.install("a", archive=archive("a"))
    server.manager.close()
    with pytest.raises(NotReady):
        server.manager.acquire("a")
    assert [info.id for info in server.manager.infos()] == ["a"]
