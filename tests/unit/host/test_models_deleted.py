"""Models that are deleted while they load, and what is left of the archives of models."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from model_host import Host, added, answer, scene, states, states_now
from replica_calls import PATIENCE_S, arriving, run, until

from gliner_bento.commands import AddModel, ChangeModel, RemoveModel
from gliner_bento.errors import Aborted, Conflict, DeadlineExceeded, DoesNotFit, InvalidField, ModelFailed
from gliner_bento.host import probe
from gliner_bento.host.archives import ModelArchives
from gliner_bento.host.journal import ModelsJournal
from gliner_bento.model_types import UPLOADED
from gliner_bento.replicas.fleet.models import FleetModels
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def _ended(_: Any) -> None:
    """The fleet has none to end."""


def packed(host: Host) -> bytes:
    """An archive of the model a."""
    return Path(shutil.make_archive(str(host.folder / "sent"), "gztar", host.folder / "a")).read_bytes()


def stored(host: Host) -> list[str]:
    """The files of uploaded models."""
    files = [path.name for path in (host.folder / "models").rglob("*") if path.is_file()]
    return [name for name in files if name != ".owner" and not name.endswith(".lock")]


def test_an_archive_of_a_model_that_is_not_added_leaves_no_file(host: Host) -> None:
    models = host.models(own={"b": {"pinned": True}}, model_memory_fraction=0.2, max_model_bytes=2**20)
    content = packed(host)

    async def play() -> None:
        request = added("c", source=UPLOADED)
        with pytest.raises(DoesNotFit):
            await models.apply(AddModel(request, PATIENCE_S), arriving(content))
        broken_off = arriving(content[:20], error=Aborted("the client has gone"))
        with pytest.raises(Aborted):
            await models.apply(AddModel(request, PATIENCE_S), broken_off)
        with pytest.raises(InvalidField, match="no archive"):
            await models.apply(AddModel(request, PATIENCE_S))
        assert await states_now(models) == {"a": "ready", "b": "ready"}
        assert stored(host) == []
        await models.apply(ChangeModel("b", "unload", PATIENCE_S))
        assert (await models.apply(AddModel(request, PATIENCE_S), arriving(content))).state == "ready"
        assert stored(host) == ["gliner_config.json"]
        await models.apply(RemoveModel("c", PATIENCE_S))
        assert stored(host) == []

    scene(models, play)


def test_a_model_that_loads_or_waits_to_load_is_deleted(host: Host) -> None:
    """Other models load meanwhile only if the process that tries the first one is ended."""
    tried = threading.Event()

    def hang(settings: Settings, limits: probe.ProbeLimits) -> None:
        host.probed.append(Path(settings.model).name)
        tried.set()
        if limits.cancelled.wait(PATIENCE_S):
            raise ModelFailed("ended")

    host.probe = hang  # type: ignore[method-assign]
    models = host.models("a")

    async def play() -> None:
        adding = [asyncio.ensure_future(models.apply(AddModel(added(name), PATIENCE_S))) for name in "bc"]
        await asyncio.to_thread(tried.wait, PATIENCE_S)
        assert await states_now(models) == {"a": "ready", "b": "loading", "c": "loading"}
        for name in "cb":
            await models.apply(RemoveModel(name, PATIENCE_S))
        for failed in adding:
            with pytest.raises(ModelFailed, match=r"ended|deleted"):
                await failed
        assert await states_now(models) == {"a": "ready"}
        assert host.probed == ["b"]

    scene(models, play)


def test_a_model_that_is_deleted_when_its_trial_ends_is_not_loaded(host: Host) -> None:
    models = host.models("a")

    async def play() -> None:
        tried, go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def held(settings: Settings, limits: probe.ProbeLimits) -> None:
            loop.call_soon_threadsafe(tried.set)
            assert go.wait(PATIENCE_S)

        host.probe = held  # type: ignore[method-assign]
        adding = asyncio.ensure_future(models.apply(AddModel(added("b"), PATIENCE_S)))
        await tried.wait()
        await models.apply(RemoveModel("b", PATIENCE_S))
        go.set()
        with pytest.raises(ModelFailed, match="b was deleted before it was loaded"):
            await adding
        await until(lambda: not models.loader._changing.locked())
        assert host.begun == ["a"]

    scene(models, play)


def test_a_model_whose_archive_arrives_or_that_unloads_is_not_deleted(host: Host) -> None:
    models, content = host.models("ab", max_model_bytes=2**20), packed(host)

    async def play() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            begun.set()
            await go.wait()
            yield content

        adding = asyncio.ensure_future(models.apply(AddModel(added("c", source=UPLOADED), PATIENCE_S), slow()))
        await begun.wait()
        with pytest.raises(Conflict, match="the archive of the model c is still arriving"):
            await models.apply(RemoveModel("c", PATIENCE_S))
        go.set()
        assert (await adding).state == "ready"

        host.batch_gate.clear()
        running = asyncio.ensure_future(answer(models, "b"))
        await until(lambda: models.row_of("b").running > 0)
        unloading = asyncio.ensure_future(models.apply(ChangeModel("b", "unload", PATIENCE_S)))
        await until(lambda: models.row_of("b").state == "unloading")
        with pytest.raises(Conflict, match="the model b is unloading"):
            await models.apply(RemoveModel("b", PATIENCE_S))
        host.batch_gate.set()
        await asyncio.gather(running, unloading)
        assert await states_now(models) == {"a": "ready", "b": "unloaded", "c": "ready"}

    scene(models, play)


@pytest.mark.parametrize("error", [None, RuntimeError("CUDA out of memory")])
def test_the_load_of_a_deleted_model_is_discarded_when_it_ends(host: Host, error: Exception | None) -> None:
    """Nobody waits for it, and its name is free before. The other runner does not know the model yet."""
    here, other = host.models("a", max_model_bytes=2**20), host.models("a", max_model_bytes=2**20, runner="other")
    models = FleetModels({"here": here, "other": other}, {}, here.replica, _ended)
    content, request = packed(host), added("c", source=UPLOADED)

    async def play() -> None:
        host.gate.clear()
        adding = asyncio.ensure_future(models.apply(AddModel(request, PATIENCE_S), arriving(content)))
        await until(lambda: "c" in host.begun)
        await models.apply(RemoveModel("c", PATIENCE_S))
        with pytest.raises(ModelFailed, match="c was deleted before it was loaded"):
            await adding
        assert (await states_now(here), stored(host)) == ({"a": "ready"}, [])
        if error:
            host.errors["c"] = error
        with pytest.raises(DeadlineExceeded, match="still loading"):
            await here.apply(AddModel(request, 0.0), arriving(content))
        assert host.loads == ["a", "a"]  # the first load has not ended
        host.gate.set()
        await until(lambda: host.begun == ["a", "a", "c", "c"] and not here.loader._changing.locked())
        if error:
            assert await states_now(here) == {"a": "ready", "c": "unloaded"}
            assert here.row_of("c").failures == 0
            return
        assert await states_now(here) == {"a": "ready", "c": "ready"}
        assert here.row_of("c").replica is host.replicas[3]
        assert [one.ready for one in host.replicas] == [True, True, False, True]
        assert ModelsJournal(host.folder, "here").read().added.keys() == {"c"}
        await models.apply(RemoveModel("c", PATIENCE_S))
        assert stored(host) == []

    scene(here, play)
    for replica in other.loaded():
        replica.close()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from gliner_bento.host.archives import ModelArchives

async def whole():
    yield Path(sys.argv[2]).read_bytes()

async def half():
    yield bytes(2**20)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    archives = ModelArchives(Path(sys.argv[1]), 2**20)
    await archives.store("loading", whole())
    await archives.store("loaded", whole())
    await archives.store("arriving", half())

asyncio.run(main())
"""


def test_what_a_killed_runner_left_of_models_is_deleted_when_it_starts_again(host: Host) -> None:
    """Models that were loaded are kept, and what another runner is loading."""
    folder, content = host.folder / "models", packed(host)

    another = ModelArchives(folder, 2**20)
    run(lambda: another.store("of-another", arriving(content)))
    program = [sys.executable, "-c", KILLED, folder, host.folder / "sent.tar.gz"]
    assert subprocess.run(program, cwd=PROJECT_ROOT, check=False).returncode == -signal.SIGKILL
    ModelsJournal(host.folder, "runner").note_loaded("loaded", added("loaded", source=UPLOADED).model_dump())
    assert {path.name for path in folder.glob("model-*")} == {"model-loading", "model-loaded", "model-of-another"}
    assert len(list(folder.glob("uploads/*"))) == 1
    models = host.models("a", max_model_bytes=2**20)
    assert states(models) == {"a": "ready", "loaded": "ready"}
    assert {path.name for path in folder.glob("model-*")} == {"model-loaded", "model-of-another"}
    assert list(folder.glob("uploads/*")) == []
    for replica in models.loaded():
        replica.close()
