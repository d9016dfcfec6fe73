"""The adapters of a fleet: changed once, known to every replica."""

from __future__ import annotations

import asyncio

import pytest
from doubles.fake_time import run_fast
from doubles.memory_adapters import MemoryManager
from doubles.mortal_replica import MortalReplica
from mortal_fleet import call, item, started
from replica_calls import arriving

from gliner_bento.commands import FindAdapter, InstallAdapter, ReadAdapterCache, RemoveAdapter
from gliner_bento.errors import AdapterNotFound, NotReady, StorageUnavailable


def test_an_adapter_is_stored_once_and_loaded_everywhere():
    store = MemoryManager()
    one, other = MortalReplica(manager=store), MortalReplica(manager=store)

    async def scene():
        fleet = await started(one, other)
        return await fleet.apply(InstallAdapter("a"), arriving(b"one")), await fleet.apply(FindAdapter("a"))

    (info, created), seen = run_fast(scene)
    assert (info, created) == (seen, True)
    writing, loading = store.changes
    assert (writing["adapter_id"], loading["adapter_id"]) == ("a", "a")
    assert (writing["uploaded"], loading["uploaded"]) == (True, False)
    assert loading["preload"] is True


def test_a_replica_that_is_down_costs_no_change_of_an_adapter():
    store = MemoryManager()
    one, other = MortalReplica(manager=store), MortalReplica(manager=store)

    async def scene():
        fleet = await started(one, other)
        one.die()
        await asyncio.sleep(5)
        await fleet.apply(InstallAdapter("a"), arriving(b"one"))
        await fleet.apply(RemoveAdapter("a", 5.0))
        with pytest.raises(AdapterNotFound):
            await fleet.apply(RemoveAdapter("a", 5.0))

    run_fast(scene)
    assert len(store.changes) == 1
    assert len(store.timeouts_s) == 2


@pytest.mark.parametrize("preload", [True, False])
def test_an_adapter_that_a_replica_does_not_see_is_an_error(preload):
    async def scene():
        fleet = await started(*(MortalReplica(manager=MemoryManager()) for _ in range(2)))
        with pytest.raises(StorageUnavailable, match=r"^disk_cache_dir: not all replicas see this adapter"):
            await fleet.apply(InstallAdapter("a", preload=preload), arriving(b"one"))

    run_fast(scene)


def test_the_cache_is_that_of_the_replicas_that_answer():
    store = MemoryManager()
    one, other = MortalReplica(manager=store), MortalReplica(manager=store)

    async def scene():
        fleet = await started(one, other)
        await fleet.apply(InstallAdapter("a"), arriving(b"one"))

        async def lost(command, archive=None):
            raise NotReady("lost")

        one.apply = lost
        status = await fleet.apply(ReadAdapterCache())
        other.apply = lost
        with pytest.raises(NotReady):
            await fleet.apply(ReadAdapterCache())
        return status

    assert run_fast(scene).in_memory == ["a"]


def test_a_removal_reaches_every_replica_and_succeeds_where_one_does():
    stores = [MemoryManager(), MemoryManager()]

    async def scene():
        fleet = await started(*(MortalReplica(manager=store) for store in stores))
        stores[1].change("a", b"one")
        await fleet.apply(RemoveAdapter("a", 5.0))

    run_fast(scene)
    assert [store.timeouts_s for store in stores] == [[5.0], [5.0]]
    assert stores[1].contents == {}


def test_an_adapters_requests_stay_on_the_replica_that_has_it():
    one, other = MortalReplica(), MortalReplica(resident=["a"])

    async def scene():
        fleet = await started(one, other)
        for _ in range(4):
            await fleet.extract([item(adapter_id="a")], call())

    run_fast(scene)
    assert (len(one.calls), len(other.calls)) == (0, 4)
