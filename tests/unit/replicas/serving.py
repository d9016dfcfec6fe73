"""The replicas that have to fulfil the contract, each with handles on what it runs on."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from collator import collator_rests
from doubles.fake_engine import FakeChunkedRequest, FakeEngine
from doubles.memory_adapters import MemoryManager
from doubles.memory_replica import MemoryReplica
from replica_calls import PATIENCE_S, call, item, run, scheduler_config
from starlette.types import ASGIApp
from views import view

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import AdapterNotFound, NotReady
from gliner_bento.replicas.base import Replica
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.replicas.local.adapters import LocalAdapters
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.replicas.local.uploads import Uploads
from gliner_bento.scheduler.observer import Observer
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

PASS_WORDS = 2
LONG = " ".join(f"Name{number}" for number in range(400))
LONG_PASSES = 200
FREE = 10_000  # more passes than any test runs

FATAL = "fatal"
"""The text of an item that kills its lane."""


class Fatal(BaseException):
    """What no lane survives."""


class Serving:
    """A replica under test. Passes of its items finish as `steps` are released; none has been.

    options: error (of an item, in its first pass), queue_capacity, manager (None: adapters are not enabled).
    buffered_passes: passes of `test_replica_streams.LARGE` that the connection holds, at most. cancelled: what a call
    raises that is cancelled.
    """

    replica: Replica
    buffered_passes = 0
    cancelled: type[BaseException] | tuple[type[BaseException], ...] = asyncio.CancelledError

    def __init__(self, folder: Path, **options: Any) -> None:
        self.steps = threading.Semaphore(0)
        self.manager: MemoryManager | None = options.pop("manager", MemoryManager())
        self.folder = folder
        self._start(**options)

    def release(self, passes: int = FREE) -> None:
        self.steps.release(passes)

    def end(self) -> None:
        """Let go of all that hangs, and stop."""
        if self.manager:
            self.manager.proceed.set()
        self.release()
        self.close()

    def uploaded(self) -> list[Path]:
        """Archives that are not installed, and not deleted."""
        return [path for path in self.folder.rglob("*") if path.is_file()]

    async def idle(self) -> bool:
        status = await self.replica.status()
        return status.waiting_items + status.running_items == 0

    def _start(self, **options: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    async def kill_lane(self) -> None:
        """Kill the only thread that runs items."""
        raise NotImplementedError

    @property
    def unfinished(self) -> int:
        """Items that have not ended."""
        raise NotImplementedError

    @property
    def passes(self) -> Sequence[str]:
        """Texts of the passes that ran or run, in order."""
        raise NotImplementedError

    @property
    def prepared(self) -> Sequence[str]:
        """Texts of the items that wait or did, in order."""
        raise NotImplementedError


class LocalServing(Serving):
    """`LocalReplica` over a `FakeEngine`, one lane, one item in a batch."""

    def _start(
        self,
        error: Callable[[Item], Exception | None] = lambda item: None,
        queue_capacity: int = 1024,
        tracer: Observer | None = None,
    ) -> None:
        self.engine = FakeEngine(
            prepare_error=self._adapter_error,
            on_forward=self._forward,
            forward_error=error,
            chunked=lambda item: (
                FakeChunkedRequest(item, PASS_WORDS) if len(item.text.split()) > PASS_WORDS + 1 else None
            ),
        )
        adapters = LocalAdapters(self.manager, Uploads(self.folder))
        config = scheduler_config(queue_capacity=queue_capacity)
        self.local = LocalReplica(self.engine, config, adapters=adapters, tracer=tracer)
        self.replica: Replica = self.local

    def close(self) -> None:
        self.local.close()

    async def kill_lane(self) -> None:
        self.release()
        await self.replica.extract([item(FATAL)], call())

    @property
    def unfinished(self) -> int:
        return self.local.scheduler.stats.unfinished_items

    @property
    def passes(self) -> Sequence[str]:
        return [item.text for batch in self.engine.batches for item in batch]

    @property
    def prepared(self) -> Sequence[str]:
        return [item.text for item in self.engine.prepared]

    def _forward(self, batch: Sequence[Prepared]) -> None:
        self.steps.acquire(timeout=PATIENCE_S)
        while not collator_rests(self.local.scheduler):  # else this lane may overtake it
            time.sleep(0.001)
        if any(prepared.item.text == FATAL for prepared in batch):
            raise Fatal

    def _adapter_error(self, item: Item) -> Exception | None:
        if item.adapter_id is None or (self.manager and item.adapter_id in self.manager.contents):
            return None
        return AdapterNotFound(f"adapter_id: no adapter {item.adapter_id!r}", param="adapter_id")


class HttpServing(LocalServing):
    """The same behind the transport, on a Unix socket."""

    buffered_passes = 50

    def _start(self, **options: Any) -> None:
        super()._start(**options)
        app = ReplicaApp()
        app.bind(self.local)
        self.server = served(app, self.folder.with_name("socket"))
        self.http = HttpReplica(self.server.url)
        self.replica = self.http

    def end(self) -> None:
        super().end()
        run(self.http.close)
        self.server.stop()


class FleetServing(LocalServing):
    """A fleet of one."""

    def _start(self, **options: Any) -> None:
        super()._start(**options)
        self.replica = Fleet({"one": self.local}, view(FleetOptions))


class RayServing(LocalServing):
    """The same behind Ray Serve's handle, which reads ahead without a limit. Without a cluster, it changes errors."""

    buffered_passes = FREE
    cancelled = (asyncio.CancelledError, NotReady)

    def _start(self, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own
            from ray_serving import behind_ray  # takes seconds
        super()._start(**options)
        self.replica = behind_ray(self.local, str(self.folder))


class served:
    """An ASGI app on a Unix socket, in a thread."""

    def __init__(self, app: ASGIApp, socket: Path) -> None:
        self.url = socket.as_uri()
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="httptools",
                uds=str(socket),
                lifespan="off",
                log_level="critical",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.001)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)


class MemoryServing(Serving):
    """`MemoryReplica`, so that tests that use it can rely on it."""

    def _start(self, **options: Any) -> None:
        self.memory = MemoryReplica(
            manager=self.manager,
            pass_words=PASS_WORDS,
            step=lambda: self.steps.acquire(blocking=False),
            **options,
        )
        self.replica = self.memory

    def close(self) -> None:
        self.memory.close()

    async def kill_lane(self) -> None:
        self.memory.alive = False

    @property
    def unfinished(self) -> int:
        return len(self.memory._unfinished)

    @property
    def passes(self) -> Sequence[str]:
        return self.memory.passes

    @property
    def prepared(self) -> Sequence[str]:
        return self.memory.admitted


async def parts_of(stream: AsyncGenerator[Any, None]) -> tuple[list[Any], Extraction]:
    """Entities of each part but the last, and the last."""
    *parts, last = [part async for part in stream]
    return parts, last
