"""Our engine in process: under our scheduler with the settings in the environment, or step by step in one thread."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict
from typing import Any

from gliner_bento.benchmark.jobs import answer
from gliner_bento.engine.base import Prepared
from gliner_bento.types import Extraction, Item, LongText
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.checkpoint.load import pick_device
from gliner_bento.metrics import PrometheusObserver
from gliner_bento.scheduler.scheduler import Scheduler
from gliner_bento.settings import Settings
from runners.gliner_runner import engine_options, scheduler_config, serve_adapters

Body = dict[str, Any]


def main(what: str, **arguments: Any) -> dict[str, Any]:
    """Do `what`: one of the public functions below."""
    functions: dict[str, Callable[..., dict[str, Any]]] = {
        "throughput": throughput,
        "stages": stages,
        "repeated": repeated,
        "lengths": lengths,
        "windows": windows,
    }
    return functions[what](**arguments)


def throughput(bodies: list[Body], seconds: float, at_once: int | None = None) -> dict[str, Any]:
    """Texts/s with `at_once` texts under way (None: all of them), over whole passes; the first pass is warm-up.

    Bodies may name adapters where the settings enable them.
    """
    settings = Settings.load()
    engine = _engine(settings)
    decided = settings.decided_for(engine.info.device)
    adapters = serve_adapters(engine, decided, PrometheusObserver()) if settings.enable_lora else None
    scheduler = Scheduler(engine, scheduler_config(decided))
    scheduler.start()
    items = [_item(body) for body in bodies]
    answers = _all(scheduler, items, at_once)
    began, done = time.perf_counter(), 0
    while done == 0 or time.perf_counter() - began < seconds:
        _all(scheduler, items, at_once)
        done += 1
    speed = done * len(items) / (time.perf_counter() - began)
    scheduler.close()
    if adapters:
        adapters.close()
    return {"texts_per_s": speed, "info": asdict(engine.info), "answers": [_answer(found) for found in answers]}


def stages(bodies: list[Body], seconds: float, batch_size: int = 8) -> dict[str, Any]:
    """Seconds per text in each step, one thread, batches of texts of near length."""
    engine = _engine(Settings.load())
    engine.start_lane()
    items = [_item(body) for body in bodies]
    names = ("prepare", "collate", "forward", "decode")
    spent = dict.fromkeys(names, 0.0)
    until, done = time.perf_counter() + seconds, -1  # the first pass is warm-up
    while done < 1 or time.perf_counter() < until:
        took = dict.fromkeys(names, 0.0)
        began = time.perf_counter()
        prepared = [engine.prepare(item) for item in items]
        took["prepare"] += time.perf_counter() - began
        for batch in _batches(prepared, batch_size):
            marks = [time.perf_counter()]
            collated = engine.collate(batch)
            marks.append(time.perf_counter())
            scores = engine.forward(collated, 1)
            marks.append(time.perf_counter())
            engine.decode(scores)
            marks.append(time.perf_counter())
            for name, before, after in zip(names[1:], marks, marks[1:], strict=False):
                took[name] += after - before
        done += 1
        if done:
            spent = {name: spent[name] + took[name] for name in names}
    return {name: seconds / (done * len(items)) for name, seconds in spent.items()}


def repeated(body: Body, times: int) -> dict[str, Any]:
    """Seconds of the same request again and again, from the first, and how many labels each time were encoded apart
    from the text (0 of a model that is no bi-encoder); other labels have warmed the engine up before."""
    settings = Settings.load()
    engine = _engine(settings)
    engine.start_lane()
    threads = settings.decided_for(engine.info.device)
    together = threads.inference_lanes * threads.torch_threads
    seconds, encoded = [], []
    for asked in [body | {"labels": ["warm", "up"]}] * 3 + [body] * times:
        before = engine.encoded_labels
        began = time.perf_counter()
        [found] = engine.decode(engine.forward(engine.collate([engine.prepare(_item(asked))]), together))
        seconds.append(time.perf_counter() - began)
        encoded.append(engine.encoded_labels - before)
    return {"seconds": seconds[3:], "encoded_labels": encoded[3:], "answers": [_answer(found)]}


def lengths(bodies: list[Body]) -> dict[str, Any]:
    """Words and tokens (prompt included) of each text, as the model reads them."""
    engine = _engine(Settings.load())
    prepared = [engine.prepare(_item(body)) for body in bodies]
    return {"tokens": [one.tokens for one in prepared], "words": [one.words for one in prepared]}


def windows(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The windows that each text is read in: first character, one past the last, words.

    documents: `model`, in place of the settings' own, and `body`, without relations and with labels for one pass.
    """
    told = []
    for document in documents:
        settings = Settings.load().model_copy(update={"model": document["model"]})
        prepared = _engine(settings).prepare(_item(document["body"], "window"))
        passes = [] if prepared.chunked else [prepared]
        while prepared.chunked and not prepared.chunked.exhausted:
            passes += prepared.chunked.next_passes()
        places = [one.payload.words for one in passes]
        told.append([{"start": words[0][0], "end": words[-1][1], "words": len(words)} for words in places])
    return {"windows": told}


def _engine(settings: Settings) -> GLiNEREngine:
    options = engine_options(settings.decided_for(str(pick_device(settings.device))))
    return GLiNEREngine.load(settings.model, device=settings.device, dtype=settings.dtype, options=options)


def _item(body: Body, long_text: LongText = "truncate") -> Item:
    """In one pass, as gliner reads it, unless another `long_text` is said."""
    labels, relations = ({name: name for name in body.get(kind) or ()} for kind in ("labels", "relations"))
    return Item(body["text"], labels, relations, adapter_id=body.get("adapter_id"), long_text=long_text)


def _all(scheduler: Scheduler, items: Sequence[Item], at_once: int | None) -> list[Extraction]:
    """Every item's answer, in order."""
    turns = iter(range(len(items)))
    asked: dict[int, Future[Extraction]] = {}
    waiting: set[Future[Extraction]] = set()

    def ask(numbers: Iterator[int]) -> None:
        for number in numbers:
            asked[number] = scheduler.submit(items[number], request_id=str(number))
            waiting.add(asked[number])

    ask(itertools.islice(turns, at_once))
    while waiting:
        finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        ask(itertools.islice(turns, len(finished)))
    return [asked[number].result() for number in range(len(items))]


def _batches(prepared: Sequence[Prepared], size: int) -> Iterator[list[Prepared]]:
    ordered = sorted((one for one in prepared if one.tokens), key=lambda one: one.tokens)
    yield from (ordered[at : at + size] for at in range(0, len(ordered), size))


def _answer(found: Extraction) -> dict[str, Any]:
    """As `/v1/extract` answers."""
    entities = [asdict(entity) for entity in found.entities]
    relations = [asdict(one) | {"head": entities[one.head], "tail": entities[one.tail]} for one in found.relations]
    return {"entities": entities, "relations": relations}


if __name__ == "__main__":
    answer(main)
