"""What a gateway knows of its models: no older than what it, or a request, knows already."""

from __future__ import annotations

import asyncio

import pytest
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS

from gliner_bento.commands import ChangeModel, RemoveModel
from gliner_bento.errors import ModelNotFound
from gliner_bento.gateway.models import ModelTable
from gliner_bento.model_types import AddModelRequest, ModelRow
from gliner_bento.replicas.fleet.models import FleetModels


class Models:
    """Rows that arrive when `arrive` is set, as they were when they were asked for. reads: how often they were."""

    def __init__(self) -> None:
        self.now = {name: ModelRow(name=name, state="ready") for name in ("a", "b")}
        self.arrive = asyncio.Event()
        self.arrive.set()
        self.reads = 0

    async def rows(self):
        self.reads += 1
        rows = list(self.now.values())
        await self.arrive.wait()
        return rows

    async def apply(self, command, archive=None):
        if isinstance(command, RemoveModel):
            del self.now[command.name]
            return None
        unloads = isinstance(command, ChangeModel) and command.action == "unload"
        name = command.name if isinstance(command, ChangeModel) else command.request.name
        self.now[name] = ModelRow(name=name, state="unloaded" if unloads else "ready")
        return self.now[name]

    def replica(self, name):
        return MemoryReplica()

    def forget(self, name):
        pass


def table_of(models: Models) -> ModelTable:
    return ModelTable({name: MemoryReplica() for name in ("a", "b")}, OPTIONS, models)


def test_models_may_change_while_all_are_looked_at():
    """As by a list of models, and by `/readyz`, which await the state of each."""

    async def scene():
        models = Models()
        table, seen = table_of(models), []
        for served in table:
            seen.append(served.name)
            models.now = {
                "a": models.now["a"],
                "c": ModelRow(name="c", state="ready"),
                "d": ModelRow(name="d", state="ready"),
            }
            await table.refresh()
        assert seen == ["a", "b"]

    asyncio.run(scene())


@pytest.mark.parametrize("change", ["add", "load"])
def test_rows_that_were_on_their_way_when_a_model_was_added_or_loaded_do_not_hide_it(change: str):
    async def scene():
        models = Models()
        table = table_of(models)
        await table.change("b", "unload")
        models.arrive.clear()
        reading = asyncio.create_task(table.refresh())
        while models.reads < 2:
            await asyncio.sleep(0)
        name = "new" if change == "add" else "b"
        if change == "add":
            await table.add(AddModelRequest(name=name, source="x"))
        else:
            await table.change(name, "load")
        models.arrive.set()
        await reading
        assert (await table.find(name)).row.state == "ready"

    asyncio.run(scene())


def test_a_model_that_another_gateway_has_just_added_or_loaded_is_found():
    async def scene():
        models = Models()
        table, other = table_of(models), table_of(models)
        await table.change("b", "unload")
        await other.refresh()
        await table.change("b", "load")
        assert (await other.find("b")).row.state == "ready"
        await table.add(AddModelRequest(name="new", source="x"))
        assert (await other.find("new")).row.state == "ready"
        with pytest.raises(ModelNotFound):
            await other.find("none")

    asyncio.run(scene())


def test_each_gateway_ends_its_fleet_of_a_removed_model_and_makes_another_one_for_the_next():
    async def scene():
        runner, ended = Models(), []

        async def end(fleet):
            ended.append(fleet)

        def gateway() -> ModelTable:
            fleets = {name: MemoryReplica() for name in ("a", "b")}
            return ModelTable(fleets, OPTIONS, FleetModels({"runner": runner}, {**fleets}, runner.replica, end))

        table, other = gateway(), gateway()
        fleets = []
        for removed in range(1, 3):
            await table.add(AddModelRequest(name="new", source="x"))
            fleets += [(await one.find("new")).replica for one in (table, other)]
            await table.remove("new")
            await other.refresh()
            await asyncio.sleep(0)
            assert ended == fleets
            assert len({*map(id, fleets)}) == 2 * removed

    asyncio.run(scene())


def test_requests_for_an_unknown_model_share_their_readings():
    async def scene():
        models = Models()
        table = table_of(models)
        models.arrive.clear()
        finding = [asyncio.create_task(table.find("none")) for _ in range(100)]
        await asyncio.sleep(0)
        finding += [asyncio.create_task(table.find("none")) for _ in range(100)]
        await asyncio.sleep(0)
        models.arrive.set()
        errors = await asyncio.gather(*finding, return_exceptions=True)
        assert {type(error) for error in errors} == {ModelNotFound}
        assert models.reads <= 3

    asyncio.run(scene())
