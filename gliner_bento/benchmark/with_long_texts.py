"""The section of the report about texts that are read in windows, and labels that are asked for in groups: what that
costs, whom else it holds up, and how far the answer is that of the pieces.

All answers of ours are looked at: each has to read the whole of its text, and to give offsets that fit it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gliner_bento.benchmark import job, workload
from gliner_bento.benchmark.answers import found, misfits
from gliner_bento.benchmark.bench import DEMO, FOREVER_S, Bench
from gliner_bento.benchmark.borders import NEAR_WORDS, compared
from gliner_bento.benchmark.job import NotMeasured
from gliner_bento.benchmark.labelled import Span, f1, joined, paragraphs
from gliner_bento.benchmark.load import Run, closed_loop
from gliner_bento.benchmark.over_http import BYTES_PER_MB, EXTRACT
from gliner_bento.benchmark.rows import Row
from gliner_bento.benchmark.server import Server, weighed
from gliner_bento.benchmark.workload import Body
from gliner_bento.client import Client
from gliner_bento.types import Entity

_DTYPE = "bfloat16"
_PATIENCE_S = 600
_GROWTH_MB = 50.0
_LABELS = (25, 250, 1000)
_WORDS_UNDER_LABELS = 200
_BETWEEN_PARAGRAPHS = "\n\n"

Window = dict[str, int]
"""See `windows` of jobs/ours.py."""

Load = Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]
"""`_loaded`, on one server."""


def long_texts(bench: Bench, section: str) -> list[Row]:
    """A long document, by itself and beside others; then, on the bundled model, many labels, and paragraphs."""
    bench.extra["long_texts"] = {}
    model, document = bench.checkpoint("ner"), workload.document(bench.plan.document_words)
    texts, labels, wanted = paragraphs(DEMO, bench.plan.paragraphs)
    whole: Body = {"text": _BETWEEN_PARAGRAPHS.join(texts), "labels": labels}
    documents = [{"model": str(model.resolve()), "body": document}, {"model": str(DEMO), "body": whole}]
    told = bench.ours_in_process(model, {"dtype": _DTYPE}, what="windows", documents=documents)["windows"]
    return [
        *_document(bench, section, model, document, told[0]),
        *_bundled(bench, section, texts, whole, wanted, told[1]),
    ]


def checked(run: Run, bodies: Sequence[Body]) -> list[dict[str, Any]]:
    """A run's answers, those to the first body first. Raises NotMeasured for an error, for offsets that do not fit the
    text, and for a text that was not read whole."""
    if failed := [reply.status for reply in run.replies if reply.status != "200"]:
        raise NotMeasured(f"ours answered {failed[0]}")
    if wrong := misfits(run.replies, [body["text"] for body in bodies]):
        raise NotMeasured(f"{wrong} answers do not fit their texts")
    words = [workload.word_count(body["text"]) for body in bodies]
    replies = sorted(run.replies, key=lambda reply: reply.body)
    answers: list[dict[str, Any]] = [json.loads(reply.content) for reply in replies]
    for reply, answer in zip(replies, answers, strict=True):
        if answer["usage"]["words"] != words[reply.body]:
            raise NotMeasured(f"ours read {answer['usage']['words']} of {words[reply.body]} words")
    return answers


def _document(bench: Bench, section: str, model: Path, document: Body, windows: Sequence[Window]) -> list[Row]:
    """Words/s, memory, and what short texts beside it wait for."""
    words, most = bench.plan.document_words, max(bench.plan.concurrencies)
    few = min(8, most)
    with _ours(bench, section, model) as (server, load):
        with Client(server.url) as client:
            window = client.model().max_words
        parts = workload.pieces(document, window)
        load("the document, first", [document], concurrency=1, most=1)
        with weighed(server) as sizes:
            whole, [answer, *_] = load("the document", [document], concurrency=1)
        single, _ = load(f"texts of {window} words", parts, concurrency=most)
        alone, beside, meanwhile = _beside(bench, server, load, document, few)
    speed, in_windows = words * whole["requests_per_s"], sum(one["words"] for one in windows)
    loop, told = _loop(bench, model, parts)
    growth, before, after = (size / BYTES_PER_MB for size in (max(sizes) - sizes[0], sizes[0], sizes[-1]))
    bench.extra["long_texts"]["document"] = {
        "words": words, "windows": answer["usage"]["windows"], "words_in_windows": in_windows, "resident_bytes": sizes,
        "entities": len(answer["entities"]), "words_per_s": speed, "words_per_s_beside_short_texts": meanwhile,
    }  # fmt: skip
    name = f"a document of {words:,} words"
    return [
        Row(section, f"{name}, bf16", "words/s", speed, loop, "its pieces in a loop, gliner", note=told),
        Row(section, f"{name} over texts of {window}, bf16", "words/s", speed, window * single["requests_per_s"],
            f"ours, {most} at once", 0.85,
            note=f"{1 - words / in_windows:.1%} of the words in its {len(windows)} windows are overlap"),
        Row(section, f"growth of resident memory with {name}", "MB", growth, _GROWTH_MB, "the goal", 1.0, "less",
            f"after a first one; {before:.0f} MB before, {after:.0f} MB after"),
        Row(section, f"p95 of short texts beside {name}, bf16, {few} at once", "ms", beside["p95_ms"], alone["p95_ms"],
            "without it", 2.0, "less",
            f"p50 {beside['p50_ms']:.0f} ms, without it {alone['p50_ms']:.0f} ms; {beside['requests_per_s']:.1f} "
            f"requests/s, without it {alone['requests_per_s']:.1f}; the document meanwhile {meanwhile:.0f} words/s"),
    ]  # fmt: skip


def _bundled(
    bench: Bench, section: str, texts: Sequence[str], document: Body, wanted: Sequence[set[Span]],
    windows: Sequence[Window],
) -> list[Row]:  # fmt: skip
    """How time grows with the labels, and how far a document's entities are those of its paragraphs, `texts`, and the
    right ones."""
    with _ours(bench, section, DEMO) as (_, load):
        groups = _groups(bench, section, load)
        _, [whole] = load("paragraphs in one text", [document], concurrency=1, most=1)
        _, answers = load("paragraphs", [document | {"text": text} for text in texts], most=len(texts),
                          concurrency=max(bench.plan.concurrencies))  # fmt: skip
    starts = list(itertools.accumulate((len(text) + len(_BETWEEN_PARAGRAPHS) for text in texts[:-1]), initial=0))
    alone = joined(texts, [set(found(answer)) for answer in answers], _BETWEEN_PARAGRAPHS)
    right = f1([whole], [joined(texts, wanted, _BETWEEN_PARAGRAPHS)]), f1(answers, wanted)
    borders = [*starts[1:], *(one["start"] for one in windows[1:]), *(one["end"] for one in windows[:-1])]
    told = compared(document["text"], found(whole).keys(), alone, borders)
    bench.extra["long_texts"]["paragraphs"] = asdict(told) | {"windows": len(windows)}
    note = (
        f"{len(windows)} windows, {len(texts)} paragraphs; near a border of either (within {NEAR_WORDS} words) "
        f"{told.near_in_both} of {told.near}, elsewhere {told.elsewhere_in_both} of {told.elsewhere}"
    )
    name = f"entities of {workload.word_count(document['text']):,} words as of their paragraphs, bundled model, bf16"
    equal, every = told.near_in_both + told.elsewhere_in_both, told.near + told.elsewhere
    return [
        groups,
        Row(section, name, "entities", float(equal), float(every), "found in either", note=note),
        Row(section, "the same, against the entities that the sentences were written with", "F1", *right,
            "the paragraphs", 0.95, note="sentences hold others of these types, too, that count as wrong"),
    ]  # fmt: skip


def _groups(bench: Bench, section: str, load: Load) -> Row:
    """Time per group of labels."""
    group_ms: dict[int, float] = {}
    told = {}
    for count in _LABELS:
        bodies = workload.many_labels(1, labels=count, words=(_WORDS_UNDER_LABELS, _WORDS_UNDER_LABELS))
        load(f"{count} labels, first", bodies, concurrency=1, most=1)
        point, [answer, *_] = load(f"{count} labels", bodies, concurrency=1, seconds=bench.plan.settings_s / 2)
        usage = answer["usage"]
        group_ms[count] = point["p50_ms"] / usage["label_groups"]
        told[count] = f"{count:,} labels {point['p50_ms'] / 1000:.2f} s in {usage['label_groups']} x {usage['windows']}"
    bench.extra["long_texts"]["group_ms"] = group_ms
    _, some, many = _LABELS
    note = f"a text of {_WORDS_UNDER_LABELS} words; {', '.join(told.values())} passes"
    return Row(section, f"time per group, {many:,} labels over {some}, bundled model, bf16", "ms", group_ms[many],
               group_ms[some], f"ours, {some} labels", 1.2, "less", note)  # fmt: skip


@contextlib.contextmanager
def _ours(bench: Bench, section: str, model: Path) -> Iterator[tuple[Server, Load]]:
    """Ours, and how it is loaded."""
    with bench.ours(model, dtype=_DTYPE, request_timeout_s=_PATIENCE_S) as server:
        yield server, partial(_loaded, bench, section, server)


def _loaded(
    bench: Bench, section: str, server: Server, name: str, bodies: Sequence[Body], *, concurrency: int,
    seconds: float | None = None, most: int | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:  # fmt: skip
    """The point of a closed loop, and what `checked` gives."""
    run = closed_loop(server.url + EXTRACT, workload.encoded(bodies), concurrency=concurrency, most=most,
                      seconds=FOREVER_S if most else seconds or bench.plan.seconds)  # fmt: skip
    point = bench.kept("ours", run, concurrency=concurrency, section=section, dtype=_DTYPE, texts=name)
    return point, checked(run, bodies)


def _loop(bench: Bench, model: Path, parts: Sequence[Body]) -> tuple[float | None, str]:
    """Words/s of gliner over pieces of a document one by one, as far as it comes; a note."""
    try:
        told = job.run("one_by_one", model=str(model.resolve()), texts=[part["text"] for part in parts],
                       labels=parts[0]["labels"], seconds=bench.plan.in_process_s, dtype=_DTYPE)  # fmt: skip
    except NotMeasured as reason:
        return None, f"not measured: {reason}"
    words = workload.word_count(parts[0]["text"])
    return words * told["texts"] / told["seconds"], f"{told['texts']} of its {len(parts)} pieces of {words} words"


def _beside(
    bench: Bench, server: Server, load: Load, document: Body, number: int
) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Points of short texts without a document and while one is read; how many words/s of it are read then."""
    bodies, route = workload.short(bench.plan.texts), server.url + EXTRACT
    bench.warm(route, bodies, number)
    alone, _ = load("short texts", bodies, concurrency=number)
    with _reading(server, document) as progress:
        bench.warm(route, bodies, number)
        began, before = time.perf_counter(), progress.chars
        beside, _ = load("short texts beside the document", bodies, concurrency=number)
        chars_per_s = (progress.chars - before) / (time.perf_counter() - began)
    return alone, beside, chars_per_s * workload.word_count(document["text"]) / len(document["text"])


@dataclass(slots=True)
class _Progress:
    """Of a text, or of several, one after the other."""

    chars: int = 0


@contextlib.contextmanager
def _reading(server: Server, document: Body) -> Iterator[_Progress]:
    """Within it a document is read again and again; how far, its entities tell."""
    progress, over = _Progress(), threading.Event()
    text = document["text"]

    def read() -> None:
        with Client(server.url) as client:
            for before in itertools.count(0, len(text)):
                for told in client.extract_stream(text, document["labels"]):
                    if over.is_set():
                        return
                    if isinstance(told, Entity):
                        if text[told.start : told.end] != told.text:
                            raise NotMeasured("an entity of a stream does not fit its text")
                        progress.chars = before + told.end

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            yield progress
        finally:
            over.set()
        reader.result()
