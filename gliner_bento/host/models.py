"""The table of models of this process: loads, evicts and unloads models while others serve, in one event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from gliner_bento.commands import AddModel, ChangeModel, ModelCommand, RemoveModel
from gliner_bento.engine.checkpoint.find import WHOLE
from gliner_bento.errors import (
    Conflict,
    DeadlineExceeded,
    DoesNotFit,
    GLiNERBentoError,
    InvalidField,
    ModelFailed,
    ModelNotFound,
    ModelNotLoaded,
    StartupError,
    one_line,
)
from gliner_bento.host.archives import ModelArchives
from gliner_bento.host.hosted import HostedModel, HostedReplica
from gliner_bento.host.journal import ModelsJournal
from gliner_bento.host.memory import total_bytes, weights_bytes
from gliner_bento.host.probe import ProbeLimits, probe
from gliner_bento.host.requests import ModelRequests
from gliner_bento.model_types import UPLOADED, AddModelRequest, ModelRow, ModelState, short_name
from gliner_bento.replicas.base import Archive, Call, Replica
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.scheduler.turns import DeviceTurns, ModelTurns
from gliner_bento.settings import Settings

T = TypeVar("T")
logger = logging.getLogger(__name__)

_PROBE_TIMEOUT_S = 600.0
_PATH = re.compile(r"(?<![\w.:/])(?:/[^/\s'\",;:()]+)+/([^/\s'\",;:()]*)")  # an absolute path; group 1: its last part
_OUT_OF_MEMORY = "out of memory"  # part of the message of torch's out-of-memory errors


class LoadReplica(Protocol):
    """`LocalReplica.load`, with the arguments bound that are the same for all models."""

    def __call__(
        self, settings: Settings, *, name: str | None, turns: ModelTurns | None, shared: LocalReplica | None
    ) -> LocalReplica:
        """The loaded model. Blocks; raises `StartupError`."""


class LocalModels:
    """Implements `Models`. models: the settings of each model, by its name; the first model is the default.

    load, cores: see `LocalReplica.load`. probe_model, weights, capacity: see the functions that are their defaults.
    journal: the changes that the next process and other runners adopt; None: changes are not kept. linger_s: how long
    a model that is being unloaded still admits calls, until all gateways have learned of it.
    """

    def __init__(
        self,
        models: Mapping[str | None, Settings],
        settings: Settings,
        load: LoadReplica,
        *,
        cores: int | None = None,
        journal: ModelsJournal | None = None,
        linger_s: float = 0.0,
        probe_model: Callable[[Settings, ProbeLimits], None] = probe,
        weights: Callable[[Settings], int] = weights_bytes,
        capacity: Callable[[str], int | None] = total_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self._load_replica, self._cores, self._journal = settings, load, cores, journal
        self._linger_s = linger_s
        self._probe, self._weights, self._capacity, self._clock = probe_model, weights, capacity, clock
        self._rows: dict[str | None, HostedModel] = {}
        self._changing = asyncio.Lock()
        self._turns: dict[str, DeviceTurns] = {}
        self._sweeping: asyncio.Task[None] | None = None
        for name, settings_of_model in models.items():
            row = HostedModel(name, settings_of_model, default=not self._rows)
            row.pinned = row.own_settings.get("pinned", False)
            row.required = row.own_settings.get("required", name is None)
            self._rows[name] = row
        can_add_models = settings.model_root or settings.allow_model_hub or settings.max_model_bytes
        self._shares_device = len(self._rows) > 1 or bool(can_add_models)
        self._archives = ModelArchives(journal.folder / "models" if journal else None, settings.max_model_bytes)
        default_row = next(iter(self._rows.values()))
        self._requests = ModelRequests(settings, self._archives, default_row.settings.target_memory_fraction)

    # Start and end

    def start(self) -> None:
        """Load all models; blocks. A model that cannot be loaded is reported in its row. Raises `StartupError` if a
        required model cannot be loaded, or none can."""
        with ThreadPoolExecutor(1) as thread:  # this thread may run an event loop already
            thread.submit(asyncio.run, self._start()).result()

    async def _start(self) -> None:
        failure: BaseException | None = None
        rows = [*self._restore([*self._rows.values()]), *self._adopt()]
        while rows:
            for row in rows:
                try:
                    await self._load(row)
                except Exception as error:
                    failure = error.__cause__ or error  # the error before `_as_public`
                    if row.required:
                        raise failure from None
                    self._fail(row, error)
            rows = self._adopt()  # other runners may have added models meanwhile
        if failure and not any(row.replica for row in self._rows.values()):
            raise failure

    @property
    def replicas(self) -> dict[str | None, Replica]:
        """The replica of each model."""
        return {name: self.replica(name) for name in self._rows}

    def loaded(self) -> list[LocalReplica]:
        """The replicas of the models in memory."""
        return [row.replica for row in self._rows.values() if row.replica]

    # The contract

    async def rows(self) -> Sequence[ModelRow]:
        """See `Models`."""
        self._sweep_soon()
        return [row.public_row for row in self._rows.values()]

    async def apply(self, command: ModelCommand[T], archive: Archive | None = None) -> T:
        """See `Models`."""
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
                await self._begin_load(row, command.timeout_s)
            elif self._journal:
                self._journal.note_unloaded(request.name, request.model_dump())
        except BaseException:
            if row.loading is None:  # else loading continues after the deadline
                await self._forget(row)
            raise
        return row.public_row

    async def _change(self, command: ChangeModel) -> ModelRow:
        row, action = self.row_of(command.name), command.action
        if action in ("pin", "unpin"):
            row.pinned = action == "pin"
            if self._journal and row.name:
                self._journal.note_pinned(row.name, row.pinned)
        elif row.state in ("loading", "unloading"):
            raise Conflict(f"the model {command.name} is {row.state} already")
        elif action == "unload":
            await self._drain(row, command.timeout_s)
        elif row.replica is None:
            await self._begin_load(row, command.timeout_s)
        return row.public_row

    async def _remove(self, command: RemoveModel) -> None:
        row, name, timeout_s = self.row_of(command.name), command.name, command.timeout_s
        if row.default:
            raise Conflict(f"{name} is the default model, which requests without a model get")
        if row.loading:
            await self._end_load(row, row.loading, timeout_s)
            if self._rows.get(row.name) is not row:
                return  # the request that added it has removed it
        if row.state in ("loading", "unloading"):
            raise Conflict(f"the model {name} is {row.state}; try again")
        if row.replica:
            await self._drain(row, timeout_s)
        await self._forget(row)

    def replica(self, name: str | None) -> Replica:
        """See `Models`."""
        return HostedReplica(partial(self.row_of, name), self.using)

    @asynccontextmanager
    async def using(self, row: HostedModel, call: Call) -> AsyncIterator[LocalReplica]:
        """The replica of a model while a call runs; an evicted model is loaded first."""
        self._sweep_soon()
        row.last_used_s = self._clock()
        if row.replica is None:
            await self._load_again(row, call)
        if row.replica is None or (row.state == "unloading" and not row.admits):
            raise ModelNotLoaded(f"the model {row.title} is {row.state}")
        row.running += 1
        try:
            yield row.replica
        finally:
            row.running -= 1
            row.last_used_s = self._clock()
            if not row.running:
                row.drained.set()

    # Loading

    async def _load_again(self, row: HostedModel, call: Call) -> None:
        """Load an evicted model for a call, which waits within its deadline or is refused (`evicted_models`)."""
        if row.state == "evicted":
            self._start_loading(row)
        if row.loading is None or row.state != "loading":  # `add` may still be storing its archive
            why = f": {row.reason}" if row.reason else ""
            raise ModelNotLoaded(f"the model {row.title} is {row.state}{why}")
        if self.settings.evicted_models == "refuse":
            raise ModelNotLoaded(f"the model {row.title} was evicted, and is being loaded again; try again")
        try:
            await asyncio.wait_for(asyncio.shield(row.loading), call.wait_s(time.monotonic()))
        except asyncio.TimeoutError:
            raise DeadlineExceeded.before("the model was loaded") from None
        except GLiNERBentoError as error:
            raise ModelNotLoaded(f"the model {row.title} cannot be loaded: {error.message}") from None

    async def _begin_load(self, row: HostedModel, timeout_s: float) -> None:
        loading = self._start_loading(row)
        try:
            await asyncio.wait_for(asyncio.shield(loading), timeout_s)
        except asyncio.TimeoutError:
            raise DeadlineExceeded(f"the model {row.title} is still loading; GET /v1/models shows its state") from None

    def _start_loading(self, row: HostedModel) -> asyncio.Future[None]:
        previous, row.state = row.state, "loading"
        row.cancelled.clear()
        row.load_begun = False
        row.loading = asyncio.ensure_future(self._load_in_background(row, previous))
        row.loading.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks the error as retrieved
        return row.loading

    async def _load_in_background(self, row: HostedModel, previous: ModelState) -> None:
        try:
            await self._load(row)
        except DoesNotFit as error:
            row.state, row.reason = previous, error.message
            raise
        except asyncio.CancelledError:
            failure = ModelFailed(f"{row.title} was deleted before it was loaded")
            self._fail(row, failure)
            raise failure from None
        except BaseException as error:
            self._fail(row, error)
            raise
        finally:
            row.loading = None

    async def _end_load(self, row: HostedModel, loading: asyncio.Future[None], timeout_s: float) -> None:
        """End a load under way. The process that tries the model is killed; a load in this process goes on to its end,
        because libraries cannot be interrupted. Raises `DeadlineExceeded`."""
        row.cancelled.set()
        if not row.load_begun:
            loading.cancel()
        done, _ = await asyncio.wait([loading], timeout=timeout_s)
        if not done:
            raise DeadlineExceeded(f"the model {row.title} is still loading; try again")

    async def _load(self, row: HostedModel) -> None:
        """Evict models until this one fits, and load it. Raises `ModelFailed`; `DoesNotFit` if evicting all
        idle models would not suffice (usually before any is evicted), or if the memory runs out during the load."""
        async with self._changing:
            row.load_begun = True
            if row.failures >= self.settings.max_load_failures:
                raise ModelFailed(f"{row.title} has failed {row.failures} times; delete it, and add it again")
            may_crash = row.failures > 0 or row.request is not None
            self._note_failures(row, row.failures + 1)  # before the load, which may kill the process
            try:
                if row.bytes is None:
                    row.bytes = await asyncio.to_thread(self._weights, row.settings)
                while victims := self._victims(row):  # chosen again each time: requests may have begun
                    logger.info("%s is evicted for %s", victims[0].title, row.title)
                    await self._close(victims[0], "evicted")
                if may_crash and row.info is None and self.settings.probe_models:
                    limits = ProbeLimits(_PROBE_TIMEOUT_S, row.bytes, row.cancelled)
                    await asyncio.to_thread(self._probe, row.settings, limits)
                if row.cancelled.is_set():
                    raise ModelFailed(f"{row.title} was deleted while it was loaded")
                row.replica = await asyncio.to_thread(self._make_replica, row, row.twin(self._rows.values()))
            except Exception as error:
                failure = _as_public(error, row.settings.model)
                if isinstance(failure, DoesNotFit):  # does not count as a failure
                    self._note_failures(row, row.failures - 1)
                await asyncio.to_thread(free_memory)
                raise failure from error
            row.info, row.state, row.reason = row.replica.model, "ready", None
            row.failures, row.last_used_s = 0, self._clock()
            if self._journal and row.name:
                self._journal.note_loaded(row.name, row.request.model_dump() if row.request else None)

    def _make_replica(self, row: HostedModel, twin: HostedModel | None) -> LocalReplica:
        turns = self._join_device(row) if self._shares_device else None
        try:
            shared = twin.replica if twin else None
            return self._load_replica(row.settings, name=row.name, turns=turns, shared=shared)
        except BaseException:
            if turns:
                turns.leave()
            raise

    def _join_device(self, row: HostedModel) -> ModelTurns:
        from gliner_bento.engine.checkpoint.device import pick_device  # noqa: PLC0415  # imports torch

        device = str(pick_device(row.settings.device))
        lanes = row.settings.decided_for(device, self._cores).inference_lanes
        return self._turns.setdefault(device, DeviceTurns(lanes)).join(row.name or "")

    def _victims(self, row: HostedModel) -> Sequence[HostedModel]:
        """The models to evict for `row`, least recently used first. Raises `DoesNotFit`. While no model is loaded, any
        size is accepted."""
        loaded = [model for model in self._rows.values() if model.replica]
        idle = sorted((model for model in loaded if model.evictable), key=lambda model: model.last_used_s)
        wanted = 0 if row.twin(self._rows.values()) else row.bytes or 0
        total = self._capacity(loaded[0].info.device) if loaded and loaded[0].info else None
        victims: list[HostedModel] = []
        while True:
            kept = [model for model in loaded if model not in victims]
            too_many = len(kept) >= (self.settings.max_loaded_models or len(self._rows))
            used = sum({model.weights_key: model.bytes or 0 for model in kept}.values())  # shared weights count once
            free = max(0, int((total or 0) * self.settings.model_memory_fraction) - used)
            if not too_many and (total is None or wanted <= free):
                return victims
            if not idle:
                why = "max_loaded_models is reached" if too_many else f"{wanted} bytes wanted, {free} free"
                raise DoesNotFit(f"the model {row.title} does not fit: {why}, and no other model may be evicted now")
            victims.append(idle.pop(0))

    # Unloading

    async def _drain(self, row: HostedModel, timeout_s: float) -> None:
        """Wait for the calls that run or that gateways have already admitted; refuse further ones; unload the model."""
        previous, row.state = row.state, "unloading"
        row.admits = row.replica is not None and self._linger_s > 0
        try:
            if row.replica:
                await asyncio.wait_for(self._wait_until_idle(row), timeout_s)
            await self._changing.acquire()  # a load under way may share the weights
        except BaseException as error:
            row.state = previous
            if isinstance(error, asyncio.TimeoutError):
                raise DeadlineExceeded("the deadline passed before the model's requests had ended") from None
            raise
        try:
            await self._close(row, "unloading")
        finally:
            row.state = "unloaded"
            self._changing.release()
        if self._journal and row.name:
            self._journal.note_unloaded(row.name, None)

    async def _wait_until_idle(self, row: HostedModel) -> None:
        await asyncio.sleep(self._linger_s)
        while row.running:
            row.drained.clear()
            await row.drained.wait()
        row.admits = False

    async def _close(self, row: HostedModel, state: ModelState) -> None:
        replica, row.replica, row.state, row.reason = row.replica, None, state, None
        if replica:
            shared = any(other.engine is replica.engine for other in self.loaded())
            await asyncio.to_thread(replica.close, shared=shared)
            del replica
            await asyncio.to_thread(free_memory)

    def _sweep_soon(self) -> None:
        if self.settings.model_idle_unload_s and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.ensure_future(self._sweep())

    async def _sweep(self) -> None:
        """Evict idle models. Ends when only the default model and pinned models are loaded."""
        idle_s = self.settings.model_idle_unload_s
        while rows := [row for row in self._rows.values() if row.replica and not (row.pinned or row.default)]:
            async with self._changing:
                for row in rows:
                    if row.evictable and self._clock() >= row.last_used_s + idle_s:
                        logger.info("%s is evicted: no request for %g s", row.title, idle_s)
                        await self._close(row, "evicted")
            await asyncio.sleep(min(1.0, idle_s / 4))

    # Rows

    def row_of(self, name: str | None) -> HostedModel:
        """The row of a model. Begins to load models that another runner has added. Raises `ModelNotFound`."""
        if name not in self._rows:
            for row in self._adopt():
                self._start_loading(row)
        if name in self._rows:
            return self._rows[name]
        unnamed = self._rows.get(None)
        if unnamed and unnamed.info and unnamed.info.model == name:  # the name of its checkpoint
            return unnamed
        raise ModelNotFound(f"model: no model {str(name)[:100]!r}", param="model")

    def _fail(self, row: HostedModel, error: BaseException) -> None:
        row.state, row.reason = "failed", one_line(error)
        logger.error("the model %s could not be loaded: %s", row.title, one_line(error.__cause__ or error))

    async def _forget(self, row: HostedModel) -> None:
        row.state = "unloading"  # so that no request loads it meanwhile
        try:
            if row.request and row.request.source == UPLOADED:
                await self._archives.delete(row.request.name)
        finally:
            self._rows.pop(row.name, None)
            if self._journal and row.name:
                self._journal.forget(row.name)

    def _note_failures(self, row: HostedModel, count: int) -> None:
        row.failures = count
        if self._journal and row.name:
            self._journal.note_failures(row.name, count)

    def _adopt(self) -> list[HostedModel]:
        """Add rows for the models of the journal that have none here. Returns the rows to load."""
        added = self._journal.read().added if self._journal else {}
        rows = []
        for name in [name for name in added if name not in self._rows]:
            try:
                rows.append(self._requests.row(AddModelRequest(**added[name])))
            except InvalidField as error:  # its folder no longer exists
                logger.error("the model %s is not served any more: %s", name, error.message)
        for row in rows:
            self._rows[row.name] = row
        return self._restore(rows)

    def _restore(self, rows: list[HostedModel]) -> list[HostedModel]:
        """Set failures and pins from the journal. Returns the rows that no request has unloaded."""
        if not self._journal:
            return rows
        content, failures = self._journal.read(), self._journal.failures()
        for row in rows:
            row.failures = failures.get(row.name or "", 0)
            row.pinned = content.pinned.get(row.name or "", row.pinned)
        return [row for row in rows if row.name not in content.unloaded]


def free_memory() -> None:
    """Return unused memory to the system and the device."""
    gc.collect()
    from gliner_bento.engine.memory import release_memory  # noqa: PLC0415  # imports torch

    release_memory()


def _as_public(error: Exception, checkpoint: str) -> GLiNERBentoError:
    """The public error for an error that a load has raised. It does not say in which folder the checkpoint is."""
    if isinstance(error, ModelFailed):  # of the process that has tried the model
        return ModelFailed(without_folders(error.message, checkpoint))
    if isinstance(error, GLiNERBentoError):
        return error
    if _OUT_OF_MEMORY in str(error) or isinstance(error, MemoryError):
        return DoesNotFit(f"the memory has run out while the model was loaded: {one_line(error)}")
    if not isinstance(error, StartupError | OSError):
        logger.exception("a model could not be loaded")
    return ModelFailed(without_folders(one_line(error), checkpoint))


def without_folders(message: str, checkpoint: str) -> str:
    """A message without the folders of this machine: of each path, only the name of the file is left."""
    folder = checkpoint.removeprefix(WHOLE)
    if os.path.isabs(folder):
        message = message.replace(folder, os.path.basename(folder.rstrip("/")))
    return _PATH.sub(lambda path: path[1] if os.path.isdir(f"/{path[0].split('/')[1]}") else path[0], message)
