"""A replica in this process: a scheduler over one engine. Loads and warms up the model; drains the scheduler."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from gliner_bento.adapters.base import AdapterObserver
from gliner_bento.commands import AdapterCommand
from gliner_bento.engine.base import Engine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.replicas.base import Archive, Call, Outcome, ReplicaStatus, StreamStep
from gliner_bento.replicas.local.adapters import LocalAdapters
from gliner_bento.replicas.local.loop_calls import LoopCalls
from gliner_bento.replicas.local.partial_results import PartialResults
from gliner_bento.replicas.local.work_log import WorkLog
from gliner_bento.scheduler.entry import Terms
from gliner_bento.scheduler.observer import Observer
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.scheduler.turns import ModelTurns
from gliner_bento.settings import Settings
from gliner_bento.status_types import SelfTest
from gliner_bento.tasks.base import Item, Result
from gliner_bento.tasks.classifications import Classification
from gliner_bento.tasks.extraction import ExtractionItem

T = TypeVar("T")
logger = logging.getLogger(__name__)

_WARM_UP_TIMEOUT_S = 300.0
_WARM_UP_TEXT = "The server is ready when this sentence has a result."
_WARM_UP_LABELS = {"result": "result", "sentence": "sentence"}


def _log_hang(reason: str) -> None:
    logger.critical("the model hangs: %s", reason)


class ReplicaObserver(Observer, AdapterObserver, Protocol):
    """Hooks for metrics."""

    def on_self_test(self, outcome: SelfTest) -> None:
        """Called when the model is loaded."""


class LocalReplica:
    """A `Replica` in this process. `load` loads its model and warms it up; the constructor takes a loaded engine."""

    def __init__(
        self,
        engine: Engine,
        config: SchedulerConfig,
        *,
        adapters: LocalAdapters,
        observer: ReplicaObserver | None = None,
        tracer: Observer | None = None,
        turns: ModelTurns | None = None,
    ) -> None:
        self.adapters = adapters
        self.model = engine.info
        self.engine = engine
        self._work_log = WorkLog()
        self._loop_calls: LoopCalls | None = None  # of the loop of the last call
        observers = [given for given in (self._work_log, observer, tracer) if given is not None]
        self.scheduler = Scheduler(engine, config, observers=observers, turns=turns)
        self.scheduler.start()

    @classmethod
    def load(
        cls,
        settings: Settings,
        observer_of: Callable[[str], ReplicaObserver] | None = None,
        on_hang: Callable[[str], None] = _log_hang,
        tracer: Observer | None = None,
        cores: int | None = None,
        name: str | None = None,
        turns: ModelTurns | None = None,
        shared: LocalReplica | None = None,
    ) -> LocalReplica:
        """Load the model that `settings` name, and warm it up. Blocks; raises `StartupError`, `ModelError` included.

        observer_of: makes the observer of a model, from its name. on_hang: called once with the reason when a thread
        of the model hangs, after all items have failed.
        tracer: observes the timing of items whose `Call` has a trace. cores: default: all that the process may use.
        name: the name that the model is served under; default: the name of its checkpoint. turns: the model's turns on
        a device that it shares with other models.
        shared: a replica of the same checkpoint with the same options, whose weights and adapters this one uses.
        """
        started_s = time.monotonic()
        LocalAdapters.check_storage(settings)
        from gliner_bento.engine.checkpoint.device import pick_device  # noqa: PLC0415  # imports torch

        decided = settings.decided_for(str(pick_device(settings.device)), cores)
        options = decided.view(EngineOptions)
        engine: Any = shared.engine if shared else None
        if engine is None:
            from gliner_bento.engine.engine import GLiNEREngine  # noqa: PLC0415  # imports gliner

            engine = GLiNEREngine.load(
                decided.model, device=decided.device, dtype=decided.dtype, options=options, name=name
            )
        served_name = name or engine.info.model
        observer = observer_of(served_name) if observer_of else None
        if observer:
            observer.on_self_test(engine.info.self_test)
        adapters = shared.adapters if shared else LocalAdapters.load(engine, decided, observer)
        config = decided.view(SchedulerConfig)
        replica = cls(engine, config, adapters=adapters, observer=observer, tracer=tracer, turns=turns)
        try:
            sizes = [size for size in settings.precompiled_batch_sizes if size <= settings.queue_capacity]
            replica.warm_up(sizes, settings.warmup_iterations)
        except BaseException:
            replica.close(shared=shared is not None)
            raise
        replica.scheduler.watch_for_hangs(on_hang)
        logger.info("%s is ready on %s in %.1f s", served_name, engine.info.device, time.monotonic() - started_s)
        return replica

    def warm_up(self, batch_sizes: Sequence[int], iterations: int) -> None:
        """Run one item, then a batch of each size, `iterations` times. Raises the error of an item that fails."""
        if "entities" in self.model.tasks:
            item = ExtractionItem(_WARM_UP_TEXT, _WARM_UP_LABELS, threshold=0.0)
        else:
            item = ExtractionItem(_WARM_UP_TEXT, classifications={"warm-up": Classification(_WARM_UP_LABELS)})
        for size in [1, *(list(batch_sizes) * iterations)]:
            for future in self.scheduler.submit_many([item] * size, request_id="warm-up"):
                future.result(_WARM_UP_TIMEOUT_S)

    async def extract(self, items: Sequence[Item], call: Call) -> list[Outcome]:
        if not items:
            return []
        loop = asyncio.get_running_loop()
        if self._loop_calls is None or self._loop_calls.loop is not loop:
            self._loop_calls = LoopCalls(loop)
        calls, answered = self._loop_calls, loop.create_future()
        try:
            submitted = self.scheduler.submit_together(items, partial(calls.add, _resolve, answered), **_terms(call))
        except GLiNERBentoError as refusal:
            return [refusal] * len(items)
        try:
            outcomes: list[Outcome] = await answered
        except asyncio.CancelledError:
            self.scheduler.cancel(submitted)
            raise
        return outcomes

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[StreamStep, None]:
        partial_results = PartialResults(partial(self.scheduler.resume, call.request_id))
        future = self.scheduler.submit_stream(item, partial_results, idle_timeout_s=call.idle_timeout_s, **_terms(call))
        future.add_done_callback(partial_results.end)
        streamed = 0
        try:
            async for parts in partial_results:
                streamed += len(parts)
                yield parts
            result: Result = await asyncio.wrap_future(future)
            yield result.rest(streamed)
        finally:
            future.cancel()

    async def abort(self, request_id: str) -> bool:
        return self.scheduler.abort(request_id)

    async def status(self) -> ReplicaStatus:
        stats = self.scheduler.stats
        return ReplicaStatus(
            model=self.model,
            ready=self.ready,
            waiting_items=stats.preparing_items + stats.waiting_items,
            running_items=stats.running_items,
            waiting_tokens=stats.waiting_tokens,
            running_tokens=stats.running_tokens,
            resident_adapters=self.adapters.resident,
            unfinished_items=stats.unfinished_items,
            lanes=stats.lanes,
            idle_lanes=stats.lanes_free,
            busy_lanes=stats.lanes_alive - stats.lanes_free,
            throughput=self._work_log.throughput(),
        )

    async def apply(self, command: AdapterCommand[T], archive: Archive | None = None) -> T:
        return await self.adapters.apply(command, archive)

    @property
    def tokens_run(self) -> int:
        return self.scheduler.tokens_run

    @property
    def ready(self) -> bool:
        """Whether it admits items and all its threads are alive."""
        return self.scheduler.ready

    def drain(self, timeout_s: float) -> bool:
        """Stop admitting items, and wait until all have finished; returns False after `timeout_s`. Blocks."""
        return self.scheduler.drain(timeout_s)

    def close(self, *, shared: bool = False) -> None:
        """Fail unfinished items with `NotReady`, and stop all threads. shared: leave the adapters open."""
        self.scheduler.close()
        if not shared:
            self.adapters.close()


def _terms(call: Call) -> Terms:
    return {
        "request_id": call.request_id,
        "deadline": call.deadline_s,
        "priority": call.priority,
        "share": call.share,
        "trace": call.trace,
    }


def _resolve(answered: asyncio.Future[Any], outcomes: Sequence[Outcome]) -> None:
    if not answered.done():  # else its caller was cancelled
        answered.set_result(outcomes)
