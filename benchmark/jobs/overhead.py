"""CPU time per item of what Python does around the model: one function of `MEASURES` a part, each with its rows.

On an accelerator this is what limits the speed. The parts before and after the engine run over one that does nothing.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import uvicorn
from tokenizers import Tokenizer

from benchmark.generated import WORD
from benchmark.jobs import run_job
from benchmark.no_model import NoModel, Remembered
from benchmark.over_http import EXTRACT
from benchmark.rows import Row
from benchmark.server import free_port
from gliner_bento.engine.base import Engine, run_all
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.http_protocol import ProtocolLimits
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.http.connections import Connections, Response
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.workload import Body
from gliner_bento.process.interpreter import prefer_throughput
from gliner_bento.replicas.base import Call, Replica
from gliner_bento.replicas.fleet.fleet import Fleet, FleetOptions
from gliner_bento.replicas.http.client import HttpReplica
from gliner_bento.replicas.http.server import ReplicaApp
from gliner_bento.replicas.local.adapters import LocalAdapters
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.replicas.local.uploads import Uploads
from gliner_bento.scheduler.scheduler import SchedulerConfig
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.telemetry import log

_UNIT = "us of CPU per item"
_IN_PROGRESS = 64
_BATCH_S = 0.002
"""The time of a batch of 64 texts on an H200, for deberta-v3-small."""
_TEXTS, _ROUND_TEXTS = 64, 2048
_ENTITIES = 4


@dataclass(slots=True)
class Bench:
    """What the parts share. repetitions: of each measurement, of which the best counts."""

    bodies: Sequence[Body]
    repetitions: int
    settings: Settings = field(default_factory=lambda: Settings.load().decided_for("cpu"))
    _engines: dict[bool, GLiNEREngine] = field(default_factory=dict)

    @property
    def items(self) -> list[Item]:
        """Of the bodies."""
        return [Item(body["text"], {name: name for name in body["labels"]}) for body in self.bodies]

    @property
    def words(self) -> float:
        """Words of the median text."""
        return median(len(WORD.findall(body["text"])) for body in self.bodies)

    def engine(self, *, padded: bool = False) -> GLiNEREngine:
        """The same for all parts. padded: with the layout of a GPU."""
        if padded not in self._engines:
            options = self.settings.view(EngineOptions)
            self._engines[padded] = GLiNEREngine.load(
                self.settings.model, device="cpu", dtype="float32", options=options, padded=padded
            )
        return self._engines[padded]

    def best_us(self, call: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
        """The least CPU time of a call: of this thread, or by `clock`."""
        times = []
        for _ in range(self.repetitions):
            start = clock()
            call()
            times.append(clock() - start)
        return min(times) * 1e6


def main(bodies: list[Body], repetitions: int) -> dict[str, Any]:
    """The rows of all parts, as data."""
    bench = Bench(bodies, repetitions)
    return {"rows": [row.as_data() for name, measure in MEASURES.items() for row in measure(bench, name)]}


def prepare(bench: Bench, name: str) -> Iterator[Row]:
    """A text's words and tokens, against the tokenizer's time for those words alone; the median text."""
    engine, items = bench.engine(), bench.items
    tokenizer = Tokenizer.from_file(str(Path(bench.settings.model) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    start = time.thread_time()
    for item in items:
        engine.prepare(item)
    first_us = (time.thread_time() - start) * 1e6 / len(items)
    ours, alone = [], []
    for item in items:
        words = WORD.findall(item.text)
        ours.append(bench.best_us(partial(engine.prepare, item)))
        alone.append(bench.best_us(partial(tokenizer.encode, words, is_pretokenized=True)))
    note = f"{bench.words:g} words; {first_us:.0f} in the first pass over {len(items)} texts, with an empty cache"
    yield Row("overhead", name, _UNIT, median(ours), median(alone), "tokenizers.encode alone", 0.5, "less", note)


def collate(bench: Bench, name: str) -> Iterator[Row]:
    """Tensors of a batch."""
    engine = bench.engine()
    prepared = [engine.prepare(item) for item in bench.items]
    for size in (8, 64):
        batch = [prepared[number % len(prepared)] for number in range(size)]
        spent_us = bench.best_us(partial(engine.collate, batch)) / size
        yield Row("overhead", f"{name}, batches of {size}", _UNIT, spent_us)


def decode(bench: Bench, name: str) -> Iterator[Row]:
    """Results of a batch, after overlap resolution, which is in the forward pass."""
    engine, size = bench.engine(), 8
    engine.start_lane()
    scores = engine.forward(engine.collate([engine.prepare(item) for item in bench.items[:size]]), 1)
    entities = sum(len(getattr(result, "entities", ())) for result in engine.decode(scores)) / size
    spent_us = bench.best_us(partial(engine.decode, scores)) / size
    yield Row("overhead", f"{name}, batches of {size}", _UNIT, spent_us, note=f"{entities:.1f} entities per text")


def schedule(bench: Bench, name: str) -> Iterator[Row]:
    """All threads of the scheduler, over an engine whose own time is subtracted."""
    items = (bench.items * _IN_PROGRESS)[:_IN_PROGRESS]
    engine = NoModel()

    def run_engine() -> None:
        prepared = [run_all(engine.prepare_in_steps(item)) for item in items]
        engine.decode(engine.forward(engine.collate(prepared), 1))

    with local_replica(bench) as replica:

        def run() -> None:
            for future in [replica.scheduler.submit(item, request_id=str(n)) for n, item in enumerate(items)]:
                future.result()

        spent_us = bench.best_us(run, time.process_time) - bench.best_us(run_engine)
    yield Row("overhead", name, _UNIT, spent_us / len(items), note=f"{len(items)} texts in progress")


def gateway(bench: Bench, name: str) -> Iterator[Row]:
    """A request of `/v1/extract`. `ASGI`: the app alone, over a replica in this process. Otherwise, all that a process
    of the gateway does: also the connections to the client and to the runner, which are both in this process."""
    body = json.dumps({**bench.bodies[0], "text": _named(bench.bodies[0]["text"])}).encode()
    log.configure(bench.settings)
    with local_replica(bench) as replica:
        yield _asgi_row(bench, f"{name}, ASGI", body, gateway_app(bench.settings, replica))
    with _runner(bench) as runner, _gateway_process(bench.settings, runner) as (port, clock):
        yield _process_row(bench, name, body, f"http://127.0.0.1:{port}{EXTRACT}", clock)


@contextmanager
def _gateway_process(settings: Settings, runner: str) -> Iterator[tuple[int, Callable[[], float]]]:
    """A process of the gateway over a runner, by its URL: the port, and the clock of its CPU time."""
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=_serve_gateway, args=(settings, runner, port))
    process.start()
    try:
        while process.is_alive() and not _listens(port):
            time.sleep(0.01)
        yield port, partial(time.clock_gettime, ~(process.pid or 0) << 3 | 2)  # Linux's number of a process's CPU clock
    finally:
        process.terminate()
        process.join()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _serve_gateway(settings: Settings, runner: str, port: int) -> None:
    """Serve, with the options of a process that serves."""
    log.configure(settings)
    app = gateway_app(settings, Fleet({"one": HttpReplica(runner)}, settings.view(FleetOptions)))
    limits = ProtocolLimits(app.options, app.early, direct=app)
    prefer_throughput()
    _server(app.routes, http=limits.protocol, port=port).run()


def gateway_app(settings: Settings, replica: Replica) -> GatewayApp:
    app = GatewayApp(settings.view(GatewayOptions))
    app.bind(replica)
    return app


def _process_row(bench: Bench, name: str, body: bytes, url: str, clock: Callable[[], float]) -> Row:
    connections = Connections(url, {"Content-Type": "application/json"})

    async def requests() -> list[Response]:
        return await asyncio.gather(*(connections.send(body) for _ in range(_IN_PROGRESS)))

    with closing(asyncio.new_event_loop()) as loop, closing(connections):
        answers = loop.run_until_complete(requests())
        entities = {len(json.loads(answer.content)["entities"]) for answer in answers}
        spent_us = bench.best_us(lambda: loop.run_until_complete(requests()), clock) / _IN_PROGRESS
    note = f"{_IN_PROGRESS} connections, {max(entities)} entities per answer"
    return Row("overhead", name, _UNIT, spent_us, note=note)


def _asgi_row(bench: Bench, name: str, body: bytes, app: GatewayApp) -> Row:
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope: dict[str, Any] = {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": "POST"},
        **{"path": EXTRACT, "raw_path": EXTRACT.encode(), "query_string": b"", "root_path": ""},
        **{"client": ("127.0.0.1", 1), "server": ("localhost", 80)},
    }

    async def request() -> list[Any]:
        sent: list[Any] = []
        received = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            return next(received, None) or await asyncio.Future()

        async def send(message: Any) -> None:
            sent.append(message)

        await app({**scope, "headers": [*headers], "state": {}}, receive, send)
        return sent

    async def requests() -> None:
        await asyncio.gather(*(request() for _ in range(_IN_PROGRESS)))

    with closing(asyncio.new_event_loop()) as loop:
        sent = loop.run_until_complete(request())
        entities = json.loads(b"".join(message.get("body", b"") for message in sent))["entities"]
        spent_us = bench.best_us(lambda: loop.run_until_complete(requests())) / _IN_PROGRESS
    return Row("overhead", name, _UNIT, spent_us, note=f"{len(entities)} entities per answer")


def hop(bench: Bench, name: str) -> Iterator[Row]:
    """A call of a replica behind the transport, both sides, over the same call in this process."""
    items = (bench.items * _IN_PROGRESS)[:_IN_PROGRESS]

    async def calls(replica: Replica) -> None:
        until = time.monotonic() + 60
        await asyncio.gather(*(replica.extract([item], Call(str(n), until)) for n, item in enumerate(items)))

    with (
        closing(asyncio.new_event_loop()) as loop,
        local_replica(bench) as local,
        _remote(bench) as one,
        _remote(bench) as other,
    ):
        fleet = Fleet({"one": one, "other": other}, bench.settings.view(FleetOptions))
        loop.run_until_complete(fleet.status())

        def spent_us(replica: Replica) -> float:
            return bench.best_us(lambda: loop.run_until_complete(calls(replica)), time.process_time) / len(items)

        in_process_us = spent_us(local)
        ways: dict[str, Replica] = {name: one, f"{name}, through a fleet of two": fleet}
        for title, replica in ways.items():
            note = f"{len(items)} calls in progress"
            yield Row("overhead", title, _UNIT, spent_us(replica) - in_process_us, note=note)
        loop.run_until_complete(fleet.close())


def replayed(bench: Bench, name: str) -> Iterator[Row]:
    """A forward pass over padded texts, as on a GPU, with the result of an earlier one in place of a CUDA graph's: what
    is outside of the graph, and runs for each batch."""
    engine = bench.engine(padded=True)
    forward: Any = engine._forward
    for size in (8, 64):
        batch = engine.collate([engine.prepare(item) for item in (bench.items * size)[:size]])
        with torch.inference_mode():
            scores = forward.scores(batch.inputs)
        forward._graphs = _OneResult(scores)
        spent_us = bench.best_us(partial(engine.forward, batch, 1))
        forward._graphs = None
        yield Row("overhead", f"{name}, batches of {size}", "us of CPU per batch", spent_us)


@dataclass(slots=True)
class _OneResult:
    """`Graphs` that have captured any bucket."""

    scores: Any

    def find(self, *_: object, **__: object) -> Callable[[object], Any]:
        return lambda _: self.scores


def around(bench: Bench, name: str) -> Iterator[Row]:
    """Texts of 6 to 250 words in one process with everything but the model, whose forward pass is a sleep: the event
    loop, the scheduler with a GPU's settings, and the engine's prepare, collate and decode. Comes last, because it sets
    Python's options for the process."""
    settings = Settings.load({"max_batch_size": 64}).decided_for("cuda")
    bodies = workload.mixed(_TEXTS)
    items = [Item(body["text"], {label: label for label in body["labels"]}) for body in bodies]
    engine = Remembered(bench.engine(), items, _BATCH_S)
    prefer_throughput()

    async def calls(replica: Replica, in_progress: int) -> None:
        until, numbers = time.monotonic() + 60, iter(range(_ROUND_TEXTS))

        async def caller() -> None:
            for number in numbers:
                await replica.extract([items[number % _TEXTS]], Call(str(number), until))

        await asyncio.gather(*(caller() for _ in range(in_progress)))

    with closing(asyncio.new_event_loop()) as loop, local_replica(bench, engine, settings) as replica:
        for in_progress in (64, 512):
            spent_us, taken_s = [], []
            for _ in range(max(1, min(10, bench.repetitions // 10))):
                cpu_s, start_s = time.process_time(), time.perf_counter()
                loop.run_until_complete(calls(replica, in_progress))
                spent_us.append((time.process_time() - cpu_s) * 1e6 / _ROUND_TEXTS)
                taken_s.append(time.perf_counter() - start_s)
            note = f"{_ROUND_TEXTS / min(taken_s):.0f} texts/s"
            yield Row("overhead", f"{name}, {in_progress} in progress", _UNIT, min(spent_us), note=note)


MEASURES: dict[str, Callable[[Bench, str], Iterator[Row]]] = {
    "prepare": prepare,
    "collate": collate,
    "decode": decode,
    "schedule": schedule,
    "gateway": gateway,
    "hop": hop,
    "replayed forward": replayed,
    "everything but the model": around,
}


@contextmanager
def local_replica(
    bench: Bench, engine: Engine | None = None, settings: Settings | None = None
) -> Iterator[LocalReplica]:
    """By default, of `NoModel` with the settings of `bench`."""
    with tempfile.TemporaryDirectory() as folder:
        adapters = LocalAdapters(None, Uploads(Path(folder)))
        config = (settings or bench.settings).view(SchedulerConfig)
        replica = LocalReplica(engine or NoModel(), config, adapters=adapters)
        try:
            yield replica
        finally:
            replica.close()


@contextmanager
def _remote(bench: Bench) -> Iterator[HttpReplica]:
    """The same behind the transport."""
    with _runner(bench) as runner:
        yield HttpReplica(runner)


@contextmanager
def _runner(bench: Bench) -> Iterator[str]:
    """The URL of the same on a Unix socket, in a thread."""
    with local_replica(bench) as replica, tempfile.TemporaryDirectory() as folder:
        app, path = ReplicaApp(), Path(folder, "replica")
        app.bind(replica)
        with _served(app, uds=str(path)):
            yield path.as_uri()


@contextmanager
def _served(app: Any, **options: Any) -> Iterator[None]:
    """Serve an app in a thread. options: uvicorn's."""
    server = _server(app, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _server(app: Any, **options: Any) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical", access_log=False, **options))


def _named(text: str) -> str:
    """The text with `_ENTITIES` capitalised words: entities for the engine without a model."""
    return " ".join(["Ada"] * _ENTITIES + text.lower().split()[_ENTITIES:])


if __name__ == "__main__":
    run_job(main)
