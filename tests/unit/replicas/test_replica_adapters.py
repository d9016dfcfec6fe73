"""The `Replica` contract: adapters. The same for every kind of replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

import pytest
from replica_calls import call, item, run, until
from serving import Serving

from gliner_bento.adapter_types import AdapterInfo
from gliner_bento.commands import (
    ChangeAdapter,
    FindAdapter,
    InstallAdapter,
    ListAdapters,
    ReadAdapterCache,
    RemoveAdapter,
)
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, Conflict, TooLarge
from gliner_bento.replicas.local.adapters import MAX_CONCURRENT_CHANGES

Start = Callable[..., Serving]

MIB = 2**20
ARCHIVE = bytes(range(256)) * 10 * 2**10  # 2.5 MiB


async def arriving(content: bytes, size: int = 100_000, error: BaseException | None = None) -> AsyncIterator[bytes]:
    """An archive in pieces, which breaks off with `error`."""
    for start in range(0, len(content), size):
        yield content[start : start + size]
    if error:
        raise error


def installed(serving: Serving, adapter_id: str, content: bytes | None, **options) -> tuple[AdapterInfo, bool]:
    async def scene():
        archive = None if content is None else arriving(content)
        return await serving.replica.apply(InstallAdapter(adapter_id, **options), archive)

    return run(scene)


def test_an_adapter_is_installed_listed_and_removed(serving: Serving):
    apply = serving.replica.apply
    assert list(run(lambda: apply(ListAdapters()))) == []
    info, created = installed(serving, "b", b"one")
    assert (type(info), info.id, info.bytes, list(info.targets), created) == (
        AdapterInfo,
        "b",
        3,
        ["query", "value"],
        True,
    )
    installed(serving, "a", b"two")
    assert run(lambda: apply(FindAdapter("b"))) == info
    assert [one.id for one in run(lambda: apply(ListAdapters()))] == ["a", "b"]
    assert run(lambda: apply(RemoveAdapter("b", 7.0))) is None
    assert [one.id for one in run(lambda: apply(ListAdapters()))] == ["a"]
    assert serving.manager.timeouts_s == [7.0]


def test_installing_is_idempotent(serving: Serving):
    first, _ = installed(serving, "a", b"one")
    assert installed(serving, "a", b"one") == (first, False)
    with pytest.raises(Conflict, match="another adapter has this id"):
        installed(serving, "a", b"other")


@pytest.mark.parametrize("size", [1000, 100_000, MIB, 10 * MIB])
def test_an_archive_arrives_whole_whatever_its_pieces(serving: Serving, size: int):
    async def scene():
        return await serving.replica.apply(InstallAdapter("a"), arriving(ARCHIVE, size))

    assert run(scene)[1] is True
    assert serving.manager.contents["a"] == ARCHIVE
    assert serving.uploaded() == []


def test_archives_that_arrive_concurrently_are_kept_apart(serving: Serving):
    async def scene():
        contents = {str(number): bytes([number]) * MIB for number in range(8)}
        await asyncio.gather(
            *(serving.replica.apply(InstallAdapter(name), arriving(one)) for name, one in contents.items())
        )
        return contents

    assert run(scene) == serving.manager.contents


def test_the_options_reach_the_adapters(serving: Serving):
    installed(serving, "a", b"one", pinned=True, preload=False)
    installed(serving, "b", None, source="hub:o/n", revision="v1")
    installed(serving, "a", None, pinned=False)
    installed(serving, "a", b"other", replace=True)
    absent = {"source": None, "revision": None, "pinned": None, "preload": True, "replace": False}
    assert serving.manager.changes == [
        absent | {"adapter_id": "a", "uploaded": True, "pinned": True, "preload": False},
        absent | {"adapter_id": "b", "uploaded": False, "source": "hub:o/n", "revision": "v1"},
        absent | {"adapter_id": "a", "uploaded": False, "pinned": False},
        absent | {"adapter_id": "a", "uploaded": True, "replace": True},
    ]


def test_an_archive_without_bytes_is_none(serving: Serving):
    with pytest.raises(AdapterNotFound):
        installed(serving, "a", b"")
    assert serving.manager.changes[0]["uploaded"] is False
    assert serving.uploaded() == []


def test_a_refused_archive_leaves_no_file(serving: Serving):
    with pytest.raises(AdapterInvalid, match="this is none") as caught:
        installed(serving, "a", b"bad")
    assert caught.value.param == "adapter"
    assert serving.uploaded() == []


@pytest.mark.parametrize("content", [b"", b"one", ARCHIVE], ids=["immediately", "early", "late"])
@pytest.mark.parametrize("error", [TooLarge("the body has too many bytes"), OSError("the connection")], ids=repr)
def test_an_archive_that_breaks_off_leaves_no_file_and_changes_nothing(serving: Serving, content, error):
    async def scene():
        await serving.replica.apply(InstallAdapter("a"), arriving(content, error=error))

    with pytest.raises(type(error), match=str(error)):
        run(scene)
    run(lambda: until(lambda: serving.uploaded() == []))
    assert serving.manager.changes == []


def test_an_installation_that_is_cancelled_while_its_archive_arrives_leaves_no_file(serving: Serving):
    async def scene():
        arrived, never = asyncio.Event(), asyncio.Event()

        async def archive():
            yield ARCHIVE
            arrived.set()
            await never.wait()

        installing = asyncio.ensure_future(serving.replica.apply(InstallAdapter("a"), archive()))
        await arrived.wait()
        installing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await installing

    run(scene)
    run(lambda: until(lambda: serving.uploaded() == []))
    assert serving.manager.changes == []


def test_an_installation_that_is_cancelled_before_its_turn_leaves_no_file(serving: Serving):
    serving.manager.proceed.clear()

    async def scene():
        hanging = [asyncio.ensure_future(_install(serving, str(number))) for number in range(MAX_CONCURRENT_CHANGES)]
        await until(lambda: len(serving.manager.begun) == MAX_CONCURRENT_CHANGES)
        late = asyncio.ensure_future(_install(serving, "late"))
        await until(lambda: len(serving.uploaded()) != MAX_CONCURRENT_CHANGES)
        await asyncio.sleep(0.05)  # until it waits for its turn
        late.cancel()
        with pytest.raises(serving.cancelled):
            await late
        serving.manager.proceed.set()
        await asyncio.gather(*hanging)

    run(scene)
    run(lambda: until(lambda: serving.uploaded() == []))


async def _install(serving: Serving, adapter_id: str) -> None:
    await serving.replica.apply(InstallAdapter(adapter_id), arriving(b"one"))


def test_changes_that_hang_hold_up_no_other_call(serving: Serving):
    installed(serving, "a", b"one")
    serving.manager.proceed.clear()
    serving.release()
    apply = serving.replica.apply

    async def scene():
        hanging = [asyncio.ensure_future(apply(RemoveAdapter("a", 7.0))) for _ in range(MAX_CONCURRENT_CHANGES + 1)]
        await until(lambda: len(serving.manager.timeouts_s) >= MAX_CONCURRENT_CHANGES)
        answers = [await apply(command) for command in (ListAdapters(), FindAdapter("a"), ReadAdapterCache())]
        assert (await serving.replica.status()).ready
        assert (await serving.replica.extract([item()], call()))[0].entities
        assert not any(one.done() for one in hanging)
        serving.manager.proceed.set()
        return answers, await asyncio.gather(*hanging, return_exceptions=True)

    answers, removed = run(scene)
    assert all(answers)
    assert sorted(type(one).__name__ for one in removed) == ["AdapterNotFound"] * MAX_CONCURRENT_CHANGES + ["NoneType"]
    assert serving.manager.timeouts_s == [7.0] * (MAX_CONCURRENT_CHANGES + 1)


def test_the_status_of_the_cache_is_that_of_the_adapters(serving: Serving):
    for adapter_id in ("b", "a", "c"):
        installed(serving, adapter_id, b"one")
    status = run(lambda: serving.replica.apply(ReadAdapterCache()))
    assert (list(status.in_memory), list(status.on_disk)) == (["b", "a"], ["b", "a", "c"])
    assert (list(status.device_slots), status.disk_cache_dir, status.max_disk_adapters) == (["b", None], "cache", 9)
    assert list(run(serving.replica.status).resident_adapters) == ["b", "a"]


def test_items_use_an_adapter_once_it_is_installed(serving: Serving):
    serving.release()
    requested = item(adapter_id="a")
    (before,) = run(lambda: serving.replica.extract([requested], call()))
    installed(serving, "a", b"one")
    (after,) = run(lambda: serving.replica.extract([requested], call()))
    assert (type(before), len(after.entities)) == (AdapterNotFound, 2)


def test_an_adapter_that_does_not_exist_is_named(serving: Serving):
    apply = serving.replica.apply
    changes = (InstallAdapter("a", pinned=True), ChangeAdapter("a"), ChangeAdapter("a", pinned=True, preload=False))
    for command in (FindAdapter("a"), RemoveAdapter("a", 1.0), *changes):
        with pytest.raises(AdapterNotFound, match="no adapter 'a'") as caught:
            run(partial(apply, command))
        assert caught.value.param == "adapter_id"


@pytest.mark.parametrize(
    "command",
    [
        ListAdapters(),
        FindAdapter("a"),
        ReadAdapterCache(),
        InstallAdapter("a"),
        InstallAdapter("a", source="x"),
        ChangeAdapter("a"),
        RemoveAdapter("a", 1.0),
    ],
    ids=str,
)
def test_where_adapters_are_not_enabled_there_is_none(start: Start, command):
    serving = start(manager=None)
    archive = arriving(ARCHIVE) if command == InstallAdapter("a") else None
    with pytest.raises(AdapterNotFound, match="enable_lora"):
        run(lambda: serving.replica.apply(command, archive))
    assert serving.uploaded() == []
    assert list(run(serving.replica.status).resident_adapters) == []


def test_an_installed_adapter_is_pinned_unpinned_and_loaded(serving: Serving):
    info, _ = installed(serving, "a", b"one")
    for command in (ChangeAdapter("a", pinned=True, preload=False), ChangeAdapter("a"), ChangeAdapter("a", False)):
        changed = run(partial(serving.replica.apply, command))
        assert changed == replace(info, pinned=command.pinned is not False)
    wanted = [(True, False), (None, True), (False, True)]
    assert [(change["pinned"], change["preload"]) for change in serving.manager.changes[1:]] == wanted
