"""PUT: an adapter is installed in all tiers, from an archive, a folder or the hub, or refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from managed_server import SAVED, Serve, Server
from peft_adapters import TEXT_ENCODER
from polling import PATIENCE_S

from gliner_bento.adapter_types import AdapterInfo
from gliner_bento.adapters import adapter as adapter_module
from gliner_bento.adapters import manager as manager_module
from gliner_bento.adapters import manifest as manifest_module
from gliner_bento.adapters.archive import CONFIG_FILE, WEIGHTS_FILE
from gliner_bento.errors import (
    AdapterInvalid,
    AdapterNotFound,
    Conflict,
    InvalidField,
    StorageFull,
    TooLarge,
)


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_an_archive_is_installed_and_reported(server: Server, saved, archive, kind: str) -> None:
    info, created = server.manager.install("one", archive=archive("b", kind))
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
    assert server.manager.install("one", archive=archive("b", kind)) == (info, False)


def test_a_folder_below_the_operators_root_is_installed(server: Server, saved) -> None:
    shutil.copytree(saved["a"].folder, server.root / "teams" / "a")
    info, created = server.manager.install("one", source="teams/a")
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
        server.manager.install("own", archive=archive("b"))
    shutil.rmtree(server.root / "own")
    shutil.copytree(saved["b"].folder, server.root / "own")
    assert (server.manager.info("own").rank, server.manager.info("own").tier) == (3, "disk")
    lease, adapter = server.ready("own")
    assert adapter.rank == 3
    lease.release()


def test_options_without_a_source_change_an_installed_adapter(server: Server, archive) -> None:
    with pytest.raises(AdapterNotFound):
        server.manager.install("one", pinned=True)
    server.manager.install("one", archive=archive("a"), pinned=True)
    assert server.manager.info("one").pinned
    assert server.manager.install("one")[0].pinned
    for pinned in (False, True):
        info, created = server.manager.install("one", pinned=pinned)
        assert (info.pinned, created) == (pinned, False)
    assert server.manager.install("one", archive=archive("a"))[0].pinned


def test_without_preloading_it_stays_on_disk_until_its_first_use(server: Server, archive) -> None:
    info, created = server.manager.install("one", archive=archive("a"), preload=False)
    assert (info.tier, created) == ("disk", True)
    assert server.manager.install("one", preload=False)[0].tier == "disk"
    assert server.manager.install("one")[0].tier == "cpu"


def test_preloading_waits_for_memory_with_a_timeout(server: Server, archive, monkeypatch) -> None:
    leases = []
    for name in "abc":
        server.manager.install(name, archive=archive(name))
        leases.append(server.ready(name)[0])
    monkeypatch.setattr(manager_module, "_PRELOAD_S", 0.0)
    info, created = server.manager.install("late", archive=archive("a"))
    assert (info.tier, created) == ("disk", True)
    leases[0].release()
    assert server.tiers() == {"a": "cpu", "b": "cpu", "c": "cpu", "late": "disk"}
    server.use("late")
    assert server.tiers() == {"a": "disk", "b": "cpu", "c": "cpu", "late": "cpu"}


@pytest.mark.parametrize("name", ["nan", "high"])
def test_a_refused_adapter_changes_nothing(server: Server, archive, name: str) -> None:
    with pytest.raises(AdapterInvalid):
        server.manager.install("new", archive=archive(name), pinned=True)
    before, _ = server.manager.install("old", archive=archive("a"))
    with pytest.raises(AdapterInvalid):
        server.manager.install("old", archive=archive(name), pinned=True)
    with pytest.raises(Conflict):
        server.manager.install("old", archive=archive("b"), pinned=True)
    assert server.manager.infos() == [before]
    assert os.listdir(server.cache / "base" / "adapters") == ["old"]
    server.use("old")


def test_a_replaced_adapter_serves_new_requests_while_running_ones_finish_with_the_old(server: Server, archive) -> None:
    server.manager.install("one", archive=archive("a"))
    running, old = server.ready("one")
    info, created = server.manager.install("one", archive=archive("b"), replace=True)
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
        server.manager.install("new", archive=archive("a"))
    server = serve(max_disk_adapters=1)
    server.manager.install("one", archive=archive("a"))
    with pytest.raises(StorageFull):
        server.manager.install("two", archive=archive("a"))
    assert list(server.tiers()) == ["one"]


@pytest.mark.parametrize("adapter_id", ["", "a/b", "..", "__base__"])
def test_an_invalid_id_is_refused(server: Server, archive, adapter_id: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: server.manager.install(adapter_id, archive=archive("a")),
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
            server.manager.install("new", source=one)
        assert raised.value.param == "source"
    with pytest.raises(InvalidField):
        serve(has_root=False).manager.install("new", source="teams/a")
    assert list(server.tiers()) == ["link"]  # a link of the operator's, which may lead anywhere


def test_the_hub_is_used_if_it_is_allowed(serve: Serve, server: Server) -> None:
    with pytest.raises(InvalidField, match="allow_adapter_hub") as raised:
        server.manager.install("new", source="hub:one/name")
    assert raised.value.param == "source"
    with pytest.raises(AdapterNotFound, match="one/name@main"):  # tests are offline
        serve(allow_adapter_hub=True).manager.install("new", source="hub:one/name", revision="main")


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
    info, _ = server.manager.install("one", archive=archive("a"), preload=preload)
    assert info.tier == ("cpu" if preload else "disk")
    assert sorted(path.name for (path,) in hashed) == sorted([CONFIG_FILE, WEIGHTS_FILE])
    assert len(parsed) == 1
    server.use("one", on_device=True)
    assert len(parsed) == (1 if preload else 2)
    server.manager.install(
        "one", archive=archive("a")
    )  # is in memory: only checked, and compared with the files on disk
    assert len(parsed) == (2 if preload else 3)


def test_a_put_loads_from_disk_if_its_adapter_was_replaced(server: Server, archive, monkeypatch) -> None:
    """Another process deleted it and installed other content under its id, before it came into memory."""
    install = server.manager._store.install

    def install_and_be_replaced(*args: Any, **options: Any) -> Any:
        installed = install(*args, **options)
        monkeypatch.undo()
        server.manager.remove("one", 0.0)
        server.manager.install("one", archive=archive("b"), preload=False)
        return installed

    monkeypatch.setattr(server.manager._store, "install", install_and_be_replaced)
    server.manager.install("one", archive=archive("a"))
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
    info, created = server.manager.install("one", archive=archive("a"), **options)
    assert (info.id, info.rank, info.tier, created) == ("one", SAVED["a"]["r"], "disk", True)
    with pytest.raises(AdapterNotFound):
        server.manager.info("one")
    with pytest.raises(AdapterNotFound):
        server.manager.install("one", pinned=True)
