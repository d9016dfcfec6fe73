"""Models that come and go while others serve: budget, eviction, failures, and what requests meanwhile get."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from model_host import WEIGHTS, Host, added, answer, scene, states, states_now
from pydantic import ValidationError
from replica_calls import PATIENCE_S, call, item, until

from gliner_bento.commands import AddModel, ChangeModel, ListAdapters, RemoveModel
from gliner_bento.errors import (
    Conflict,
    DeadlineExceeded,
    DoesNotFit,
    InvalidField,
    ModelFailed,
    ModelNotFound,
    ModelNotLoaded,
    NotReady,
    StartupError,
)
from gliner_bento.gateway.models import ModelTable
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.host import probe
from gliner_bento.host.journal import ModelsJournal
from gliner_bento.host.loader import Machine, without_folders
from gliner_bento.host.models import LocalModels
from gliner_bento.model_types import AddModelRequest
from gliner_bento.process.instances import by_model
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.fleet.models import FleetModels
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def hold_close(models: LocalModels, name: str) -> tuple[threading.Event, threading.Event]:
    """Let the closing of a model hang: an event that is set when it begins, and one to set for its end."""
    replica, begun, ends = models.row_of(name).replica, threading.Event(), threading.Event()
    assert replica
    close = replica.close

    def held(**options: Any) -> None:
        begun.set()
        assert ends.wait(PATIENCE_S)
        close(**options)

    replica.close = held  # type: ignore[method-assign]
    return begun, ends


def test_a_model_that_fails_at_the_start_is_reported_and_a_required_one_ends_it(host: Host, caplog: Any) -> None:
    """Clients do not learn where it is."""
    host.errors["b"] = StartupError(f"'{host.folder / 'b'}' has no weights")
    models = host.models()
    assert [(row.state, row.reason) for row in asyncio.run(models.rows())] == [
        ("ready", None),
        ("failed", "'b' has no weights"),
    ]
    assert f"the model b could not be loaded: '{host.folder / 'b'}' has no weights" in caplog.text
    for replica in models.loaded():
        replica.close()
    with pytest.raises(StartupError, match="no weights"):
        host.models(own={"b": {"required": True}})
    host.errors["a"] = StartupError("none")
    with pytest.raises(StartupError):
        host.models()


def test_a_model_is_added_changed_and_removed_while_others_serve(host: Host) -> None:
    models = host.models()

    async def play() -> None:
        row = await models.apply(AddModel(added("c", settings={"max_labels": 3}, pinned=True), PATIENCE_S))
        assert (row.state, row.pinned, row.bytes, row.limits["max_labels"]) == ("ready", True, WEIGHTS, 3)
        assert host.probed == ["c"]  # tried in another process first; those of the start are not
        assert (await answer(models, "c")).entities
        assert not (await models.apply(ChangeModel("c", "unpin", 1))).pinned
        assert (await models.apply(ChangeModel("c", "unload", PATIENCE_S))).state == "unloaded"
        with pytest.raises(ModelNotLoaded, match="c is unloaded"):
            await answer(models, "c")
        assert (await models.apply(ChangeModel("c", "load", PATIENCE_S))).state == "ready"
        assert host.probed == ["c"]  # it has run in this process
        await models.apply(RemoveModel("c", PATIENCE_S))
        with pytest.raises(ModelNotFound):
            await answer(models, "c")
        with pytest.raises(Conflict, match="default"):
            await models.apply(RemoveModel("a", 1))

    scene(models, play)


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (added("c", source="../c"), "source: no folder"),
        (added("c", source="c\0"), "source: no folder"),
        (added("c", source="c" * 300), "source: no folder"),
        (added("c", source="hub:owner/name"), "allow_model_hub"),
        (added("c", settings={"adapter_root": "/"}), "adapter_root can only be set where the server is started"),
        (added("c", settings={"port": 1}), "port: cannot be set for one model"),
        (added("c", settings={"dtype": "int4"}), "dtype"),
        (added("c", settings={"pinned": True}), "pinned is not a setting"),
    ],
)
def test_a_request_that_names_what_is_not_allowed_is_refused(host: Host, request_: AddModelRequest, match: str) -> None:
    models = host.models()

    async def play() -> None:
        with pytest.raises(InvalidField, match=match):
            await models.apply(AddModel(request_, PATIENCE_S))
        assert list(await states_now(models)) == ["a", "b"]

    scene(models, play)


def test_of_two_loads_of_one_name_one_wins(host: Host) -> None:
    models = host.models()

    async def play() -> None:
        host.gate.clear()
        first = asyncio.ensure_future(models.apply(AddModel(added("c"), PATIENCE_S)))
        await asyncio.sleep(0)
        for other in (AddModel(added("c"), 1), ChangeModel("c", "load", 1), ChangeModel("c", "unload", 1)):
            with pytest.raises(Conflict):
                await models.apply(other)
        with pytest.raises(DeadlineExceeded, match="still loading"):
            await models.apply(AddModel(added("d"), 0.0))
        host.gate.set()
        assert (await first).state == "ready"
        await until(lambda: _all_ready(models))
        assert sorted(map(str, host.loads)) == ["a", "b", "c", "d"]

    scene(models, play)


async def _all_ready(models: LocalModels) -> bool:
    return set((await states_now(models)).values()) == {"ready"}


def test_the_least_recently_used_idle_model_gives_way(host: Host) -> None:
    models = host.models("abc", max_loaded_models=3)

    async def play() -> None:
        for host.now_s, name in ((1.0, "b"), (2.0, "c"), (3.0, "a")):
            await answer(models, name)
        await models.apply(ChangeModel("b", "pin", 1))
        await models.apply(AddModel(added("d"), PATIENCE_S))
        assert await states_now(models) == {"a": "ready", "b": "ready", "c": "evicted", "d": "ready"}
        assert (await models.replica("c").status()).ready  # it admits items
        assert (await answer(models, "c")).entities  # and is loaded for them: d gives way
        assert (await states_now(models))["d"] == "evicted"

    scene(models, play)


def test_what_does_not_fit_is_refused_before_anything_is_disturbed(host: Host) -> None:
    models = host.models(model_memory_fraction=0.25)

    async def play() -> None:
        host.batch_gate.clear()
        busy = asyncio.ensure_future(answer(models, "b"))
        await until(lambda: bool(models.replica("b")._row.running))  # type: ignore[attr-defined]
        with pytest.raises(DoesNotFit, match="100 bytes wanted, 50 free"):
            await models.apply(AddModel(added("c"), PATIENCE_S))
        assert await states_now(models) == {"a": "ready", "b": "ready"}
        host.batch_gate.set()
        assert (await busy).entities
        await models.apply(AddModel(added("c"), PATIENCE_S))  # now b is idle
        assert await states_now(models) == {"a": "ready", "b": "evicted", "c": "ready"}

    scene(models, play)


def test_an_evicted_model_waits_or_is_refused(host: Host) -> None:
    models = host.models("abc", max_loaded_models=2, evicted_models="refuse")
    assert states(models) == {"a": "ready", "b": "evicted", "c": "ready"}

    async def play() -> None:
        with pytest.raises(ModelNotLoaded, match="loaded again"):
            await answer(models, "b")
        await until(
            lambda: (
                models.replica("b").tokens_run == 0
                and "b" in [row.name for row in models._rows.values() if row.replica]
            )
        )
        assert (await answer(models, "b")).entities

    scene(models, play)


def test_the_wait_for_an_evicted_model_ends_at_the_deadline(host: Host) -> None:
    models = host.models("abc", max_loaded_models=2)

    async def play() -> None:
        host.gate.clear()
        with pytest.raises(DeadlineExceeded):
            await answer(models, "b", timeout_s=0.0)
        host.gate.set()
        assert (await answer(models, "b")).entities

    scene(models, play)


def test_a_model_without_requests_is_evicted(host: Host) -> None:
    models = host.models("abc", own={"c": {"pinned": True}}, model_idle_unload_s=0.01)

    async def play() -> None:
        await models.rows()
        host.now_s = 1.0
        expected = {"a": "ready", "b": "evicted", "c": "ready"}

        async def swept() -> bool:
            return await states_now(models) == expected

        await until(swept)
        await until(
            lambda: bool(models.loader._sweeping and models.loader._sweeping.done())
        )  # no model is left to evict

    scene(models, play)


def test_unloading_waits_for_running_requests(host: Host) -> None:
    models = host.models()

    async def play() -> None:
        host.batch_gate.clear()
        running = [asyncio.ensure_future(answer(models, "b")) for _ in range(200)]
        await until(lambda: models.replica("b")._row.running == 200)  # type: ignore[attr-defined]
        with pytest.raises(DeadlineExceeded):
            await models.apply(ChangeModel("b", "unload", 0.0))
        unloading = asyncio.ensure_future(models.apply(ChangeModel("b", "unload", PATIENCE_S)))
        await asyncio.sleep(0)
        with pytest.raises(ModelNotLoaded):
            await answer(models, "b")
        host.batch_gate.set()
        assert (await unloading).state == "unloaded"
        assert all(one.entities for one in await asyncio.gather(*running))

    scene(models, play)


def test_a_model_that_is_unloaded_admits_the_requests_of_gateways_that_do_not_know(host: Host) -> None:
    models = host.models()
    models.loader._linger_s = 0.05

    async def play() -> None:
        host.batch_gate.clear()
        unloading = asyncio.ensure_future(models.apply(ChangeModel("b", "unload", PATIENCE_S)))
        while models.row_of("b").state != "unloading":
            await asyncio.sleep(0)
        running = [asyncio.ensure_future(answer(models, "b")) for _ in range(200)]  # in the same turn of the loop
        await asyncio.sleep(0.1)
        late = asyncio.ensure_future(answer(models, "b"))  # while others run
        await until(lambda: models.row_of("b").running == 201)
        host.batch_gate.set()
        assert (await unloading).state == "unloaded"
        assert all(one.entities for one in await asyncio.gather(*running, late))
        with pytest.raises(ModelNotLoaded):
            await answer(models, "b")

    scene(models, play)


def test_the_fleet_of_a_model_that_is_unloaded_suspects_nothing(host: Host, caplog: Any) -> None:
    models = host.models()

    async def play() -> None:
        fleet = Fleet({"runner": models.replica("b")}, FleetOptions(10_000, 100))
        for action, ready in (("load", True), ("unload", False), ("load", True)):
            await models.apply(ChangeModel("b", action, PATIENCE_S))
            assert (await fleet.status()).ready is ready
            states = [one.state for one in (await fleet.status()).replicas]
            assert states == ["ready" if ready else "not_ready"]
        await fleet.close()

    scene(models, play)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_request_right_after_a_load_is_answered_by_a_fleet_that_has_not_probed_since(host: Host) -> None:
    runners = {name: host.models(runner=name) for name in ("one", "other")}

    async def play() -> None:
        fleet = Fleet({name: models.replica("b") for name, models in runners.items()}, FleetOptions(10_000, 100))
        models = FleetModels(dict(runners), {"b": fleet}, runners["one"].replica, _ended)
        for _ in range(3):
            await models.apply(ChangeModel("b", "unload", PATIENCE_S))
            assert not (await fleet.status()).ready
            await models.apply(ChangeModel("b", "load", PATIENCE_S))
            assert [type(one).__name__ for one in await fleet.extract([item()], call())] == ["Extraction"]
        await fleet.close()

    scene(runners["one"], play)
    for replica in runners["other"].loaded():
        replica.close()


def test_a_model_that_fails_too_often_is_not_loaded_again(host: Host) -> None:
    models = host.models(max_load_failures=2)

    async def play() -> None:
        await models.apply(AddModel(added("c", load=False), PATIENCE_S))
        host.errors["c"] = RuntimeError("CUDA out of memory")
        with pytest.raises(DoesNotFit):
            await models.apply(ChangeModel("c", "load", PATIENCE_S))
        host.errors["c"] = StartupError("broken")
        for _ in range(2):
            with pytest.raises(ModelFailed, match="broken"):
                await models.apply(ChangeModel("c", "load", PATIENCE_S))
        loads = len(host.loads)
        with pytest.raises(ModelFailed, match="failed 2 times"):
            await models.apply(ChangeModel("c", "load", PATIENCE_S))
        assert len(host.loads) == loads
        assert (await answer(models, "b")).entities

    scene(models, play)


def test_the_next_process_has_the_models_of_the_last_and_tries_what_killed_it(host: Host) -> None:
    journal = ModelsJournal(host.folder, "runner")
    first = host.models("abd", {"d": {"pinned": True}})

    async def play() -> None:
        await first.apply(AddModel(added("c"), PATIENCE_S))
        await first.apply(ChangeModel("c", "pin", PATIENCE_S))
        await first.apply(ChangeModel("d", "unpin", PATIENCE_S))
        await first.apply(ChangeModel("a", "unload", PATIENCE_S))
        await first.apply(ChangeModel("b", "unload", PATIENCE_S))
        host.gate.clear()
        loading = [
            asyncio.ensure_future(one)
            for one in (
                first.apply(ChangeModel("b", "load", PATIENCE_S)),
                first.apply(AddModel(added("e", source="d"), PATIENCE_S)),
            )
        ]
        await until(lambda: bool(journal.failures().get("b")))
        killed = journal.read()
        host.gate.set()
        await asyncio.gather(*loading)
        with journal.changing() as noted:  # as if the process had died before
            noted.added, noted.unloaded, noted.failures = killed.added, {"a"}, killed.failures

    scene(first, play)
    host.probed.clear()
    host.probe_errors["b"] = ModelFailed("ended with signal 11")
    second = host.models("abd", {"d": {"pinned": True}})
    assert [name for name, row in second._rows.items() if row.pinned] == ["c"]
    assert states(second) == {"a": "unloaded", "b": "failed", "d": "ready", "c": "ready"}  # e was not loaded
    assert host.probed == ["b", "c"]
    for replica in second.loaded():
        replica.close()


def test_a_runner_that_was_away_has_the_models_that_the_others_were_given(host: Host) -> None:
    here, away = host.models(runner="here"), host.models(runner="away")
    for one in (here, away):
        one.loader.machine.probe = lambda settings, timeout_s: None

    class Away:
        """The other runner while it cannot be reached."""

        async def lost(self, *_: Any) -> None:
            raise NotReady("cannot be reached")

        apply = rows = lost

    async def play() -> None:
        members: dict[str, Any] = {"here": here, "away": Away()}
        fleet = FleetModels(members, {}, away.replica, _ended)
        assert (await fleet.apply(AddModel(added("c"), PATIENCE_S))).state == "ready"
        assert (await fleet.apply(ChangeModel("b", "unload", PATIENCE_S))).state == "unloaded"
        assert set(await states_now(away)) == {"a", "b"}
        with pytest.raises(ModelNotLoaded, match="c is loading"):
            await away.replica("c").apply(ListAdapters())  # its first call has it loaded
        assert (await answer(away, "c")).entities

    scene(here, play)
    third = host.models(runner="third")
    assert states(third) == {"a": "ready", "b": "unloaded", "c": "ready"}
    for replica in (*away.loaded(), *third.loaded()):
        replica.close()


def test_a_model_whose_folder_is_gone_is_not_served_again(host: Host, caplog: Any) -> None:
    first = host.models("a")

    async def play() -> None:
        await first.apply(AddModel(added("c"), PATIENCE_S))

    scene(first, play)
    (host.folder / "c").rename(host.folder / "moved")
    second = host.models("a")
    assert states(second) == {"a": "ready"}
    assert "the model c is not served any more" in caplog.text
    for replica in second.loaded():
        replica.close()


def test_the_only_model_of_a_server_has_the_name_of_its_checkpoint(host: Host) -> None:
    settings = Settings.load({"model": str(host.folder / "a"), "device": "cpu"})
    models = LocalModels(by_model(settings), settings, _machine(host, WEIGHTS))
    models.start()

    async def play() -> None:
        info = models.row_of(None).info
        assert info
        assert (await answer(models, info.model)).entities
        with pytest.raises(ModelNotFound):
            models.row_of("another")

    scene(models, play)


async def _ended(_: Any) -> None:
    """The fleet has none to end."""


def _machine(host: Host, weights: int) -> Machine:
    return Machine(host.load, weights=lambda _: weights, capacity=lambda _: 1000)


def test_models_of_one_checkpoint_share_its_weights(host: Host) -> None:
    given = {"models": f"x={host.folder / 'a'},y={host.folder / 'a'}", "model_root": host.folder, "device": "cpu"}
    settings = Settings.load(given)
    models = LocalModels(by_model(settings), settings, _machine(host, 900))
    models.start()  # 1800 bytes would not fit
    assert host.shared == [False, True]

    async def play() -> None:
        await models.apply(ChangeModel("x", "unload", PATIENCE_S))
        assert (await answer(models, "y")).entities

    scene(models, play)


def test_a_model_that_shares_its_weights_frees_none(host: Host) -> None:
    """To make room for c, x alone does not suffice: y has the same weights."""
    given = {"models": f"b={host.folder / 'b'},x={host.folder / 'a'},y={host.folder / 'a'}"}
    settings = Settings.load(given | {"model_root": host.folder, "device": "cpu", "model_memory_fraction": 0.25})
    models = LocalModels(by_model(settings), settings, _machine(host, WEIGHTS))
    models.start()
    models.loader.machine.probe = lambda one, timeout_s: None

    async def play() -> None:
        await models.apply(AddModel(added("c"), PATIENCE_S))
        assert await states_now(models) == {"b": "ready", "x": "evicted", "y": "evicted", "c": "ready"}

    scene(models, play)


def test_weights_that_a_load_shares_are_not_freed_meanwhile(host: Host) -> None:
    given = {"models": f"b={host.folder / 'b'},x={host.folder / 'a'},y={host.folder / 'a'}", "device": "cpu"}
    settings = Settings.load(given | {"model_root": host.folder})
    models = LocalModels(by_model(settings), settings, _machine(host, WEIGHTS))
    models.start()

    async def play() -> None:
        await models.apply(ChangeModel("y", "unload", PATIENCE_S))
        host.gate.clear()
        loading = asyncio.ensure_future(models.apply(ChangeModel("y", "load", PATIENCE_S)))
        await until(models.loader._changing.locked)
        unloading = asyncio.ensure_future(models.apply(ChangeModel("x", "unload", PATIENCE_S)))
        await until(lambda: models.row_of("x").state == "unloading")
        await asyncio.sleep(0.01)
        assert models.row_of("x").replica is not None
        host.gate.set()
        await asyncio.gather(loading, unloading)
        assert (await answer(models, "y")).entities

    scene(models, play)


def test_a_request_that_begins_during_an_eviction_is_answered(host: Host) -> None:
    """d needs the memory of two models, and a request begins on the second one while the first is closed."""
    models = host.models("abc", model_memory_fraction=0.35)
    models.loader.machine.weights = lambda settings: 2 * WEIGHTS if Path(settings.model).name == "d" else WEIGHTS

    async def play() -> None:
        for host.now_s, name in ((1.0, "b"), (2.0, "c")):
            await answer(models, name)
        closing, closed = hold_close(models, "b")
        loading = asyncio.ensure_future(models.apply(AddModel(added("d"), PATIENCE_S)))
        await asyncio.to_thread(closing.wait, PATIENCE_S)
        host.batch_gate.clear()
        running = asyncio.ensure_future(answer(models, "c"))
        await until(lambda: models.row_of("c").running == 1)
        closed.set()
        with pytest.raises(DoesNotFit):
            await loading
        host.batch_gate.set()
        assert (await running).entities
        assert (await states_now(models))["c"] == "ready"

    scene(models, play)


def test_an_evicted_model_that_is_removed_is_not_loaded_again(host: Host) -> None:
    models = host.models("abc", max_loaded_models=3)

    async def play() -> None:
        await models.apply(ChangeModel("c", "unload", PATIENCE_S))
        await models.loader._close(models.row_of("b"), "evicted")
        host.gate.clear()
        loading = asyncio.ensure_future(models.apply(ChangeModel("c", "load", PATIENCE_S)))
        await until(models.loader._changing.locked)
        await models.apply(RemoveModel("b", PATIENCE_S))  # does not wait for the other model's load
        with pytest.raises(ModelNotFound):
            await answer(models, "b")
        loads = len(host.loads)
        host.gate.set()
        await loading
        assert await states_now(models) == {"a": "ready", "c": "ready"}
        assert host.loads[loads:] == ["c"]

    scene(models, play)


def test_a_model_is_not_loaded_while_it_is_closed_and_forgotten(host: Host) -> None:
    models = host.models()

    async def play() -> None:
        closing, closed = hold_close(models, "b")
        removing = asyncio.ensure_future(models.apply(RemoveModel("b", PATIENCE_S)))
        await asyncio.to_thread(closing.wait, PATIENCE_S)
        with pytest.raises(Conflict, match="unloading"):
            await models.apply(ChangeModel("b", "load", PATIENCE_S))
        closed.set()
        await removing
        assert await states_now(models) == {"a": "ready"}

    scene(models, play)


def test_memory_that_runs_out_in_the_warm_up_is_reported(host: Host) -> None:
    models = host.models()

    def load(settings: Settings, *, turns: Any, **options: Any) -> LocalReplica:
        host.load(settings, turns=turns, **options).close()  # as LocalReplica.load does
        raise RuntimeError("CUDA out of memory")

    async def play() -> None:
        models.loader.machine.load = load
        with pytest.raises(DoesNotFit):
            await models.apply(AddModel(added("c"), PATIENCE_S))

    scene(models, play)


def test_a_crash_of_the_process_that_tries_a_model_is_an_error(monkeypatch: Any) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(probe, "_COMMAND", [sys.executable, "-c", script])
    with pytest.raises(ModelFailed, match="ended with signal 11"):
        probe.probe(Settings(), probe.ProbeLimits(PATIENCE_S))
    monkeypatch.setattr(probe, "_COMMAND", [sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(ModelFailed, match="did not end"):
        probe.probe(Settings(), probe.ProbeLimits(0.0))
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    with pytest.raises(ModelFailed, match="deleted while it was loaded"):
        probe.probe(Settings(), probe.ProbeLimits(PATIENCE_S, cancelled=cancelled))


def test_the_process_that_tries_a_model_has_bounded_memory(monkeypatch: Any) -> None:
    grows = "kept = []\nwhile True: kept.append(bytearray(b'x' * 2**24))"
    monkeypatch.setattr(probe, "_COMMAND", [sys.executable, "-c", grows])
    monkeypatch.setattr(probe, "_BASE_BYTES", 2**28)
    with pytest.raises(ModelFailed, match=r"took \d+ MB of memory, for weights of 1 MB"):
        probe.probe(Settings(), probe.ProbeLimits(PATIENCE_S, weights_bytes=2**20))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400])
def test_a_setting_that_no_message_can_hold_is_refused(value: int) -> None:
    with pytest.raises(ValidationError, match="settings"):
        added("a", settings={"max_batch_size": value})


def test_a_reason_names_no_folder_of_the_server() -> None:
    text = "'/srv/m/x' lacks /srv/m/x/spm.model; /usr/lib/python3/y.py: see https://hub/a/b, and/or /v1/model"
    assert without_folders(text, "folder:/srv/m/x") == (
        "'x' lacks x/spm.model; y.py: see https://hub/a/b, and/or /v1/model"
    )


@pytest.mark.parametrize(
    ("failed", "required", "needed", "message"),
    [
        ("", "", "a", "a is the default model"),
        ("c", "", "a", "a is the default model"),
        ("ac", "", "b", "b is the only model that serves"),
        ("c", "c", "", ""),  # the server is not ready
    ],
)
def test_a_ready_server_keeps_its_default_and_its_only_model(
    host: Host, failed: str, required: str, needed: str, message: str
) -> None:
    models = host.models("abc", {name: {"required": True} for name in required})
    table = ModelTable(models.replicas, Settings().view(GatewayOptions), models)

    async def play() -> None:
        for name in failed:
            models.loader.fail(models.row_of(name), ModelFailed("is broken"))
        for action in (table.change(needed, "unload"), table.remove(needed)) if needed else ():
            with pytest.raises(Conflict, match=message):
                await action
            assert models.row_of(needed).state == "ready"
            assert await table.ready()
        others = [name for name in "abc" if name not in failed and name != needed]
        for name in reversed(others):
            assert (await table.change(name, "unload")).row.state == "unloaded"
        assert await table.ready() == bool(needed)

    scene(models, play)
