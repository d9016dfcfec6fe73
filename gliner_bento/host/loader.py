"""Loads, evicts and unloads models while others serve, in one event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from gliner_bento.engine.checkpoint.find import WHOLE
from gliner_bento.errors import (
    DeadlineExceeded,
    DoesNotFit,
    GLiNERBentoError,
    ModelFailed,
    ModelNotLoaded,
    StartupError,
    one_line,
)
from gliner_bento.host.eviction import LoadedModel, Room, victims_for
from gliner_bento.host.hosted import HostedModel
from gliner_bento.host.memory import total_bytes, weights_bytes
from gliner_bento.host.probe import ProbeLimits, probe
from gliner_bento.host.recovery import Recovery
from gliner_bento.model_types import ModelState
from gliner_bento.replicas.base import Call
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.scheduler.turns import DeviceTurns, ModelTurns
from gliner_bento.settings import Settings

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


@dataclass
class Machine:
    """How models get onto this machine. load, cores: see `LocalReplica.load`. probe, weights, capacity: see the
    functions that are their defaults."""

    load: LoadReplica
    cores: int | None = None
    probe: Callable[[Settings, ProbeLimits], None] = probe
    weights: Callable[[Settings], int] = weights_bytes
    capacity: Callable[[str], int | None] = total_bytes
    clock: Callable[[], float] = time.monotonic


class ModelLoader:
    """Changes which of the `rows` are loaded. shares_device: several models may be loaded.

    linger_s: how long a model that is being unloaded still admits calls, until all gateways have learned of it.
    """

    def __init__(
        self,
        rows: Mapping[str | None, HostedModel],
        settings: Settings,
        machine: Machine,
        recovery: Recovery,
        *,
        shares_device: bool,
        linger_s: float,
    ) -> None:
        self._rows, self.settings, self._recovery = rows, settings, recovery
        self._shares_device, self._linger_s = shares_device, linger_s
        self.machine = machine
        self._changing = asyncio.Lock()
        self._turns: dict[str, DeviceTurns] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._loads: set[asyncio.Task[None]] = set()  # the event loop itself does not keep tasks alive

    def loaded(self) -> list[LocalReplica]:
        """The replicas of the models in memory."""
        return [row.replica for row in self._rows.values() if row.replica]

    @asynccontextmanager
    async def using(self, row: HostedModel, call: Call) -> AsyncIterator[LocalReplica]:
        """The replica of a model while a call runs; an evicted model is loaded first."""
        self.sweep_soon()
        row.last_used_s = self.machine.clock()
        if row.replica is None:
            await self._load_again(row, call)
        if row.replica is None or (row.state == "unloading" and not row.admits):
            raise ModelNotLoaded(f"the model {row.title} is {row.state}")
        row.running += 1
        try:
            yield row.replica
        finally:
            row.running -= 1
            row.last_used_s = self.machine.clock()
            if not row.running:
                row.drained.set()

    # Loading

    async def _load_again(self, row: HostedModel, call: Call) -> None:
        """Load an evicted model for a call, which waits within its deadline or is refused (`evicted_models`)."""
        if row.state == "evicted":
            self.start(row)
        if row.loading is None or row.state != "loading":  # its archive may still be arriving
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

    async def begin(self, row: HostedModel, timeout_s: float) -> None:
        """Load a model. Raises what the load raises, and `DeadlineExceeded` after `timeout_s`; loading continues."""
        loading = self.start(row)
        try:
            await asyncio.wait_for(asyncio.shield(loading), timeout_s)
        except asyncio.TimeoutError:
            raise DeadlineExceeded(f"the model {row.title} is still loading; GET /v1/models shows its state") from None

    def start(self, row: HostedModel) -> asyncio.Future[None]:
        """Begin to load a model; the future is done when it is loaded, has failed, or is deleted."""
        previous, row.state = row.state, "loading"
        loading = row.loading = asyncio.get_running_loop().create_future()
        loading.add_done_callback(lambda done: done.exception())  # marks the error as retrieved
        row.waiting = asyncio.ensure_future(self._load_in_background(row, previous, loading))
        self._loads.add(row.waiting)
        row.waiting.add_done_callback(self._loads.discard)
        return loading

    async def _load_in_background(self, row: HostedModel, previous: ModelState, loading: asyncio.Future[None]) -> None:
        error: Exception | None = None
        try:
            await self.load(row)
        except Exception as failure:
            error = failure
        if loading.done():  # `discard_load` has answered those who wait
            return
        row.loading = None
        if error is None:
            loading.set_result(None)
            return
        if isinstance(error, DoesNotFit):
            row.state, row.reason = previous, error.message
        else:
            self.fail(row, error)
        loading.set_exception(error)

    def discard_load(self, row: HostedModel) -> None:
        """Fail all who wait for the load of a deleted model. The process that tries the model is killed; a load in this
        process goes on to its end, because libraries cannot be interrupted, and its result is closed."""
        if row.waiting:
            row.waiting.cancel()
        if row.loading:
            row.loading.set_exception(_deleted(row))
        row.loading = row.waiting = None

    async def load(self, row: HostedModel) -> None:
        """Evict models until this one fits, and load it. Raises `ModelFailed`; `DoesNotFit` if evicting all
        idle models would not suffice (usually before any is evicted), or if the memory runs out during the load."""
        async with self._changing:
            row.waiting = None
            if row.failures >= self.settings.max_load_failures:
                raise ModelFailed(f"{row.title} has failed {row.failures} times; delete it, and add it again")
            may_crash = row.failures > 0 or row.request is not None
            self._recovery.note_failures(row, row.failures + 1)  # before the load, which may kill the process
            try:
                if row.bytes is None:
                    row.bytes = await asyncio.to_thread(self.machine.weights, row.settings)
                while not row.deleted.is_set() and (
                    victims := self._victims(row)
                ):  # chosen again each time: requests may have begun
                    logger.info("%s is evicted for %s", victims[0].title, row.title)
                    await self._close(victims[0], "evicted")
                if may_crash and row.info is None and self.settings.probe_models:
                    limits = ProbeLimits(_PROBE_TIMEOUT_S, row.bytes, row.deleted)
                    await asyncio.to_thread(self.machine.probe, row.settings, limits)
                if row.deleted.is_set():
                    raise _deleted(row)
                row.replica = await asyncio.to_thread(self._make_replica, row, row.twin(self._rows.values()))
                if row.deleted.is_set():
                    await self._close(row, "unloading")
                    raise _deleted(row)
            except Exception as error:
                failure = _deleted(row) if row.deleted.is_set() else _as_public(error, row.settings.model)
                if isinstance(failure, DoesNotFit):  # does not count as a failure
                    self._recovery.note_failures(row, row.failures - 1)
                await asyncio.to_thread(free_memory)
                raise failure from error
            row.info, row.state, row.reason = row.replica.model, "ready", None
            row.failures, row.last_used_s = 0, self.machine.clock()
            self._recovery.note_loaded(row)

    def _make_replica(self, row: HostedModel, twin: HostedModel | None) -> LocalReplica:
        turns = self._join_device(row) if self._shares_device else None
        try:
            shared = twin.replica if twin else None
            return self.machine.load(row.settings, name=row.name, turns=turns, shared=shared)
        except BaseException:
            if turns:
                turns.leave()
            raise

    def _join_device(self, row: HostedModel) -> ModelTurns:
        from gliner_bento.engine.checkpoint.device import pick_device  # noqa: PLC0415  # imports torch

        device = str(pick_device(row.settings.device))
        lanes = row.settings.decided_for(device, self.machine.cores).inference_lanes
        return self._turns.setdefault(device, DeviceTurns(lanes)).join(row.name or "")

    def _victims(self, row: HostedModel) -> Sequence[HostedModel]:
        """The models to evict for `row`; see `victims_for`. While no model is loaded, any size is accepted."""
        rows = [model for model in self._rows.values() if model.replica]
        loaded = [LoadedModel(model.weights, model.last_used_s, model.evictable) for model in rows]
        total = self.machine.capacity(rows[0].info.device) if rows and rows[0].info else None
        max_bytes = None if total is None else int(total * self.settings.model_memory_fraction)
        room = Room(max_bytes, self.settings.max_loaded_models or len(self._rows))
        return [rows[place] for place in victims_for(row.title, row.weights, loaded, room)]

    # Unloading

    async def unload(self, row: HostedModel, timeout_s: float) -> None:
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
        self._recovery.note_unloaded(row)

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

    def sweep_soon(self) -> None:
        """Have idle models evicted, if the settings say so."""
        if self.settings.model_idle_unload_s and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.ensure_future(self._sweep())

    async def _sweep(self) -> None:
        """Evict idle models. Ends when only the default model and pinned models are loaded."""
        idle_s = self.settings.model_idle_unload_s
        while rows := [row for row in self._rows.values() if row.replica and not (row.pinned or row.default)]:
            async with self._changing:
                for row in rows:
                    if row.evictable and self.machine.clock() >= row.last_used_s + idle_s:
                        logger.info("%s is evicted: no request for %g s", row.title, idle_s)
                        await self._close(row, "evicted")
            await asyncio.sleep(min(1.0, idle_s / 4))

    def fail(self, row: HostedModel, error: BaseException) -> None:
        """Report in its row that a model cannot be loaded."""
        row.state, row.reason = "failed", one_line(error)
        logger.error("the model %s could not be loaded: %s", row.title, one_line(error.__cause__ or error))


def _deleted(row: HostedModel) -> ModelFailed:
    return ModelFailed(f"{row.title} was deleted before it was loaded")


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
