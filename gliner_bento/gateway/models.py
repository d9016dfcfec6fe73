"""The table of the models that a gateway serves."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, replace

from gliner_bento.commands import AddModel, ChangeModel, RemoveModel
from gliner_bento.errors import (
    Conflict,
    GLiNERBentoError,
    ModelNotFound,
    ModelNotLoaded,
    NotSupported,
    QueueFull,
)
from gliner_bento.fairness.constants import PASS_CHARS
from gliner_bento.gateway.adapters import AdapterApi
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.languages import LanguageCheck
from gliner_bento.gateway.loop_pacer import LoopPacer
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.overload import OverloadPolicy
from gliner_bento.model_types import AddModelRequest, ModelAction, ModelRow, short_name
from gliner_bento.replicas.base import ROWS_AGE_S, Archive, Call, Models, Outcome, Replica, StreamStep
from gliner_bento.status_types import ModelCard, ModelInfo, ReplicaHealth, ReplicaList
from gliner_bento.tasks.base import ExtractionWarning, Item, Result
from gliner_bento.telemetry.metrics import ReplicaState

SERVING = ("ready", "evicted")
"""States of models that admit requests."""

Replicas = Replica | Mapping[str | None, Replica]
"""Replicas by model name, the default model's first. A model whose name is None, as that of a single replica, is
named after its checkpoint."""


class ServedModel:
    """A served model: its replica and adapters, and the limits and the load of its requests.

    row: its name and state, as last reported. pacer: shared by all models of the gateway. created_s: Unix time.
    """

    def __init__(self, row: ModelRow, replica: Replica, options: GatewayOptions, pacer: LoopPacer) -> None:
        self.name = row.name
        self.replica = replica
        self.row = row
        self.limits = options.with_own(row.limits)
        self.policy = OverloadPolicy(self.limits)
        self.adapters = AdapterApi(replica, self.limits)
        self.created_s = int(time.time())
        self._pacer = pacer
        self._info: ModelInfo | None = None
        self._languages = LanguageCheck(())
        self._probing: asyncio.Future[None] | None = None

    @property
    def in_messages(self) -> str:
        """The model in messages, after "the"; the only model of a server may have no name."""
        return f"model {self.name}" if self.name else "model"

    async def info(self) -> ModelInfo:
        """The replica's model, under its name in requests. Kept after the first call, because a model does not change
        while it serves. Raises `NotReady` until the replica has answered."""
        if self._info is None:
            model = (await self.replica.status()).model
            self._info = replace(model, model=self.name or model.model)
            self._languages = LanguageCheck(self._info.languages)
        return self._info

    def update(self, row: ModelRow) -> None:
        """Set the current row. Unless the model serves, drop `info`: the name may get another checkpoint."""
        self.row = row
        if row.state not in SERVING:
            self._info = None

    def check_serving(self) -> None:
        """Raise `ModelNotLoaded` for a model that no request can use."""
        if self.row.state not in (*SERVING, "loading"):  # the replica decides whether a request waits for loading
            why = f": {self.row.reason}" if self.row.reason else ""
            raise ModelNotLoaded(f"the {self.in_messages} is {self.row.state}{why}")

    def check(self, item: Item) -> None:
        """Raise `InvalidField` for options that the model does not support. Until `info` is known, only the replica
        checks them."""
        if self._info is not None:
            item.check_supported(self._info.model, self._info.tasks)

    async def card(self) -> ModelCard:
        """The model, with the limits of its requests."""
        limits = self.limits
        return ModelCard(
            **asdict(await self.info()),
            max_labels=limits.max_labels,
            max_text_chars=limits.max_text_chars,
            max_batch_items=limits.max_batch_items,
        )

    async def replicas(self) -> ReplicaList:
        """The state of each replica; raises `NotReady` until one has answered."""
        status = await self.replica.status()
        single = ReplicaHealth(
            name="replica",
            state="ready" if status.ready else "not_ready",
            waiting_items=status.waiting_items,
            running_items=status.running_items,
            resident_adapters=status.resident_adapters,
        )
        return ReplicaList(status.replicas or [single])

    async def ready(self) -> bool:
        """Whether the replica admits items."""
        try:
            return (await self.replica.status()).ready
        except GLiNERBentoError:
            return False

    async def state(self) -> ReplicaState:
        """The replica's status, and its adapters if they are enabled; both are None if either cannot be read."""
        try:
            status = await self.replica.status()
            adapters = await self.adapters.cache_status() if self.adapters.enabled else None
        except GLiNERBentoError:
            return ReplicaState(self.name, None, None, self.row.state)
        return ReplicaState(self.name or status.model.model, status, adapters, self.row.state)

    def warnings(self, item: Item, result: Result) -> Sequence[ExtractionWarning]:
        """The replica's warnings, and one about the text's language. An adapter may be trained for other languages, so
        an item with an adapter gets no warning about the language."""
        language_warnings = () if item.adapter_id else self._languages.warnings(item.text)
        return (*result.warnings, *language_warnings)

    async def outcomes(self, context: Context, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """The replica's outcomes; blank results for items that need no model. Raises `QueueFull` if the replica is
        overloaded."""
        with self.policy.admit(items, call.deadline_s, context.tenant, call.priority):
            context.record.admitted = True
            blank = [item.without_model() for item in items]
            asked = [item for item, result in zip(items, blank, strict=True) if result is None]
            answered = await self.replica.extract(asked, call) if asked else ()
            self._observe()
            await self._pacer.wait()
            for item, outcome in zip(asked, answered, strict=True):
                if isinstance(outcome, Result):
                    self._learn(context, item, outcome)
                elif isinstance(outcome, QueueFull):
                    outcome.retry_after_s = self.policy.retry_after_s(len(items))
        rest = iter(answered)
        return [next(rest) if result is None else result for result in blank]

    async def stream(self, context: Context, item: Item, call: Call) -> AsyncGenerator[StreamStep, None]:
        """The replica's parts; one blank result for an item that needs no model. Raises `QueueFull` if the replica is
        overloaded."""
        if blank := item.without_model():
            yield blank
            return
        passes = 1 + len(item.text) // PASS_CHARS
        estimated_deadline_s = min(call.deadline_s, time.monotonic() + passes * call.idle_timeout_s)
        with self.policy.admit([item], estimated_deadline_s, context.tenant, call.priority):
            context.record.admitted = True
            async with aclosing(self.replica.stream(item, call)) as parts:
                async for part in parts:
                    self._observe()
                    if isinstance(part, Result):
                        self._learn(context, item, part)
                    yield part

    def _observe(self) -> None:
        """Pass the replica's throughput, and from time to time its number of unfinished items, to the policy."""
        self.policy.observe(self.replica.tokens_run)
        if set_unfinished_items := self.policy.probe_other_gateways():
            self._probing = asyncio.ensure_future(self._probe(set_unfinished_items))

    async def _probe(self, set_unfinished_items: Callable[[int], None]) -> None:
        with suppress(GLiNERBentoError):
            set_unfinished_items((await self.replica.status()).unfinished_items)

    def _learn(self, context: Context, item: Item, result: Result) -> None:
        """Pass the cost of a result to the policy, and add it to the request's record."""
        self.policy.learn(item, result)
        record = context.record
        record.items += 1
        record.tokens += result.usage.tokens


class RowReader:
    """Reads the rows of `models`, one reading at a time, and passes them to `update`.

    changes: number of changes that this gateway has made: rows whose reading began before a change are dropped.
    """

    def __init__(self, models: Models, update: Callable[[Sequence[ModelRow]], None]) -> None:
        self.changes = 0
        self._models, self._update = models, update
        self._read_s = -math.inf  # when the last successful reading ended
        self._begun = self._ended = 0  # numbers of readings
        self._reading: asyncio.Future[None] | None = None

    @property
    def never_read(self) -> bool:
        """Whether no reading has succeeded."""
        return self._read_s < 0

    async def read(self, age_s: float) -> None:
        """Read the rows, unless they are younger than `age_s`: in a reading that begins now or later."""
        latest = self._begun
        while self._ended <= latest and time.monotonic() >= self._read_s + age_s:
            await asyncio.wait([self._start()])

    def read_soon(self, age_s: float) -> None:
        """As `read`, without waiting."""
        if time.monotonic() >= self._read_s + age_s:
            self._start()

    def _start(self) -> asyncio.Future[None]:
        if self._reading is None or self._reading.done():
            self._begun += 1
            self._reading = asyncio.ensure_future(self._read(self._begun))
        return self._reading

    async def _read(self, number: int) -> None:
        try:
            with suppress(GLiNERBentoError):
                changes: int | None = None
                while changes != self.changes:
                    changes = self.changes
                    rows = await self._models.rows()
                self._read_s = time.monotonic()
                self._update(rows)
        finally:
            self._ended = number


class ModelTable:
    """The served models, by name; the first is the default.

    models: the source of the table's rows, which may change while the server runs; None: the models never change.
    policies: the overload policy of each served model, by name.
    """

    def __init__(self, replicas: Replicas, options: GatewayOptions, models: Models | None = None) -> None:
        self._options, self._models = options, models
        self._pacer = LoopPacer()
        self._rows = RowReader(models, self._update) if models else None
        self._served: dict[str | None, ServedModel] = {}
        self.policies: dict[str | None, OverloadPolicy] = {}
        for name, replica in (replicas if isinstance(replicas, Mapping) else {None: replicas}).items():
            self._put(ModelRow(name=name, state="ready"), replica)

    def __iter__(self) -> Iterator[ServedModel]:
        """The models that are served now: they may change while the caller awaits something about one of them."""
        return iter([*self._served.values()])

    def __len__(self) -> int:
        return len(self._served)

    @property
    def default(self) -> ServedModel:
        """The model of a request that names no model."""
        return next(iter(self._served.values()))

    async def find(self, name: str | None) -> ServedModel:
        """The model with this name. A model without a name is found by its hub id, or by the last part of the hub id.
        None selects the default model. Raises `ModelNotFound`."""
        served = self.default if name is None else await self._named(name)
        if served is None or served.row.state not in SERVING or (self._rows and self._rows.never_read):
            await self.refresh()  # also another gateway may have added or loaded the model just now
            served = self._served.get(served.name) if served else None  # it may have been deleted or replaced
            served = served or (await self._named(name) if name else self.default)
        elif self._rows:
            self._rows.read_soon(ROWS_AGE_S)  # another gateway may have unloaded the model
        if served is None:
            names = [known.name or (await known.info()).model for known in self]
            raise ModelNotFound(f"model: no model {str(name)[:100]!r}; there are {', '.join(names)}", param="model")
        return served

    async def refresh(self, age_s: float = 0.0) -> None:
        """Read the rows again if they are older than `age_s`. The old rows are kept if this fails."""
        if self._rows:
            await self._rows.read(age_s)

    def _update(self, new_rows: Sequence[ModelRow]) -> None:
        """Replace all rows."""
        rows = {row.name: row for row in new_rows}
        for name in self._served.keys() - rows.keys():
            self._drop(name)
        for row in rows.values():
            self._apply(row)

    def _drop(self, name: str | None) -> None:
        """Serve a model no more: this gateway, or another one, has removed it."""
        if self._served.pop(name, None):
            del self.policies[name]
            assert self._models
            self._models.forget(str(name))

    async def ready(self) -> bool:
        """Whether at least one model serves, all serving models admit items, and no required model has failed."""
        await self.refresh(ROWS_AGE_S)
        serving = [served for served in self if served.row.state in SERVING]
        failed = any(served.row.required and served.row.state == "failed" for served in self)
        return bool(serving) and not failed and all([await served.ready() for served in serving])

    async def add(self, request: AddModelRequest, archive: Archive | None = None) -> ServedModel:
        """See `AddModel`."""
        return self._changed(await self._changeable.apply(AddModel(request, self._options.request_timeout_s), archive))

    async def change(self, name: str, action: ModelAction) -> ServedModel:
        """See `ChangeModel`. Raises `Conflict` for unloading a model that a ready server needs."""
        models = self._changeable
        if action == "unload":
            await self._check_not_needed(name)
        return self._changed(await models.apply(ChangeModel(name, action, self._options.request_timeout_s)))

    async def remove(self, name: str) -> None:
        """See `RemoveModel`. Raises `Conflict` for a model that a ready server needs."""
        models = self._changeable
        await self._check_not_needed(name)
        await models.apply(RemoveModel(name, self._options.request_timeout_s))
        if self._rows:
            self._rows.changes += 1  # rows that are being read may be older
        self._drop(name)
        await self.refresh()

    async def _check_not_needed(self, name: str) -> None:
        """Raise `Conflict` for the default model, or the only one that serves, while the server is ready: load
        balancers then send it requests that nothing would answer."""
        await self.refresh()
        serving = [served for served in self if served.row.state in SERVING]
        served = await self._named(name)
        if served not in serving or not await self.ready():
            return
        if served is self.default:
            raise Conflict(f"{name} is the default model, which requests without a model get; it cannot be unloaded")
        if len(serving) == 1:
            raise Conflict(f"{name} is the only model that serves; load another one first")

    def _changed(self, row: ModelRow) -> ServedModel:
        """Apply the row of a model that this gateway has changed. Rows that are being read may be older."""
        if self._rows:
            self._rows.changes += 1
        return self._apply(row)

    @property
    def _changeable(self) -> Models:
        if self._models is None:
            raise NotSupported("the models of this server cannot be changed while it runs")
        return self._models

    async def _named(self, name: str) -> ServedModel | None:
        if name in self._served:
            return self._served[name]
        unnamed = [served for served in self if not served.name]
        checkpoints = [(served, (await served.info()).model) for served in unnamed]
        return next((served for served, hub_id in checkpoints if name in (hub_id, short_name(hub_id))), None)

    def _apply(self, row: ModelRow) -> ServedModel:
        """Update, replace or add the model of a row, and return it."""
        if row.name not in self._served:
            assert self._models
            self._put(row, self._models.replica(str(row.name)))
        elif row.limits != self._served[row.name].row.limits:
            self._put(row, self._served[row.name].replica)
        self._served[row.name].update(row)
        return self._served[row.name]

    def _put(self, row: ModelRow, replica: Replica) -> None:
        self._served[row.name] = ServedModel(row, replica, self._options, self._pacer)
        self.policies[row.name] = self._served[row.name].policy
