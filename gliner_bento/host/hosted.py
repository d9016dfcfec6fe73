"""A row of the table of models (`LocalModels`), and the `Replica` that loads its model when it is called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.commands import AdapterCommand
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import ModelNotLoaded, NotReady
from gliner_bento.host.eviction import Weights
from gliner_bento.model_types import AddModelRequest, ModelRow, ModelState
from gliner_bento.replicas.base import Archive, Call, Outcome, ReplicaStatus, StreamStep
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import Item

T = TypeVar("T")

_IDLE: dict[str, Any] = {"waiting_items": 0, "running_items": 0, "waiting_tokens": 0, "running_tokens": 0}


@dataclass(eq=False)
class HostedModel:
    """A model in the table. replica: None while it is not loaded. info: from its latest replica, which may be closed.

    default: requests that name no model get it. loading: the load under way, done when the model is loaded, has
    failed, or is deleted. waiting: the task of that load while it waits for other loads. running: number of calls under
    way. admits: whether it admits further calls while it is unloading. drained: set when no call runs. last_used_s:
    when a call last began or ended, on the clock of `Machine`. failures: failed loads since it was last loaded.
    deleted: set when the model is deleted; a load under way is then discarded. request: the request that added it; None
    for a model of the settings.
    """

    name: str | None
    settings: Settings
    default: bool = False
    pinned: bool = False
    required: bool = False
    state: ModelState = "unloaded"
    reason: str | None = None
    bytes: int | None = None
    replica: LocalReplica | None = None
    info: ModelInfo | None = None
    loading: asyncio.Future[None] | None = None
    waiting: asyncio.Task[None] | None = None
    running: int = 0
    admits: bool = False
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    last_used_s: float = 0.0
    failures: int = 0
    deleted: threading.Event = field(default_factory=threading.Event)
    request: AddModelRequest | None = None

    @property
    def title(self) -> str:
        """The model in messages: its name; a single model may have only that of its checkpoint."""
        return self.name or (self.info.model if self.info else self.settings.model)

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings of this model only, and its properties, such as `pinned`; see `model_settings`."""
        return dict(self.settings.model_settings.get(self.name or "", {}))

    @property
    def public_row(self) -> ModelRow:
        """The row as `Models.rows` returns it."""
        own = self.own_settings.items()
        limits = {name: value for name, value in own if isinstance(value, str | int | float | tuple | bool)}
        return ModelRow(
            name=self.name,
            state=self.state,
            reason=self.reason,
            pinned=self.pinned,
            required=self.required,
            bytes=self.bytes,
            limits=limits,
        )

    @property
    def weights(self) -> Weights:
        """Loaded models with equal keys share their weights and adapters."""
        settings = self.settings
        options = settings.view(EngineOptions), settings.view(AdapterSettings)
        return Weights((settings.model, settings.device, settings.dtype, options), self.bytes or 0)

    @property
    def evictable(self) -> bool:
        """Whether another model may have its memory."""
        return self.state == "ready" and not (self.pinned or self.running or self.default)

    def twin(self, rows: Iterable[HostedModel]) -> HostedModel | None:
        """Another loaded model with the same weights and options."""
        others = (row for row in rows if row is not self and row.replica)
        return next((row for row in others if row.weights.key == self.weights.key), None)


UseModel: TypeAlias = Callable[[HostedModel, Call], AbstractAsyncContextManager[LocalReplica]]


class HostedReplica:
    """The `Replica` of a row, whose model may not be loaded. Raises `ModelNotFound` once the row has been removed."""

    def __init__(self, find_row: Callable[[], HostedModel], using: UseModel) -> None:
        """find_row: raises `ModelNotFound`. using: see `ModelLoader.using`."""
        self._find_row, self._using = find_row, using

    @property
    def _row(self) -> HostedModel:
        return self._find_row()

    @property
    def tokens_run(self) -> int:
        return self._row.replica.tokens_run if self._row.replica else 0

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        async with self._using(self._row, call) as replica:
            return await replica.extract(items, call)

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[StreamStep, None]:
        async with self._using(self._row, call) as replica, aclosing(replica.stream(item, call)) as steps:
            async for step in steps:
                yield step

    async def abort(self, request_id: str) -> bool:
        return await self._row.replica.abort(request_id) if self._row.replica else False

    async def status(self) -> ReplicaStatus:
        """See `Replica`. An evicted model is ready: a call loads it. Raises `NotReady` if it was never loaded."""
        row = self._row
        if row.replica:
            return await row.replica.status()
        if row.info:
            return ReplicaStatus(model=row.info, ready=row.state in ("evicted", "loading"), **_IDLE)
        raise NotReady(f"the model {row.title} is {row.state}")

    async def apply(self, command: AdapterCommand[T], archive: Archive | None = None) -> T:
        """See `Replica`. Raises `ModelNotLoaded` while the model is not loaded."""
        row = self._row
        if row.replica is None:
            raise ModelNotLoaded(f"the model {row.title} is {row.state}")
        return await row.replica.apply(command, archive)
