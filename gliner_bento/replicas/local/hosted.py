"""A model of this process, which may be loaded or not, and the replica that stands for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import ModelNotLoaded, NotReady
from gliner_bento.model_types import AddModelRequest, ModelRow, ModelState
from gliner_bento.replicas.base import Call, Outcome, Part, ReplicaAdapters, ReplicaStatus
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import Item

_IDLE: dict[str, Any] = {"waiting_items": 0, "running_items": 0, "waiting_tokens": 0, "running_tokens": 0}


@dataclass(eq=False)
class HostedModel:
    """A model in the table. replica: None while it is not loaded. model: the info of the last replica, which is kept.

    default: requests that name no model get it. loading: done when the model is loaded or has failed. running: number
    of calls under way. admits: whether it admits further calls while it is unloading. drained: set when no call runs.
    failures: failed loads since it was last loaded. request: the request that added it; None: it is in the settings.
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

    @property
    def evictable(self) -> bool:
        """Whether another model may have its memory."""
        return self.state == "ready" and not (self.pinned or self.running or self.default)

    def twin(self, rows: Iterable[HostedModel]) -> HostedModel | None:
        """Another loaded model with the same weights and options."""
        others = (one for one in rows if one is not self and one.replica)
        return next((one for one in others if one.weights_key == self.weights_key), None)


Use: TypeAlias = Callable[[HostedModel, Call], AbstractAsyncContextManager[LocalReplica]]


class HostedReplica:
    """The `Replica` of a row, which may be loaded or not. Raises `ModelNotFound` once the row has been removed."""

    def __init__(self, row: Callable[[], HostedModel], using: Use) -> None:
        """row: finds the row; raises `ModelNotFound`. using: see `LocalModels.using`."""
        self._find_row, self._using = row, using

    @property
    def _row(self) -> HostedModel:
        return self._find_row()

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
        async with self._using(self._row, call) as replica:
            return await replica.extract(items, call)

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[Part, None]:
        """See `Replica`."""
        async with self._using(self._row, call) as replica, aclosing(replica.stream(item, call)) as parts:
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
