"""All tiers together: adapters are used, listed, evicted and removed, on disk, in memory and in slots."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import torch
from managed_server import LAYER, SAVED, Serve, Server, damage
from peft_adapters import TEXT_ENCODER
from waiting import PATIENCE_S, wait_until

from gliner_bento.adapter_types import AdapterInfo
from gliner_bento.adapters import adapter as adapter_module
from gliner_bento.adapters import manager as manager_module
from gliner_bento.adapters import manifest as manifest_module
from gliner_bento.adapters.archive import CONFIG_FILE, WEIGHTS_FILE
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.errors import (
    AdapterInvalid,
    AdapterNotFound,
    Conflict,
    DeadlineExceeded,
    InvalidField,
    NotReady,
    StorageFull,
    TooLarge,
)

# Tiers


def test_an_adapter_moves_from_disk_to_memory_to_a_slot_and_back(server: Server, archive) -> None:
    for name in "abc":
        server.install(name, archive=archive(name), preload=False)
    server.install("d", archive=archive("a"), preload=False)
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
        server.install(name, archive=archive(name))
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
        server.install(name, archive=archive(name))
    assert server.tiers() == {"a": "cpu", "b": "cpu"}


def test_pinned_adapters_are_evicted_last(server: Server, archive) -> None:
    for name in "abc":
        server.install(name, archive=archive(name), pinned=name == "a")
    server.install("d", archive=archive("a"))
    assert server.tiers() == {"a": "cpu", "b": "disk", "c": "cpu", "d": "cpu"}
    server.use("a", "c", on_device=True)
    server.use("d", on_device=True)
    assert server.tiers() == {"a": "device", "b": "disk", "c": "cpu", "d": "device"}
    server.install("a", pinned=False)
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
        server.install(name, archive=archive(name))
    server.install("d", archive=archive("a"), preload=False)
    assert (tally.loads, tally.evictions) == (["completed"] * 3, 0)
    damage(server, "d")
    with pytest.raises(AdapterInvalid):
        server.install("d")
    assert (tally.loads, tally.evictions) == ([*["completed"] * 3, "failed"], 1)
    server.manager.remove("b", 0.0)
    server.manager.remove("d", 0.0)
    assert tally.evictions == 2


def test_uses_are_reported(server: Server, archive) -> None:
    server.install("one", archive=archive("a"))
    server.install("one")
    before_s = time.time()
    server.use("one", "one")
    info = server.manager.info("one")
    assert info.uses == 2
    assert info.last_used is not None
    last_used_s = datetime.fromisoformat(info.last_used.replace("Z", "+00:00")).timestamp()
    assert before_s - 0.001 <= last_used_s <= time.time()
    server.manager.remove("one", 0.0)
    server.install("one", archive=archive("a"))
    assert (server.manager.info("one").uses, server.manager.info("one").last_used) == (0, None)


# Removing


def test_a_removed_adapter_is_in_no_tier(server: Server, archive) -> None:
    for name in "ab":
        server.install(name, archive=archive(name))
        server.use(name, on_device=True)
    server.manager.remove("a", 0.0)
    status = server.manager.status()
    assert (status.in_memory, status.on_disk, status.device_slots) == (("b",), ("b",), (None, "b"))
    assert os.listdir(server.cache / "base" / "adapters") == ["b"]
    for call in (server.manager.info, server.manager.acquire, lambda name: server.manager.remove(name, 0.0)):
        with pytest.raises(AdapterNotFound):
            call("a")
    info, created = server.install("a", archive=archive("c"))
    assert (info.rank, created) == (4, True)
    assert server.ready("a")[1].rank == 4


def test_removing_waits_for_the_items_of_an_adapter(server: Server, archive, thread) -> None:
    server.install("one", archive=archive("a"))
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
        server.install(name, archive=archive(name), preload=False)
    damage(server, "a")
    for _ in range(2):
        lease = server.manager.acquire("a")
        assert isinstance(lease.ready.exception(PATIENCE_S), AdapterInvalid)
        lease.release()
        server.use("b", on_device=True)
    assert server.tiers() == {"a": "disk", "b": "device"}
    with pytest.raises(AdapterInvalid):
        server.install("a")
    info, created = server.install("a", archive=archive("a"))  # repairs it
    assert (info.tier, created) == ("cpu", False)
    server.use("a")


@pytest.mark.parametrize("name", [WEIGHTS_FILE, CONFIG_FILE, "manifest.json"])
def test_a_damaged_adapter_can_be_removed(server: Server, archive, name: str) -> None:
    for adapter_id in "ab":
        server.install(adapter_id, archive=archive(adapter_id), preload=False)
    (server.cache / "base" / "adapters" / "a" / name).write_text("damaged")
    server.manager.remove("a", 0.0)
    assert os.listdir(server.cache / "base" / "adapters") == ["b"]
    with pytest.raises(AdapterNotFound):
        server.manager.info("a")


def test_an_adapter_of_another_model_is_not_listed(server: Server, saved, archive, caplog) -> None:
    server.install("b", archive=archive("b"))
    shutil.copytree(saved["high"].folder, server.root / "a")
    with caplog.at_level(logging.WARNING, "gliner_bento.adapters"):
        assert list(server.tiers()) == ["b"]
    assert "adapter a is not listed" in caplog.text
    with pytest.raises(AdapterInvalid):
        server.manager.info("a")


# Starting again


def test_another_server_over_the_same_folders_serves_the_same(serve: Serve, server: Server, saved, archive) -> None:
    shutil.copytree(saved["c"].folder, server.root / "own")
    server.install("a", archive=archive("a"), pinned=True)
    server.install("b", archive=archive("b"))
    server.use("a", "b", "own", on_device=True)
    before = server.manager.infos()
    server.manager.close()
    again = serve()
    assert again.manager.infos() == [replace(info, tier="disk", uses=0, last_used=None) for info in before]
    again.use("a", "b", "own")
    assert len(again.manager.status().in_memory) == 3


def test_pinned_adapters_are_loaded_at_the_start(serve: Serve, server: Server, archive, caplog) -> None:
    for name in "abc":
        server.install(name, archive=archive(name), pinned=name != "b")
    server.install("d", archive=archive("a"), pinned=True)
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
        server.install(name, archive=archive(name))
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
        server.install(name, archive=archive(name if name in "abc" else "a"), pinned=True)
    again = serve()
    again.manager.start()
    wait_until(lambda: len(again.manager.status().in_memory) == 3)
    again.use(*"abcdef", on_device=True)
    assert len(again.manager.status().in_memory) == 3


def test_after_closing_nothing_is_loaded(server: Server, archive) -> None:
    server.install("a", archive=archive("a"))
    server.manager.close()
    with pytest.raises(NotReady):
        server.manager.acquire("a")
    assert [info.id for info in server.manager.infos()] == ["a"]


# PUT: an adapter is installed in all tiers, from an archive, a folder or the hub, or refused


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_an_archive_is_installed_and_reported(server: Server, saved, archive, kind: str) -> None:
    info, created = server.install("one", archive=archive("b", kind))
    folder = server.cache / "base" / "adapters" / "one"
    assert created
    assert info == AdapterInfo(
        id="one",
        source="upload",
        rank=3,
        targets=tuple(sorted(f"{TEXT_ENCODER}{name}" for name in saved["b"].deltas())),
        bytes=sum((folder / name).stat().st_size for name in (CONFIG_FILE, WEIGHTS_FILE)),
        tier="cpu",
        pinned=False,
        uses=0,
        last_used=None,
    )
    assert len(info.targets) == 4
    assert (folder / WEIGHTS_FILE).read_bytes() == (saved["b"].folder / WEIGHTS_FILE).read_bytes()
    assert server.manager.info("one") == info
    assert server.manager.infos() == [info]
    assert server.install("one", archive=archive("b", kind)) == (info, False)


def test_a_folder_below_the_operators_root_is_installed(server: Server, saved) -> None:
    shutil.copytree(saved["a"].folder, server.root / "teams" / "a")
    info, created = server.install("one", source="teams/a")
    shutil.rmtree(server.root / "teams")
    assert (info.source, info.tier, created) == ("folder", "cpu", True)
    assert (server.cache / "base" / "adapters" / "one" / WEIGHTS_FILE).exists()
    server.use("one")


def test_the_operators_own_are_served_as_they_are(server: Server, saved, archive) -> None:
    shutil.copytree(saved["a"].folder, server.root / "own")
    info = server.manager.info("own")
    assert (info.source, info.tier, info.rank) == ("folder", "disk", 2)
    server.use("own")
    assert server.tiers() == {"own": "cpu"}
    with pytest.raises(Conflict):
        server.install("own", archive=archive("b"))
    shutil.rmtree(server.root / "own")
    shutil.copytree(saved["b"].folder, server.root / "own")
    assert (server.manager.info("own").rank, server.manager.info("own").tier) == (3, "disk")
    lease, adapter = server.ready("own")
    assert adapter.rank == 3
    lease.release()


def test_options_without_a_source_change_an_installed_adapter(server: Server, archive) -> None:
    with pytest.raises(AdapterNotFound):
        server.install("one", pinned=True)
    server.install("one", archive=archive("a"), pinned=True)
    assert server.manager.info("one").pinned
    assert server.install("one")[0].pinned
    for pinned in (False, True):
        info, created = server.install("one", pinned=pinned)
        assert (info.pinned, created) == (pinned, False)
    assert server.install("one", archive=archive("a"))[0].pinned


def test_without_preloading_it_stays_on_disk_until_its_first_use(server: Server, archive) -> None:
    info, created = server.install("one", archive=archive("a"), preload=False)
    assert (info.tier, created) == ("disk", True)
    assert server.install("one", preload=False)[0].tier == "disk"
    assert server.install("one")[0].tier == "cpu"


def test_preloading_waits_for_memory_with_a_timeout(server: Server, archive, monkeypatch) -> None:
    leases = []
    for name in "abc":
        server.install(name, archive=archive(name))
        leases.append(server.ready(name)[0])
    monkeypatch.setattr(manager_module, "_PRELOAD_TIMEOUT_S", 0.0)
    info, created = server.install("late", archive=archive("a"))
    assert (info.tier, created) == ("disk", True)
    leases[0].release()
    assert server.tiers() == {"a": "cpu", "b": "cpu", "c": "cpu", "late": "disk"}
    server.use("late")
    assert server.tiers() == {"a": "disk", "b": "cpu", "c": "cpu", "late": "cpu"}


@pytest.mark.parametrize("name", ["nan", "high"])
def test_a_refused_adapter_changes_nothing(server: Server, archive, name: str) -> None:
    with pytest.raises(AdapterInvalid):
        server.install("new", archive=archive(name), pinned=True)
    before, _ = server.install("old", archive=archive("a"))
    with pytest.raises(AdapterInvalid):
        server.install("old", archive=archive(name), pinned=True)
    with pytest.raises(Conflict):
        server.install("old", archive=archive("b"), pinned=True)
    assert server.manager.infos() == [before]
    assert os.listdir(server.cache / "base" / "adapters") == ["old"]
    server.use("old")


def test_a_replaced_adapter_serves_new_requests_while_running_ones_finish_with_the_old(server: Server, archive) -> None:
    server.install("one", archive=archive("a"))
    running, old = server.ready("one")
    info, created = server.install("one", archive=archive("b"), replace=True)
    assert (info.rank, info.tier, created) == (3, "cpu", False)
    new = server.manager.acquire("one")
    assert (running.ready.result(), new.ready.result(PATIENCE_S).rank) == (old, 3)
    assert old.rank == 2
    running.release()
    new.release()
    server.manager.remove("one", 0.0)
    assert server.manager.infos() == []
    assert server.manager.status().in_memory == ()


def test_an_adapter_that_is_too_large_is_refused(serve: Serve, archive) -> None:
    server = serve(max_adapter_bytes=1000)
    with pytest.raises(TooLarge):
        server.install("new", archive=archive("a"))
    server = serve(max_disk_adapters=1)
    server.install("one", archive=archive("a"))
    with pytest.raises(StorageFull):
        server.install("two", archive=archive("a"))
    assert list(server.tiers()) == ["one"]


@pytest.mark.parametrize("adapter_id", ["", "a/b", "..", "__base__"])
def test_an_invalid_id_is_refused(server: Server, archive, adapter_id: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: server.install(adapter_id, archive=archive("a")),
        lambda: server.manager.info(adapter_id),
        lambda: server.manager.acquire(adapter_id),
        lambda: server.manager.remove(adapter_id, 0.0),
    ]
    for call in calls:
        with pytest.raises(InvalidField):
            call()


@pytest.mark.parametrize(
    "source",
    ["", ".", "..", "../outside", "link", "teams/../..", "file", "none", "teams/a/none", "a\0b", "x" * 999, "\ud800"],
)
def test_a_source_outside_the_operators_root_is_refused(serve: Serve, server: Server, saved, source: str) -> None:
    outside = shutil.copytree(saved["a"].folder, server.root.parent / "outside")
    shutil.copytree(saved["a"].folder, server.root / "teams" / "a")
    shutil.copytree(saved["a"].folder, server.root, dirs_exist_ok=True)
    (server.root / "link").symlink_to(outside)
    (server.root / "file").write_text("")
    for one in (source, str(outside)):
        with pytest.raises(InvalidField, match="source: no folder") as raised:
            server.install("new", source=one)
        assert raised.value.param == "source"
    with pytest.raises(InvalidField):
        serve(has_root=False).install("new", source="teams/a")
    assert list(server.tiers()) == ["link"]  # a link of the operator's, which may lead anywhere


def test_the_hub_is_used_if_it_is_allowed(serve: Serve, server: Server) -> None:
    with pytest.raises(InvalidField, match="allow_adapter_hub") as raised:
        server.install("new", source="hub:one/name")
    assert raised.value.param == "source"
    with pytest.raises(AdapterNotFound, match="one/name@main"):  # tests are offline
        serve(allow_adapter_hub=True).install("new", source="hub:one/name", revision="main")


def counting(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a module's function, which works as before."""
    calls: list[tuple[Any, ...]] = []
    function = getattr(module, name)

    def counted(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    monkeypatch.setattr(module, name, counted)
    return calls


@pytest.mark.parametrize("preload", [True, False])
def test_a_put_hashes_each_file_once_and_parses_the_tensors_once(
    server: Server, archive, monkeypatch: pytest.MonkeyPatch, preload: bool
) -> None:
    parsed, hashed = (
        counting(monkeypatch, adapter_module, "deserialize"),
        counting(monkeypatch, manifest_module, "sha256"),
    )
    info, _ = server.install("one", archive=archive("a"), preload=preload)
    assert info.tier == ("cpu" if preload else "disk")
    assert sorted(path.name for (path,) in hashed) == sorted([CONFIG_FILE, WEIGHTS_FILE])
    assert len(parsed) == 1
    server.use("one", on_device=True)
    assert len(parsed) == (1 if preload else 2)
    server.install("one", archive=archive("a"))  # is in memory: only checked, and compared with the files on disk
    assert len(parsed) == (2 if preload else 3)


def test_a_put_loads_from_disk_if_its_adapter_was_replaced(server: Server, archive, monkeypatch) -> None:
    """Another process deleted it and installed other content under its id, before it came into memory."""
    install = server.manager._store.install

    def install_and_be_replaced(*args: Any, **options: Any) -> Any:
        installed = install(*args, **options)
        monkeypatch.undo()
        server.manager.remove("one", 0.0)
        server.install("one", archive=archive("b"), preload=False)
        return installed

    monkeypatch.setattr(server.manager._store, "install", install_and_be_replaced)
    server.install("one", archive=archive("a"))
    assert server.ready("one")[1].rank == SAVED["b"]["r"]


@pytest.mark.parametrize("options", [{}, {"preload": False}, {"pinned": True}])
def test_a_put_that_has_installed_succeeds_though_a_delete_follows_immediately(
    server: Server, archive, monkeypatch, options: dict[str, bool]
) -> None:
    install = server.manager._store.install

    def install_and_be_removed(*args: Any, **options: Any) -> Any:
        installed = install(*args, **options)
        server.manager.remove("one", 0.0)
        return installed

    monkeypatch.setattr(server.manager._store, "install", install_and_be_removed)
    info, created = server.install("one", archive=archive("a"), **options)
    assert (info.id, info.rank, info.tier, created) == ("one", SAVED["a"]["r"], "disk", True)
    with pytest.raises(AdapterNotFound):
        server.manager.info("one")
    with pytest.raises(AdapterNotFound):
        server.install("one", pinned=True)
