"""Our engine in process, under our scheduler with the settings in the environment."""

from __future__ import annotations

import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from benchmark.answers import THRESHOLD
from benchmark.jobs import run_job
from gliner_bento.engine.checkpoint.device import pick_device
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.loadtest.load import percentile_ms
from gliner_bento.process.interpreter import prefer_throughput
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.scheduler.scheduler import Scheduler
from gliner_bento.settings import Settings
from gliner_bento.tasks.classifications import Classification
from gliner_bento.tasks.extraction import Extraction, LongText
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.tasks.structures import StructureField

Body = dict[str, Any]

WARM_UP_PASSES = 3
"""Over the texts, on a GPU: graphs are captured when a shape comes for the second time."""


def main(what: str, **arguments: Any) -> dict[str, Any]:
    """Do `what`: one of the public functions below."""
    functions: dict[str, Callable[..., dict[str, Any]]] = {
        "throughput": throughput,
        "loads": loads,
        "repeated": repeated,
        "windows": windows,
        "out_of_memory": out_of_memory,
        "device": device,
    }
    return functions[what](**arguments)


def device() -> dict[str, Any]:
    """What the first CUDA device is. Raises RuntimeError without one."""
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    first = torch.cuda.get_device_properties(0)
    return {"name": first.name, "memory_bytes": first.total_memory, "multiprocessors": first.multi_processor_count}


def throughput(bodies: list[Body], seconds: float, concurrency: int | None = None) -> dict[str, Any]:
    """Texts/s with `concurrency` texts in progress (None: all of them), over whole passes; the first pass is warm-up.
    Also the seconds of loading, and the most memory that was resident.

    Bodies may name adapters where the settings enable them.
    """
    begun_s = time.perf_counter()
    replica = _replica()
    load_s = time.perf_counter() - begun_s
    items = [_item(body) for body in bodies]
    answers = _all(replica.scheduler, items, concurrency)
    start, done = time.perf_counter(), 0
    while done == 0 or time.perf_counter() - start < seconds:
        _all(replica.scheduler, items, concurrency)
        done += 1
    speed = done * len(items) / (time.perf_counter() - start)
    replica.close()
    return {
        "texts_per_s": speed,
        "load_s": load_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "info": asdict(replica.model),
        "answers": [_answer(extraction) for extraction in answers],
    }


def loads(bodies: list[Body], concurrencies: list[int], seconds: float) -> dict[str, Any]:
    """The same at each concurrency, on one replica on a GPU: with latencies, the share of time in which the GPU ran a
    kernel, peak memory in bytes, and the answers."""
    replica = _replica()
    items = [_item(body) for body in bodies]
    results = []
    for number in concurrencies:
        some = items if number > 1 else items[:100]
        for _ in range(WARM_UP_PASSES):
            _all(replica.scheduler, some, number)
        torch.cuda.reset_peak_memory_stats()
        latencies_s: list[float] = []
        answers: list[Extraction] = []
        start, done = time.perf_counter(), 0
        with _gpu_busy() as busy:
            while done == 0 or time.perf_counter() - start < seconds:
                answers = _all(replica.scheduler, some, number, latencies_s)
                done += 1
        latencies_s.sort()
        results.append(
            {
                "concurrency": number,
                "texts_per_s": len(latencies_s) / (time.perf_counter() - start),
                **{f"p{percent}_ms": percentile_ms(latencies_s, percent) for percent in (50, 99)},
                "busy": statistics.mean(busy) if busy else None,
                "peak_bytes": torch.cuda.max_memory_allocated(),
                "answers": [_answer(extraction) for extraction in answers],
            }
        )
    info = asdict(replica.model)
    replica.close()
    return {"loads": results, "info": info}


def out_of_memory(bodies: list[Body], free_gib: list[float]) -> dict[str, Any]:
    """All texts in progress on a GPU whose allocator may take only so much memory beyond the weights, and afterwards as
    much as there is: for each, the numbers of texts answered, answered otherwise than with all memory, and refused."""
    replica = _replica()
    items = [_item(body) for body in bodies]
    expected = [_spans(extraction) for extraction in _all(replica.scheduler, items, None)]
    total = torch.cuda.get_device_properties(0).total_memory
    results = []
    for free in [*free_gib, None]:
        torch.cuda.empty_cache()
        limit = total if free is None else torch.cuda.memory_allocated() + free * 2**30
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
        futures = [replica.scheduler.submit(item, request_id=str(number)) for number, item in enumerate(items)]
        errors = [future.exception() for future in futures]
        answered = [
            (_spans(future.result()), spans)
            for future, error, spans in zip(futures, errors, expected, strict=True)
            if error is None
        ]
        results.append(
            {
                "free_gib": free,
                "answered": len(answered),
                "wrong": sum(found != spans for found, spans in answered),
                "refused": sorted({type(error).__name__ for error in errors if error is not None}),
            }
        )
    replica.close()
    return {"limits": results}


