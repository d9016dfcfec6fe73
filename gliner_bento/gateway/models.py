"""The models that a gateway serves: a table, in which a request finds its own."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from copy import copy
from dataclasses import asdict, replace

from gliner_bento.errors import (
    GLiNERBentoError,
    ModelNotFound,
    ModelNotLoaded,
    NotSupported,
    QueueFull,
)
from gliner_bento.fairness.constants import PASS_CHARS
from gliner_bento.gateway import request_record
from gliner_bento.gateway.adapters import AdapterApi
from gliner_bento.gateway.languages import LanguageCheck
from gliner_bento.gateway.loop_pacer import LoopPacer
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy import tenants
from gliner_bento.gateway.policy.overload import OverloadPolicy
from gliner_bento.model_types import AddModelRequest, ModelAction, ModelRow
from gliner_bento.replicas.base import ROWS_AGE_S, Archive, Call, Models, Outcome, Part, Replica
from gliner_bento.status_types import ModelCard, ModelInfo, ReplicaHealth, ReplicaList
from gliner_bento.tasks.base import ExtractionWarning, Item, Result
from gliner_bento.telemetry.metrics import ReplicaState

SERVING = ("ready", "evicted")
"""States of models that admit requests."""

Replicas = Replica | Mapping[str | None, Replica]
"""By the names that their models were given, the default's first; a model without one, or a single replica's, is named
as its checkpoint."""


class ServedModel:
    """A row of the table: a model's replica, its load, the limits of its requests, and its adapters.

    row: its name and state. pacer: the gateway's, which all models share.
    """

    def __init__(self, row: ModelRow, replica: Replica, options: GatewayOptions, pacer: LoopPacer) -> None:
        self.given = row.name
        self.replica = replica
        self.row = row
        lists = {name: tuple(value) for name, value in row.limits.items() if isinstance(value, list)}
        own = {name: value for name, value in {**row.limits, **lists}.items() if hasattr(options, name)}
        self.limits = replace(options, **own)
        self.policy = OverloadPolicy(self.limits)
        self.adapters = AdapterApi(replica, self.limits)
        self._pacer = pacer
        self._info: ModelInfo | None = None
        self._languages = LanguageCheck(())
        self._probing: asyncio.Future[None] | None = None

    async def info(self) -> ModelInfo:
        """The replica's model, under the name that it is served by. Requested once, because a replica's model never
        changes. Raises `NotReady` until the replica has answered."""
        if self._info is None:
            model = (await self.replica.status()).model
            self._info = replace(model, model=self.given or model.model)
            self._languages = LanguageCheck(self._info.languages)
        return self._info

    def note(self, row: ModelRow) -> None:
        """The row's state now. Another checkpoint may be loaded under its name, unless it serves."""
        self.row = row
        if row.state not in SERVING:
            self._info = None

    def check_serving(self) -> None:
        """Raise `ModelNotLoaded` for a model that no request can use."""
        if self.row.state not in (*SERVING, "loading"):
            why = f": {self.row.reason}" if self.row.reason else ""
            raise ModelNotLoaded(f"the model {self.given} is {self.row.state}{why}")

    def check(self, item: Item) -> None:
        """Raise InvalidField for options that the model does not support; while the model is unknown, its replica
        raises it."""
        if self._info is not None:
            item.check_supported(self._info.model, self._info.tasks)

    async def card(self) -> ModelCard:
        """What is served, and with which limits."""
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
        alone = ReplicaHealth(
            name="replica",
            state="ready" if status.ready else "not_ready",
            waiting_items=status.waiting_items,
            running_items=status.running_items,
            resident_adapters=status.resident_adapters,
        )
        return ReplicaList(status.replicas or [alone])

    async def ready(self) -> bool:
        """Whether the replica admits items."""
        try:
            return (await self.replica.status()).ready
        except GLiNERBentoError:
            return False

    async def state(self) -> ReplicaState:
        """The replica's status, and its adapters if they are enabled; None for what it does not report."""
        try:
            status = await self.replica.status()
            adapters = await self.adapters.cache_status() if self.adapters.enabled else None
        except GLiNERBentoError:
            return ReplicaState(self.given, None, None, self.row.state)
        return ReplicaState(self.given or status.model.model, status, adapters, self.row.state)

    def warnings(self, item: Item, result: Result) -> Sequence[ExtractionWarning]:
        """The replica's warnings, and one for the text's language. An adapter may be trained for other languages."""
        return (*result.warnings, *(() if item.adapter_id else self._languages.warnings(item.text)))

    async def outcomes(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """The replica's outcomes. Raises `QueueFull` if it is overloaded."""
        with self._admitted(items, call.deadline_s, call.priority):
            outcomes = await self.replica.extract(items, call)
            self._observe()
            await self._pacer.wait()
            for item, outcome in zip(items, outcomes, strict=True):
                if isinstance(outcome, Result):
                    self._learn(item, outcome)
                elif isinstance(outcome, QueueFull):
                    outcome.retry_after_s = self.policy.retry_after_s(len(items))
        return outcomes

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[Part, None]:
        """The replica's parts. Raises `QueueFull` if it is overloaded."""
        passes = 1 + len(item.text) // PASS_CHARS
        latest_s = min(call.deadline_s, time.monotonic() + passes * call.idle_timeout_s)
        with self._admitted([item], latest_s, call.priority):
            async with aclosing(self.replica.stream(item, call)) as parts:
                async for part in parts:
                    self._observe()
                    if isinstance(part, Result):
                        self._learn(item, part)
                    yield part

    @contextmanager
    def _admitted(self, items: Sequence[Item], latest_s: float, priority: int) -> Iterator[None]:
        with self.policy.admit(items, latest_s, tenants.current(), priority):
            request_record.current().admitted = True
            yield

    def _observe(self) -> None:
        """Pass the replica's throughput, and from time to time its load from other gateways, to the policy."""
        self.policy.observe(self.replica.tokens_run)
        if note := self.policy.probe_other_gateways():
            self._probing = asyncio.ensure_future(self._probe(note))

    async def _probe(self, note: Callable[[int], None]) -> None:
        with suppress(GLiNERBentoError):
            note((await self.replica.status()).unfinished_items)

    def _learn(self, item: Item, result: Result) -> None:
        """Note the cost of a result, for admission and in the request's record."""
        self.policy.learn(item, result)
        record = request_record.current()
        record.items += 1
        record.tokens += result.usage.tokens


class ModelTable:
    """The served models, by name; the first is the default. Mirrors the rows of `models`, which may change while the
    server runs; None: they cannot.

    policies: of each model by its name; changes with the rows.
    """

    def __init__(self, replicas: Replicas, options: GatewayOptions, models: Models | None = None) -> None:
        self._options, self._models = options, models
        self._chosen: ServedModel | None = None
        self._pacer = LoopPacer()
        self._refreshed_s = -math.inf
        self._refreshing: asyncio.Future[None] | None = None
        self._rows: dict[str | None, ServedModel] = {}
        self.policies: dict[str | None, OverloadPolicy] = {}
        for name, replica in (replicas if isinstance(replicas, Mapping) else {None: replicas}).items():
            self._add(ModelRow(name=name, state="ready"), replica)

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def default(self) -> ServedModel:
        """The model of a request that names none."""
        return self._chosen or next(iter(self))

    async def starting_with(self, name: str) -> ModelTable:
        """The same table with another default. Raises `ModelNotFound`."""
        chosen = await self.find(name)
        table = copy(self)
        table._chosen = chosen
        return table

    async def find(self, name: str | None) -> ServedModel:
        """A model by its name, or the last part of its hub id; None: the default. Raises `ModelNotFound`."""
        served = self.default if name is None else await self._named(name)
        if (self._models and self._refreshed_s < 0) or served is None or served.row.state not in SERVING:
            await self.refresh(ROWS_AGE_S)
            served = (served and self._rows.get(served.given)) or (await self._named(name) if name else self.default)
        elif self._is_old and (not self._refreshing or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self.refresh())  # another gateway may unload the model
        if served is None:
            names = [row.given or (await row.info()).model for row in self]
            raise ModelNotFound(f"model: no model {str(name)[:100]!r}; there are {', '.join(names)}", param="model")
        return served

    @property
    def _is_old(self) -> bool:
        return self._models is not None and time.monotonic() >= self._refreshed_s + ROWS_AGE_S

    async def refresh(self, age_s: float = 0.0) -> None:
        """Read the rows again, if they are older than `age_s`. They stay as they are if nothing answers."""
        if self._models and time.monotonic() >= self._refreshed_s + age_s:
            with suppress(GLiNERBentoError):
                rows = {row.name: row for row in await self._models.rows()}
                self._refreshed_s = time.monotonic()
                for name in self._rows.keys() - rows.keys():
                    del self._rows[name], self.policies[name]
                for row in rows.values():
                    self._note(row)

    async def ready(self) -> bool:
        """Whether at least one model serves, and every model that should."""
        await self.refresh(ROWS_AGE_S)
        serving = [served for served in self if served.row.state in SERVING]
        failed = any(served.row.required and served.row.state == "failed" for served in self)
        return bool(serving) and not failed and all([await served.ready() for served in serving])

    async def add(self, request: AddModelRequest, archive: Archive | None = None) -> ServedModel:
        """See `Models`."""
        return self._note(await self._changeable.add(request, self._options.request_timeout_s, archive))

    async def change(self, name: str, action: ModelAction) -> ServedModel:
        """See `Models`."""
        return self._note(await self._changeable.change(name, action, self._options.request_timeout_s))

    async def remove(self, name: str) -> None:
        """See `Models`."""
        await self._changeable.remove(name, self._options.request_timeout_s)
        await self.refresh()

    @property
    def _changeable(self) -> Models:
        if self._models is None:
            raise NotSupported("the models of this server cannot be changed while it runs")
        return self._models

    async def _named(self, name: str) -> ServedModel | None:
        if name in self._rows:
            return self._rows[name]
        unnamed = [row for row in self if not row.given]
        infos = [(row, (await row.info()).model) for row in unnamed]
        return next((row for row, known in infos if name in (known, short_name(known))), None)

    def _note(self, row: ModelRow) -> ServedModel:
        """The row's model, which is added if it is new."""
        if row.name not in self._rows:
            assert self._models
            self._add(row, self._models.replica(str(row.name)))
        elif row.limits != self._rows[row.name].row.limits:
            self._add(row, self._rows[row.name].replica)
        self._rows[row.name].note(row)
        return self._rows[row.name]

    def _add(self, row: ModelRow, replica: Replica) -> None:
        self._rows[row.name] = ServedModel(row, replica, self._options, self._pacer)
        self.policies[row.name] = self._rows[row.name].policy


def short_name(name: str) -> str:
    """The last part of a hub id."""
    return name.rstrip("/").rpartition("/")[2]
