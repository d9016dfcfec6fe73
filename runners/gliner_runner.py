"""GLiNERRunner: one model replica. Hosts the scheduler and its engine, and nothing else.

An item's failure is data (`{"error": ...}`), never an exception: across BentoML's hop an exception loses its class and
its message.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import bentoml
from bentoml.validators import ContentType

from gliner_bento.disconnect import CancelOnDisconnect
from gliner_bento.types import Entity, Extraction, Item, Relation
from gliner_bento.engine.options import EngineOptions
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.log import join_bentoml
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.settings import Settings, load_or_exit
from gliner_bento.types import RunnerItem, RunnerOutcome
from runners.adapter_calls import AdapterCalls
from runners.stream import Feed, line

if TYPE_CHECKING:
    from gliner_bento.adapters.base import Observer
    from gliner_bento.adapters.manager import AdapterManager
    from gliner_bento.engine.engine import GLiNEREngine

logger = logging.getLogger("gliner_bento.runner")

WARM_UP_S = 300.0
WARM_UP = Item(text="Ready when this sentence has an answer.", labels={"answer": "answer"}, threshold=0.0)

# BentoML derives the type of an answer that is no model from its JSON schema, anew for each answer, unless it is told.
SAID_TYPE = ContentType("application/json")

_TOLD = ("truncated_at", "words", "tokens", "windows", "label_groups", "relation_groups")

settings = load_or_exit()


@bentoml.service(name="GLiNERRunner", **settings.bentoml_options("GLiNERRunner"))
class GLiNERRunner:
    """A scheduler over one engine."""

    def __init__(self) -> None:
        # Here and not at the top: the gateway imports this module for its class, and must not load torch; and metrics
        # bind to the worker that they are first imported in.
        from gliner_bento import metrics  # noqa: PLC0415
        from gliner_bento.engine.checkpoint.find import ModelError  # noqa: PLC0415
        from gliner_bento.engine.checkpoint.load import pick_device  # noqa: PLC0415
        from gliner_bento.engine.engine import GLiNEREngine  # noqa: PLC0415

        join_bentoml()
        started = time.monotonic()
        try:
            decided = settings.decided_for(str(pick_device(settings.device)))
            engine = GLiNEREngine.load(
                settings.model,
                device=settings.device,
                dtype=settings.dtype,
                options=engine_options(decided),
            )
        except ModelError as error:
            logger.critical("the model cannot be served: %s", error)
            raise SystemExit(1) from None
        config = scheduler_config(decided)
        self._info = engine.info
        observer = metrics.PrometheusObserver()
        self._adapters = serve_adapters(engine, decided, observer) if settings.enable_lora else None
        self._report_unfinished_items = metrics.UNFINISHED_ITEMS.set
        self._scheduler = Scheduler(engine, config, observer=observer)
        self._scheduler.start()
        self._warm_up()
        self._adapter_calls = AdapterCalls(self._adapters, settings.disk_cache_dir / "uploads")
        self._streams: dict[str, Future[Extraction]] = {}
        logger.info("%s is ready on %s in %.1f s", self._info.name, self._info.device, time.monotonic() - started)

    @bentoml.api
    async def extract(
        self, items: list[RunnerItem], request_id: str, timeout_ms: float, priority: int
    ) -> Annotated[list[RunnerOutcome], SAID_TYPE]:
        """One outcome per item, in order; every item ends by the deadline."""
        deadline = time.monotonic() + timeout_ms / 1000
        submitted = self._scheduler.submit_many(
            [Item(**dict(item)) for item in items], request_id=request_id, deadline=deadline, priority=priority
        )
        self._report()
        try:
            return await asyncio.gather(*(_outcome(future, request_id) for future in submitted))
        finally:
            self._report()

    @bentoml.api
    async def extract_stream(
        self, item: RunnerItem, request_id: str, stream_id: str, timeout_ms: float, priority: int
    ) -> AsyncGenerator[str, None]:
        """Lines of JSON: entities while the item is being read, and its outcome without them."""
        deadline = time.monotonic() + timeout_ms / 1000
        feed = Feed(partial(self._scheduler.go_on, request_id))
        submitted = self._scheduler.watched(
            Item(**dict(item)), feed, request_id=request_id, deadline=deadline, priority=priority
        )
        self._report()
        submitted.add_done_callback(feed.end)
        self._streams[stream_id] = submitted
        told = 0
        try:
            async for entities in feed:
                told += len(entities)
                yield line({"entities": [_entity_as_data(entity) for entity in entities]})
            if submitted.cancelled():
                return
            outcome = await _outcome(submitted, request_id, told)
            if "result" in outcome:
                yield line({"entities": outcome["result"]["entities"]})
                outcome["result"]["entities"] = []
            yield line({"outcome": outcome})
        finally:
            submitted.cancel()
            del self._streams[stream_id]
            self._report()

    @bentoml.api
    async def stop_stream(self, stream_id: str) -> None:
        """Nobody reads this stream any more, though its connection may stay open."""
        if submitted := self._streams.get(stream_id):
            submitted.cancel()

    @bentoml.api
    async def abort(self, request_id: str) -> bool:
        """Stop a request; false if none has this id."""
        return self._scheduler.abort(request_id)

    @bentoml.api
    async def describe(self) -> dict[str, Any]:
        """The model's `ModelInfo`."""
        return dataclasses.asdict(self._info)

    @bentoml.api
    async def adapters(self) -> RunnerOutcome:
        """Every adapter's `AdapterInfo`."""
        return await self._adapter_calls.infos()

    @bentoml.api
    async def adapter(self, adapter_id: str) -> RunnerOutcome:
        """One adapter's `AdapterInfo`."""
        return await self._adapter_calls.info(adapter_id)

    @bentoml.api
    async def upload(self, upload_id: str, offset: int, data: bytes) -> RunnerOutcome:
        """A piece of an archive that `put_adapter` is to take."""
        return await self._adapter_calls.upload(upload_id, offset, data)

    @bentoml.api
    async def put_adapter(
        self,
        adapter_id: str,
        upload_id: str | None,
        source: str | None,
        revision: str | None,
        pinned: bool | None,
        preload: bool,
    ) -> RunnerOutcome:
        """The adapter's `AdapterInfo`, and whether it is new."""
        options = {"source": source, "revision": revision, "pinned": pinned, "preload": preload}
        return await self._adapter_calls.put(adapter_id, upload_id, **options)

    @bentoml.api
    async def delete_adapter(self, adapter_id: str, timeout_ms: float) -> RunnerOutcome:
        """Nothing, once what runs with the adapter has ended and it is gone."""
        return await self._adapter_calls.remove(adapter_id, timeout_ms / 1000)

    @bentoml.api
    async def adapter_cache(self) -> RunnerOutcome:
        """The `CacheStatus`."""
        return await self._adapter_calls.status()

    def __is_ready__(self) -> bool:
        return self._scheduler.ready

    @bentoml.on_shutdown
    def shut_down(self) -> None:
        """Answer what is left, which nobody waits for any more at this point, and end the threads."""
        self._scheduler.close()
        self._adapter_calls.close()
        if self._adapters:
            self._adapters.close()

    def _report(self) -> None:
        self._report_unfinished_items(self._scheduler.stats.unfinished_items)

    def _warm_up(self) -> None:
        try:
            sizes = [size for size in settings.precompiled_batch_sizes if size <= settings.queue_capacity]
            warm_up(self._scheduler, sizes, settings.warmup_iterations)
        except BaseException:
            self._scheduler.close()
            raise