def _spans(extraction: Extraction) -> list[tuple[int, int, str]]:
    return sorted((entity.start, entity.end, entity.label) for entity in extraction.entities)


@contextmanager
def _gpu_busy() -> Iterator[list[float]]:
    """Samples of the share of time in which a kernel ran, by the driver, every 100 ms while the block runs."""
    samples: list[float] = []
    stopped = threading.Event()

    def sample() -> None:
        while not stopped.wait(0.1):
            samples.append(torch.cuda.utilization() / 100)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stopped.set()
        thread.join()


def repeated(body: Body, times: int) -> dict[str, Any]:
    """Seconds of a repeated request, from the first one, and how many labels were encoded separately each time: 0
    unless the model is a bi-encoder. The warm-up uses other labels."""
    settings = Settings.load()
    engine = _engine(settings)
    engine.start_lane()
    threads = settings.decided_for(engine.info.device)
    all_threads = threads.inference_lanes * threads.torch_threads
    seconds, encoded = [], []
    for sent in [body | {"labels": ["warm", "up"]}] * 3 + [body] * times:
        before = engine.encoded_labels
        start = time.perf_counter()
        [extraction] = engine.decode(engine.forward(engine.collate([engine.prepare(_item(sent))]), all_threads))
        seconds.append(time.perf_counter() - start)
        encoded.append(engine.encoded_labels - before)
    return {"seconds": seconds[3:], "encoded_labels": encoded[3:], "answers": [_answer(extraction)]}


def windows(body: Body) -> dict[str, Any]:
    """Number of words in each window of a text without relations and with labels for one pass."""
    prepared = _engine(Settings.load()).prepare(_item(body, "window"))
    passes = [] if prepared.chunked else [prepared]
    while prepared.chunked and not prepared.chunked.exhausted:
        passes += prepared.chunked.next_passes()
    return {"windows": [len(one.payload.words) for one in passes]}


def _replica() -> LocalReplica:
    """As a server loads it."""
    replica = LocalReplica.load(Settings.load())
    prefer_throughput()
    return replica


def _engine(settings: Settings) -> GLiNEREngine:
    options = settings.decided_for(str(pick_device(settings.device))).view(EngineOptions)
    return GLiNEREngine.load(settings.model, device=settings.device, dtype=settings.dtype, options=options)


def _item(body: Body, long_text: LongText = "truncate") -> Item:
    """In one pass, as in gliner, by default."""
    labels, relations = ({name: name for name in body.get(kind) or ()} for kind in ("labels", "relations"))
    classes = body.get("classifications", {}).items()
    structures = body.get("structures", {}).items()
    return Item(
        body["text"],
        labels,
        relations,
        adapter_id=body.get("adapter_id"),
        long_text=long_text,
        classifications={task: Classification({name: name for name in names}) for task, names in classes},
        structures={
            name: {field: StructureField(field, kind, THRESHOLD) for field, kind in fields.items()}
            for name, fields in structures
        },
    )


def _all(
    scheduler: Scheduler, items: Sequence[Item], concurrency: int | None, latencies_s: list[float] | None = None
) -> list[Extraction]:
    """The extraction of every item, in order. latencies_s: gets the latency of each."""
    free = threading.Semaphore(concurrency or len(items))
    latencies_s = [] if latencies_s is None else latencies_s

    def ended(sent_s: float, _: Future[Extraction]) -> None:
        latencies_s.append(time.perf_counter() - sent_s)
        free.release()

    futures = []
    for number, item in enumerate(items):
        free.acquire()
        sent_s = time.perf_counter()
        futures.append(scheduler.submit(item, request_id=str(number)))
        futures[-1].add_done_callback(partial(ended, sent_s))
    return [future.result() for future in futures]


def _answer(result: Any) -> dict[str, Any]:
    """In the format of `/v1/extract`."""
    answer = asdict(result)
    classes = [result["labels"][0]["label"] for result in answer["classifications"].values()]
    return {"entities": answer["entities"], "relations": answer["relations"], "classes": classes}


if __name__ == "__main__":
    run_job(main)
