"""The models of this process: loads, evicts and unloads them while others serve. Rows change in one event loop only."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import (
    Conflict,
    DeadlineExceeded,
    DoesNotFit,
    GLiNERBentoError,
    InvalidField,
    ModelFailed,
    ModelNotFound,
    ModelNotLoaded,
    NotReady,
    StartupError,
    one_line,
)
from gliner_bento.model_types import UPLOADED, AddModelRequest, ModelAction, ModelRow, ModelState
from gliner_bento.replicas.base import Archive, Call, Outcome, Part, Replica, ReplicaAdapters, ReplicaStatus
from gliner_bento.replicas.local import LocalReplica
from gliner_bento.replicas.memory import total_bytes, weights_bytes
from gliner_bento.replicas.model_archives import ModelArchives
from gliner_bento.replicas.models_journal import ModelsJournal
from gliner_bento.replicas.probe import probe
from gliner_bento.scheduler.turns import DeviceTurns, ModelTurns
from gliner_bento.settings import Settings
from gliner_bento.settings.models import ROW, checked_own
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import Item

logger = logging.getLogger(__name__)

_PROBE_TIMEOUT_S = 600.0
_HUB = "hub:"
_OUT_OF_MEMORY = "out of memory"  # part of the message of torch's out-of-memory errors
_IDLE: dict[str, Any] = {"waiting_items": 0, "running_items": 0, "waiting_tokens": 0, "running_tokens": 0}


class LoadReplica(Protocol):
    """`LocalReplica.load`; the arguments that are the same for all models are bound."""

    def __call__(
        self, settings: Settings, *, name: str | None, turns: ModelTurns | None, shared: LocalReplica | None
    ) -> LocalReplica:
        """The loaded model. Blocks; raises `StartupError`."""


@dataclass(eq=False)
class _Hosted:
    """A model in the table. replica: None while it is not loaded. model: the info of the last replica, which is kept.

    loading: done when the model is loaded or has failed. running: number of calls under way. admits: whether it admits
    further calls while it is unloading. drained: set when no call runs. failures: failed loads since it was last
    loaded. request: the request that added it; None: it is in the settings.
    """

    name: str | None
    settings: Settings
    pinned: bool = False
    required: bool = False
    state: ModelState = "unloaded"
    reason: str | None = None
    bytes: int | None = None
    replica: LocalReplica | None = None
    model: ModelInfo | None = None
    loading: asyncio.Future[None] | None = None
    running: int = 0
    admits: bool = False
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    used_s: float = 0.0
    failures: int = 0
    request: AddModelRequest | None = None

    @property
    def own(self) -> dict[str, Any]:
        """Its own settings."""
        return dict(self.settings.model_settings.get(self.name or "", {}))

    @property
    def public_row(self) -> ModelRow:
        """The row as `Models.rows` returns it."""
        own = {name: value for name, value in self.own.items() if isinstance(value, str | int | float | tuple | bool)}
        return ModelRow(
            name=self.name,
            state=self.state,
            reason=self.reason,
            pinned=self.pinned,
            required=self.required,
            bytes=self.bytes,
            limits=own,
        )

    @property
    def weights_key(self) -> object:
        """Loaded models with equal keys share their weights and adapters."""
        settings = self.settings
        options = settings.view(EngineOptions), settings.view(AdapterSettings)
        return settings.model, settings.device, settings.dtype, options


class LocalModels:
    """Implements `Models`. The first model is the default.

    load, probe_model, weights, capacity: see `LocalReplica.load`, `probe`, `weights_bytes` and `total_bytes`.
    journal: the changes that the next process and the other runners adopt; None: not kept. linger_s: time for which
    a model that is being unloaded still admits calls, until all gateways know of it.
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
        probe_model: Callable[[Settings, float], None] = probe,
        weights: Callable[[Settings], int] = weights_bytes,
        capacity: Callable[[str], int | None] = total_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self._load_replica, self._cores, self._journal = settings, load, cores, journal
        self._linger_s = linger_s
        self._probe, self._weights, self._capacity, self._clock = probe_model, weights, capacity, clock
        self._rows: dict[str | None, _Hosted] = {}
        self._changing = asyncio.Lock()
        self._turns: dict[str, DeviceTurns] = {}
        self._sweeping: asyncio.Task[None] | None = None
        for name, model in models.items():
            own = model.model_settings.get(name or "", {})
            self._rows[name] = _Hosted(name, model, own.get("pinned", False), own.get("required", name is None))
        self._shares_device = len(self._rows) > 1 or bool(
            settings.model_root or settings.allow_model_hub or settings.max_model_bytes
        )
        self._archives = ModelArchives(journal.folder / "models" if journal else None, settings.max_model_bytes)

    # Start and end

    def start(self) -> None:
        """Load all models; blocks. One that cannot be loaded is reported in its row. Raises `StartupError` if it is
        required, or no model can be loaded."""
        with ThreadPoolExecutor(1) as thread:  # this thread may run an event loop already
            thread.submit(asyncio.run, self._start()).result()

    async def _start(self) -> None:
        failure: BaseException | None = None
        rows = [*self._restored([*self._rows.values()]), *self._adopt()]
        while rows:
            for row in rows:
                try:
                    await self._load(row)
                except Exception as error:
                    failure = error.__cause__ or error
                    self._fail(row, error)
                    if row.required:
                        raise failure from None
            rows = self._adopt()  # other runners may have added models meanwhile
        if failure and not any(row.replica for row in self._rows.values()):
            raise failure

    @property
    def replicas(self) -> dict[str | None, Replica]:
        """The replica of each model."""
        return {name: HostedReplica(self, name) for name in self._rows}

    def loaded(self) -> list[LocalReplica]:
        """The models in memory."""
        return [row.replica for row in self._rows.values() if row.replica]

    # The contract

    async def rows(self) -> Sequence[ModelRow]:
        """See `Models`."""
        self._sweep_soon()
        return [row.public_row for row in self._rows.values()]

    async def add(self, request: AddModelRequest, timeout_s: float, archive: Archive | None = None) -> ModelRow:
        """See `Models`."""
        if request.name in self._rows:
            raise Conflict(f"name: there is a model {request.name}", param="name")
        row = self._rows[request.name] = self._hosted(request, uploading=archive is not None)
        try:
            if archive is not None:
                row.state = "loading"  # so that other changes of the row are refused
                await self._archives.store(request.name, archive)
                row.settings = self._hosted(request).settings
                row.state = "unloaded"
            if request.load:
                await self._begin_load(row, timeout_s)
            elif self._journal:
                self._journal.note_unloaded(request.name, request.model_dump())
        except BaseException:
            if row.loading is None:
                await self._forget(row)
            raise
        return row.public_row

    async def change(self, name: str, action: ModelAction, timeout_s: float) -> ModelRow:
        """See `Models`."""
        row = self.row_of(name)
        if action in ("pin", "unpin"):
            row.pinned = action == "pin"
            if self._journal and row.name:
                self._journal.note_pinned(row.name, row.pinned)
        elif row.state in ("loading", "unloading"):
            raise Conflict(f"the model {name} is {row.state} already")
        elif action == "unload":
            await self._drain(row, timeout_s)
        elif row.replica is None:
            await self._begin_load(row, timeout_s)
        return row.public_row

    async def remove(self, name: str, timeout_s: float) -> None:
        """See `Models`."""
        row = self.row_of(name)
        if row.state in ("loading", "unloading"):
            raise Conflict(f"the model {name} is {row.state}; try again")
        if self._is_default(row):
            raise Conflict(f"{name} is the default model, which requests without a model get")
        await self._drain(row, timeout_s)
        await self._forget(row)

    def replica(self, name: str) -> Replica:
        """See `Models`."""
        return HostedReplica(self, name)

    @asynccontextmanager
    async def using(self, row: _Hosted, call: Call) -> AsyncIterator[LocalReplica]:
        """The loaded model for a call; an evicted one is loaded first."""
        self._sweep_soon()
        row.used_s = self._clock()
        if row.replica is None:
            await self._load_again(row, call)
        if row.replica is None or (row.state == "unloading" and not row.admits):
            raise ModelNotLoaded(f"the model {row.name} is {row.state}")
        row.running += 1
        try:
            yield row.replica
        finally:
            row.running -= 1
            row.used_s = self._clock()
            if not row.running:
                row.drained.set()

    # Loading

    async def _load_again(self, row: _Hosted, call: Call) -> None:
        """Load an evicted model for a call, which waits within its deadline or is refused."""
        if row.state == "evicted":
            self._start_loading(row)
        if row.loading is None or row.state != "loading":
            why = f": {row.reason}" if row.reason else ""
            raise ModelNotLoaded(f"the model {row.name} is {row.state}{why}")
        if self.settings.evicted_models == "refuse":
            raise ModelNotLoaded(f"the model {row.name} was evicted, and is being loaded again; try again")
        try:
            await asyncio.wait_for(asyncio.shield(row.loading), call.wait_s(time.monotonic()))
        except asyncio.TimeoutError:
            raise DeadlineExceeded.before("the model was loaded") from None
        except GLiNERBentoError as error:
            raise ModelNotLoaded(f"the model {row.name} cannot be loaded: {error.message}") from None

    async def _begin_load(self, row: _Hosted, timeout_s: float) -> None:
        loading = self._start_loading(row)
        try:
            await asyncio.wait_for(asyncio.shield(loading), timeout_s)
        except asyncio.TimeoutError:
            raise DeadlineExceeded(f"the model {row.name} is still loading; GET /v1/models shows its state") from None

    def _start_loading(self, row: _Hosted) -> asyncio.Future[None]:
        before, row.state = row.state, "loading"
        row.loading = asyncio.ensure_future(self._load_in_background(row, before))
        row.loading.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks the error as retrieved
        return row.loading

    async def _load_in_background(self, row: _Hosted, before: ModelState) -> None:
        try:
            await self._load(row)
        except DoesNotFit as error:
            row.state, row.reason = before, error.message
            raise
        except BaseException as error:
            self._fail(row, error)
            raise
        finally:
            row.loading = None

    async def _load(self, row: _Hosted) -> None:
        """Evict models until this one fits, and load it. Raises `ModelFailed`, or `DoesNotFit`: before any is evicted
        (unless requests begin meanwhile), or because the memory has run out."""
        async with self._changing:
            if row.failures >= self.settings.max_load_failures:
                raise ModelFailed(f"{row.name} has failed {row.failures} times; delete it, and add it again")
            suspect = row.failures > 0 or row.request is not None
            self._note_failures(row, row.failures + 1)  # before the load, which may kill the process
            try:
                if row.bytes is None:
                    row.bytes = await asyncio.to_thread(self._weights, row.settings)
                while victims := self._victims(row):  # chosen again: requests may have begun on the others
                    logger.info("%s is evicted for %s", victims[0].name, row.name)
                    await self._close(victims[0], "evicted")
                if suspect and row.model is None and self.settings.probe_models:
                    await asyncio.to_thread(self._probe, row.settings, _PROBE_TIMEOUT_S)
                row.replica = await asyncio.to_thread(self._make_replica, row, self._twin(row))
            except Exception as error:
                failure = _as_public(error)
                if isinstance(failure, DoesNotFit):  # does not count
                    self._note_failures(row, row.failures - 1)
                await asyncio.to_thread(free_memory)
                raise failure from error
            row.model, row.state, row.reason = row.replica.model, "ready", None
            row.failures, row.used_s = 0, self._clock()
            if self._journal and row.name:
                self._journal.note_loaded(row.name, row.request.model_dump() if row.request else None)

    def _make_replica(self, row: _Hosted, twin: _Hosted | None) -> LocalReplica:
        turns = self._join(row) if self._shares_device else None
        try:
            shared = twin.replica if twin else None
            return self._load_replica(row.settings, name=row.name, turns=turns, shared=shared)
        except BaseException:
            if turns:
                turns.leave()
            raise

    def _join(self, row: _Hosted) -> ModelTurns:
        from gliner_bento.engine.checkpoint.device import pick_device  # noqa: PLC0415  # imports torch

        device = str(pick_device(row.settings.device))
        lanes = row.settings.decided_for(device, self._cores).inference_lanes
        return self._turns.setdefault(device, DeviceTurns(lanes)).join(row.name or "")

    def _victims(self, row: _Hosted) -> Sequence[_Hosted]:
        """The models to evict for `row`, least recently used first. Raises `DoesNotFit`. The size is compared only
        while another model is loaded."""
        loaded = [one for one in self._rows.values() if one.replica]
        idle = sorted(filter(self._may_evict, loaded), key=lambda one: one.used_s)
        wanted = 0 if self._twin(row) else row.bytes or 0
        total = self._capacity(loaded[0].model.device) if loaded and loaded[0].model else None
        victims: list[_Hosted] = []
        while True:
            kept = [one for one in loaded if one not in victims]
            too_many = len(kept) >= (self.settings.max_loaded_models or len(self._rows))
            used = sum({one.weights_key: one.bytes or 0 for one in kept}.values())  # shared weights count once
            free = max(0, int((total or 0) * self.settings.model_memory_fraction) - used)
            if not too_many and (total is None or wanted <= free):
                return victims
            if not idle:
                why = "max_loaded_models" if too_many else f"{wanted} bytes wanted, {free} free"
                raise DoesNotFit(f"the model {row.name} does not fit: {why} (no idle model may be evicted)")
            victims.append(idle.pop(0))

    def _may_evict(self, row: _Hosted) -> bool:
        return row.state == "ready" and not row.pinned and not row.running and not self._is_default(row)

    def _twin(self, row: _Hosted) -> _Hosted | None:
        """A loaded model with the same weights and options."""
        others = (one for one in self._rows.values() if one is not row and one.replica)
        return next((one for one in others if one.weights_key == row.weights_key), None)

    # Unloading

    async def _drain(self, row: _Hosted, timeout_s: float) -> None:
        """Wait for the calls that run, and those that gateways have admitted, refuse further ones, and unload."""
        before, row.state = row.state, "unloading"
        row.admits = row.replica is not None and self._linger_s > 0
        try:
            if row.replica:
                await asyncio.wait_for(self._drained(row), timeout_s)
            await self._changing.acquire()  # a load under way may share the weights
        except BaseException as error:
            row.state = before
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

    async def _drained(self, row: _Hosted) -> None:
        await asyncio.sleep(self._linger_s)
        while row.running:
            row.drained.clear()
            await row.drained.wait()
        row.admits = False

    async def _close(self, row: _Hosted, state: ModelState) -> None:
        replica, row.replica, row.state, row.reason = row.replica, None, state, None
        if replica:
            shared = any(one.engine is replica.engine for one in self.loaded())
            await asyncio.to_thread(replica.close, shared=shared)
            del replica
            await asyncio.to_thread(free_memory)

    def _sweep_soon(self) -> None:
        if self.settings.model_idle_unload_s and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.ensure_future(self._sweep())

    async def _sweep(self) -> None:
        """Evict idle models. Ends when no model that is not pinned is loaded."""
        idle_s = self.settings.model_idle_unload_s
        while rows := [row for row in self._rows.values() if row.replica and not row.pinned]:
            async with self._changing:
                for row in rows:
                    if self._may_evict(row) and self._clock() >= row.used_s + idle_s:
                        logger.info("%s is evicted: no request for %g s", row.name, idle_s)
                        await self._close(row, "evicted")
            await asyncio.sleep(min(1.0, idle_s / 4))

    # Rows

    def row_of(self, name: str | None) -> _Hosted:
        """The row of a model. Begins to load models that another runner has added. Raises `ModelNotFound`."""
        if name not in self._rows:
            for row in self._adopt():
                self._start_loading(row)
        if name in self._rows:
            return self._rows[name]
        unnamed = self._rows.get(None)
        if unnamed and unnamed.model and unnamed.model.model == name:
            return unnamed
        raise ModelNotFound(f"model: no model {str(name)[:100]!r}", param="model")

    def _is_default(self, row: _Hosted) -> bool:
        return row is next(iter(self._rows.values()))

    def _hosted(self, request: AddModelRequest, *, uploading: bool = False) -> _Hosted:
        """The row of a request. uploading: its archive is not stored yet. Raises `InvalidField`."""
        if reserved := sorted(request.settings.keys() & ROW):
            raise InvalidField(f"settings: {reserved[0]} is not a setting", param="settings")
        try:
            own = checked_own(request.settings)
        except ValueError as error:
            raise InvalidField(f"settings: {error}", param="settings") from None
        first = next(iter(self._rows.values())).settings
        own = {"target_memory_fraction": first.target_memory_fraction} | own
        source = "" if uploading else self._source(request.name, request.source)
        settings = self.settings.with_own(request.name, source, own)
        return _Hosted(request.name, settings, request.pinned, request=request)

    def _source(self, name: str, source: str) -> str:
        root = self.settings.model_root
        if source == UPLOADED:
            if not (folder := self._archives.find(name)):
                raise InvalidField("source: no archive was sent", param="source")
            return str(folder)
        if source.startswith(_HUB):
            if not self.settings.allow_model_hub:
                raise InvalidField("source: the hub is not enabled (setting allow_model_hub)", param="source")
            return source.removeprefix(_HUB)
        if root is None:
            raise InvalidField("source: folders are not enabled (setting model_root)", param="source")
        below = (root / source).resolve()
        if not below.is_relative_to(root) or not below.is_dir():
            raise InvalidField(f"source: no folder {source!r} in model_root", param="source")
        return str(below)

    def _fail(self, row: _Hosted, error: BaseException) -> None:
        row.state, row.reason = "failed", one_line(error)
        logger.error("the model %s could not be loaded: %s", row.name, row.reason)

    async def _forget(self, row: _Hosted) -> None:
        row.state = "unloading"  # so that no request loads it meanwhile
        try:
            if row.request and row.request.source == UPLOADED:
                await self._archives.delete(row.request.name)
        finally:
            self._rows.pop(row.name, None)
            if self._journal and row.name:
                self._journal.forget(row.name)

    def _note_failures(self, row: _Hosted, count: int) -> None:
        row.failures = count
        if self._journal and row.name:
            self._journal.note_failures(row.name, count)

    def _adopt(self) -> list[_Hosted]:
        """Add the models of the journal that have no row here. Returns those to load."""
        added = self._journal.read().added if self._journal else {}
        rows = []
        for name in [name for name in added if name not in self._rows]:
            try:
                rows.append(self._hosted(AddModelRequest(**added[name])))
            except InvalidField as error:  # its folder no longer exists
                logger.error("the model %s is not served any more: %s", name, error.message)
        for row in rows:
            self._rows[row.name] = row
        return self._restored(rows)

    def _restored(self, rows: list[_Hosted]) -> list[_Hosted]:
        """Set failures and pins from the journal. Returns the rows that no request has unloaded."""
        if not self._journal:
            return rows
        content, failures = self._journal.read(), self._journal.failures()
        for row in rows:
            row.failures = failures.get(row.name or "", 0)
            row.pinned = content.pinned.get(row.name or "", row.pinned)
        return [row for row in rows if row.name not in content.unloaded]


