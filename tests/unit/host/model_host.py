"""Models over fake engines, whose loads and batches a test holds, and what tests ask of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from doubles.fake_engine import FakeEngine
from replica_calls import PATIENCE_S, call, item, run, scheduler_config

from gliner_bento.host.journal import ModelsJournal
from gliner_bento.host.loader import Machine
from gliner_bento.host.models import LocalModels
from gliner_bento.model_types import AddModelRequest
from gliner_bento.process.instances import by_model
from gliner_bento.replicas.local.adapters import LocalAdapters
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.replicas.local.uploads import Uploads
from gliner_bento.settings import Settings

WEIGHTS = 100


class Host:
    """Models over fake engines. begun: the names whose loads have begun, in order. loads: those that were loaded.
    replicas: what was loaded. error: of a load, by name. gate: holds loads; batch_gate: holds batches. now_s: the
    clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun: list[str | None] = []
        self.loads: list[str | None] = []
        self.replicas: list[LocalReplica] = []
        self.errors: dict[str | None, Exception] = {}
        self.gate, self.batch_gate = threading.Event(), threading.Event()
        self.gate.set()
        self.batch_gate.set()
        self.now_s = 0.0
        self.shared: list[bool] = []
        self.probed: list[str] = []
        self.probe_errors: dict[str, Exception] = {}
        for name in ("a", "b", "c", "d"):
            (folder / name).mkdir()
            (folder / name / "gliner_config.json").touch()

    def models(
        self, names: str = "ab", own: dict[str, Any] | None = None, *, runner: str = "runner", **settings: Any
    ) -> LocalModels:
        given = {"models": ",".join(f"{name}={self.folder / name}" for name in names), "model_settings": own or {}}
        loaded = Settings.load(given | {"model_root": self.folder, "device": "cpu", "inference_lanes": 1} | settings)
        made = LocalModels(
            by_model(loaded),
            loaded,
            Machine(
                self.load,
                probe=lambda settings, limits: self.probe(settings, limits),  # noqa: PLW0108  # tests replace it
                weights=lambda _: WEIGHTS,
                capacity=lambda _: 1000,
                clock=lambda: self.now_s,
            ),
            journal=ModelsJournal(self.folder, runner),
        )
        made.start()
        return made

    def probe(self, settings: Settings, limits: probe.ProbeLimits) -> None:
        self.probed.append(name := Path(settings.model).name)
        if error := self.probe_errors.get(name):
            raise error

    def load(self, settings: Settings, *, name: str | None, turns: Any, shared: LocalReplica | None) -> LocalReplica:
        self.begun.append(name)
        assert self.gate.wait(PATIENCE_S)
        self.loads.append(name)
        self.shared.append(shared is not None)
        if error := self.errors.get(name):
            raise error
        engine = shared.engine if shared else FakeEngine(on_forward=lambda _: self.batch_gate.wait(PATIENCE_S))
        adapters = LocalAdapters(None, Uploads(self.folder))
        self.replicas.append(LocalReplica(engine, scheduler_config(), adapters=adapters, turns=turns))
        return self.replicas[-1]


def scene(models: LocalModels, play: Callable[[], Awaitable[None]]) -> None:
    try:
        run(play)
    finally:
        for replica in models.loaded():
            replica.close()


def states(models: LocalModels) -> dict[str, str]:
    return {str(row.name): row.state for row in asyncio.run(models.rows())}


async def states_now(models: LocalModels) -> dict[str, str]:
    return {str(row.name): row.state for row in await models.rows()}


def added(name: str, **options: Any) -> AddModelRequest:
    return AddModelRequest(name=name, source=options.pop("source", name), **options)


async def answer(models: LocalModels, name: str, timeout_s: float = PATIENCE_S) -> Any:
    return (await models.replica(name).extract([item()], call(timeout_s=timeout_s)))[0]