def warm_up(scheduler: Scheduler, batch_sizes: Sequence[int], iterations: int) -> None:
    """Answer one item, and then so often as many at once as each size says: ready means ready and warm."""
    for size in [1, *[*batch_sizes] * iterations]:
        for answer in scheduler.submit_many([WARM_UP] * size, request_id="warm-up"):
            answer.result(WARM_UP_S)


def serve_adapters(engine: GLiNEREngine, settings: Settings, observer: Observer) -> AdapterManager:
    """Let the engine's items name adapters; bring those that are pinned into memory."""
    from gliner_bento.adapters.disk import AdapterStore  # noqa: PLC0415
    from gliner_bento.adapters.manager import AdapterManager  # noqa: PLC0415

    store = AdapterStore(
        settings.disk_cache_dir,
        adapter_root=settings.adapter_root,
        max_disk_adapters=settings.max_disk_adapters,
        id_pattern=settings.adapter_id_pattern,
        max_bytes=settings.max_adapter_bytes,
    )
    assert engine.adapter_slots is not None
    manager = AdapterManager(
        store,
        engine.adapter_slots,
        engine.adaptable_layers,
        max_lora_rank=settings.max_lora_rank,
        max_cpu_adapters=settings.max_cpu_adapters,
        adapter_loading_threads=settings.adapter_loading_threads,
        max_adapter_bytes=settings.max_adapter_bytes,
        adapter_root=settings.adapter_root,
        allow_adapter_hub=settings.allow_adapter_hub,
        observer=observer,
    )
    engine.serve_adapters(manager.acquire)
    manager.preload_pinned()
    return manager


async def _outcome(submitted: Future[Extraction], request_id: str, told: int = 0) -> RunnerOutcome:
    """told: how many entities the caller has."""
    try:
        return {"result": _as_data(await asyncio.wrap_future(submitted), told)}
    except GLiNERBentoError as error:
        return {"error": error.detail(request_id).model_dump()}


def _as_data(extraction: Extraction, told: int = 0) -> dict[str, Any]:
    """As `dataclasses.asdict` gives it, which copies deeply and takes its time."""
    return {
        "entities": list(map(_entity_as_data, extraction.entities[told:])),
        "relations": [{name: getattr(one, name) for name in Relation.__slots__} for one in extraction.relations],
        **{name: getattr(extraction, name) for name in _TOLD},
    }


def _entity_as_data(entity: Entity) -> dict[str, Any]:
    return {name: getattr(entity, name) for name in Entity.__slots__}


def engine_options(settings: Settings) -> EngineOptions:
    """The settings that are the engine's, decided for its device."""
    return EngineOptions(**{name: getattr(settings, name) for name in EngineOptions.__dataclass_fields__})


def scheduler_config(settings: Settings) -> SchedulerConfig:
    """The settings that are the scheduler's."""
    return SchedulerConfig(
        max_batch_size=settings.max_batch_size,
        max_batch_tokens=settings.max_batch_tokens,
        lookahead=settings.batch_lookahead,
        queue_capacity=settings.queue_capacity,
        inference_lanes=settings.inference_lanes,
        torch_threads=settings.torch_threads,
        tokenizer_threads=settings.tokenizer_threads,
        decoding_threads=settings.decoding_threads,
        batch_wait_timeout_ms=settings.batch_wait_timeout_ms,
    )


GLiNERRunner.add_asgi_middleware(CancelOnDisconnect)  # type: ignore[attr-defined]  # now a bentoml.Service
