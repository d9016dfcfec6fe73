"""The table of models of this process, and the commands that change it while models serve. For one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast

from gliner_bento.commands import AddModel, ChangeModel, ModelCommand, RemoveModel
from gliner_bento.errors import Conflict, ModelNotFound
from gliner_bento.host.archives import ModelArchives
from gliner_bento.host.hosted import HostedModel, HostedReplica
from gliner_bento.host.journal import ModelsJournal
from gliner_bento.host.loader import Machine, ModelLoader
from gliner_bento.host.recovery import Recovery
from gliner_bento.host.requests import ModelRequests
from gliner_bento.model_types import UPLOADED, ModelRow, short_name
from gliner_bento.replicas.base import Archive, Replica
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings

T = TypeVar("T")


class LocalModels:
    """Implements `Models`. models: the settings of each model, by its name; the first model is the default.

    journal: the changes that the next process and other runners adopt; None: changes are not kept. linger_s: see
    `ModelLoader`.
    """

    def __init__(
        self,
        models: Mapping[str | None, Settings],
        settings: Settings,
        machine: Machine,
        *,
        journal: ModelsJournal | None = None,
        linger_s: float = 0.0,
    ) -> None:
        self._rows: dict[str | None, HostedModel] = {}
        for name, settings_of_model in models.items():
            row = HostedModel(name, settings_of_model, default=not self._rows)
            row.pinned = row.own_settings.get("pinned", False)
            row.required = row.own_settings.get("required", name is None)
            self._rows[name] = row
        can_add_models = settings.model_root or settings.allow_model_hub or settings.max_model_bytes
        shares_device = len(self._rows) > 1 or bool(can_add_models)
        self._archives = ModelArchives(journal.folder / "models" if journal else None, settings.max_model_bytes)
        default_row = next(iter(self._rows.values()))
        self._requests = ModelRequests(settings, self._archives, default_row.settings.target_memory_fraction)
        self._recovery = Recovery(self._rows, self._requests, journal)
        self.loader = ModelLoader(
            self._rows, settings, machine, self._recovery, shares_device=shares_device, linger_s=linger_s
        )

    # Start and end

    def start(self) -> None:
        """Load all models; blocks. A model that cannot be loaded is reported in its row. Raises `StartupError` if a
        required model cannot be loaded, or none can."""
        with ThreadPoolExecutor(1) as thread:  # this thread may run an event loop already
            thread.submit(asyncio.run, self._start()).result()

    async def _start(self) -> None:
        failure: BaseException | None = None
        rows = [*self._recovery.restore([*self._rows.values()]), *self._recovery.adopt()]
        self._archives.delete_abandoned({str(name) for name in self._rows})
        while rows:
            for row in rows:
                try:
                    await self.loader.load(row)
                except Exception as error:
                    failure = error.__cause__ or error  # the error before `_as_public`
                    if row.required:
                        raise failure from None
                    self.loader.fail(row, error)
            rows = self._recovery.adopt()  # other runners may have added models meanwhile
        if failure and not any(row.replica for row in self._rows.values()):
            raise failure

    @property
    def replicas(self) -> dict[str | None, Replica]:
        """The replica of each model."""
        return {name: self.replica(name) for name in self._rows}

    def loaded(self) -> list[LocalReplica]:
        """The replicas of the models in memory."""
        return self.loader.loaded()

    # The contract

    async def rows(self) -> Sequence[ModelRow]:
        self.loader.sweep_soon()
        return [row.public_row for row in self._rows.values()]

    async def apply(self, command: ModelCommand[T], archive: Archive | None = None) -> T:
        result: Any = None
        match command:
            case AddModel():
                result = await self._add(command, archive)
            case ChangeModel():
                result = await self._change(command)
            case RemoveModel():
                await self._remove(command)
            case _:
                raise TypeError(command)
        return cast(T, result)

    async def _add(self, command: AddModel, archive: Archive | None) -> ModelRow:
        request, unnamed = command.request, self._rows.get(None)
        if request.name in self._rows or (unnamed and request.name in (unnamed.title, short_name(unnamed.title))):
            raise Conflict(f"name: there is a model {request.name}", param="name")
        row = self._rows[request.name] = self._requests.row(request, uploading=archive is not None)
        try:
            if archive is not None:
                row.state = "loading"  # so that other changes of the row are refused
                await self._archives.store(request.name, archive)
                row.settings = self._requests.settings(request)
                row.state = "unloaded"
            if request.load:
                await self.loader.begin(row, command.timeout_s)
            else:
                self._recovery.note_unloaded(row, added=True)
        except BaseException:
            if row.loading is None:  # else loading continues after the deadline
                await self._forget(row)
            raise
        return row.public_row

    async def _change(self, command: ChangeModel) -> ModelRow:
        row, action = self.row_of(command.name), command.action
        if action in ("pin", "unpin"):
            row.pinned = action == "pin"
            self._recovery.note_pinned(row)
        elif row.state in ("loading", "unloading"):
            raise Conflict(f"the model {command.name} is {row.state} already")
        elif action == "unload":
            await self.loader.unload(row, command.timeout_s)
        elif row.replica is None:
            await self.loader.begin(row, command.timeout_s)
        return row.public_row

    async def _remove(self, command: RemoveModel) -> None:
        row, name, timeout_s = self.row_of(command.name), command.name, command.timeout_s
        if row.default:
            raise Conflict(f"{name} is the default model, which requests without a model get")
        if row.state == "loading" and not row.loading:
            raise Conflict(f"the archive of the model {name} is still arriving; try again")
        if row.state == "unloading":
            raise Conflict(f"the model {name} is unloading; try again")
        if row.replica:
            await self.loader.unload(row, timeout_s)
        await self._forget(row)

    def replica(self, name: str | None) -> Replica:
        return HostedReplica(partial(self.row_of, name), self.loader.using)

    def forget(self, name: str) -> None:
        """Does nothing: `_forget` has freed the model."""

    def row_of(self, name: str | None) -> HostedModel:
        """The row of a model. Begins to load models that another runner has added. Raises `ModelNotFound`."""
        if name not in self._rows:
            for row in self._recovery.adopt():
                self.loader.start(row)
        if name in self._rows:
            return self._rows[name]
        unnamed = self._rows.get(None)
        if unnamed and unnamed.info and unnamed.info.model == name:  # the name of its checkpoint
            return unnamed
        raise ModelNotFound(f"model: no model {str(name)[:100]!r}", param="model")

    async def _forget(self, row: HostedModel) -> None:
        """Remove a model that is not loaded; a load under way is discarded. Its name is free afterwards."""
        if row.deleted.is_set():
            return  # another request deletes it, and its name may be that of a new model
        row.deleted.set()
        row.state = "unloading"  # so that no request loads it meanwhile
        self.loader.discard_load(row)
        try:
            if row.request and row.request.source == UPLOADED:
                await self._archives.delete(row.request.name)
        finally:
            self._recovery.forget(row)