class HostedReplica:
    """The `Replica` of a row, which may be loaded or not. Raises `ModelNotFound` once the row has been removed."""

    def __init__(self, models: LocalModels, name: str | None) -> None:
        self._models = models
        self._name = name

    @property
    def _row(self) -> _Hosted:
        return self._models.row_of(self._name)

    @property
    def adapters(self) -> ReplicaAdapters:
        """See `Replica`. Raises `ModelNotLoaded`."""
        if self._row.replica is None:
            raise ModelNotLoaded(f"the model {self._row.name} is {self._row.state}")
        return self._row.replica.adapters

    @property
    def tokens_run(self) -> int:
        """See `Replica`."""
        return self._row.replica.tokens_run if self._row.replica else 0

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """See `Replica`."""
        async with self._models.using(self._row, call) as replica:
            return await replica.extract(items, call)

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[Part, None]:
        """See `Replica`."""
        async with self._models.using(self._row, call) as replica, aclosing(replica.stream(item, call)) as parts:
            async for part in parts:
                yield part

    async def abort(self, request_id: str) -> bool:
        """See `Replica`."""
        return await self._row.replica.abort(request_id) if self._row.replica else False

    async def status(self) -> ReplicaStatus:
        """See `Replica`. An evicted model is ready: it admits items. Raises `NotReady` until it has been loaded."""
        row = self._row
        if row.replica:
            return await row.replica.status()
        if row.model:
            return ReplicaStatus(model=row.model, ready=row.state in ("evicted", "loading"), **_IDLE)
        raise NotReady(f"the model {row.name} is {row.state}")


def free_memory() -> None:
    """Return unused memory to the system and the device."""
    gc.collect()
    from gliner_bento.engine.memory import release_memory  # noqa: PLC0415  # imports torch

    release_memory()


def _as_public(error: Exception) -> GLiNERBentoError:
    """The public error for an error of a load."""
    if isinstance(error, GLiNERBentoError):
        return error
    if _OUT_OF_MEMORY in str(error) or isinstance(error, MemoryError):
        return DoesNotFit(f"the memory has run out while the model was loaded: {one_line(error)}")
    if not isinstance(error, StartupError | OSError):
        logger.exception("a model could not be loaded")
    return ModelFailed(one_line(error))
