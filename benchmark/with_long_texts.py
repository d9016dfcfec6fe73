"""The section about texts that are processed in windows, and labels that are processed in groups: their cost, the
latency of other requests meanwhile, and how far the predictions are those of the separate pieces.

Every response of ours is checked: the whole text has to be processed, and the offsets have to match it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmark import generated, job
from benchmark.answers import predictions_of
from benchmark.bench import DEMO, UNLIMITED_S, Bench
from benchmark.job import NotMeasured
from benchmark.labelled import Span, f1, joined_spans, paragraphs
from benchmark.over_http import BYTES_PER_MB, EXTRACT
from benchmark.rows import Row
from benchmark.server import Server, memory_samples
from gliner_bento.client import Client
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import Run, closed_loop
from gliner_bento.loadtest.measure import offset_errors
from gliner_bento.loadtest.workload import Body
from gliner_bento.tasks.extraction import Entity

_DTYPE = "bfloat16"
_REQUEST_TIMEOUT_S = 600
_GROWTH_MB = 50.0
_LABELS = (25, 250, 1000)
_WORDS_UNDER_LABELS = 200
_PIECES = 16
"""Of the document, which gliner processes one by one."""
_SEPARATOR = "\n\n"
"""Between paragraphs."""

Load = Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]
"""`_measure_load`, on one server."""


def long_texts(bench: Bench, section: str) -> list[Row]:
    """A long document, without and with other requests; then, on the bundled model, many labels, and paragraphs."""
    bench.extra["long_texts"] = {}
    model, document = bench.checkpoint("ner"), generated.document(bench.plan.document_words)
    texts, labels, gold = paragraphs(bench.plan.paragraphs)
    whole: Body = {"text": _SEPARATOR.join(texts), "labels": labels}
    windows = bench.ours_in_process(model, {"dtype": _DTYPE}, what="windows", body=document)["windows"]
    return [
        *_document_rows(bench, section, model, document, windows),
        *_bundled_rows(bench, section, texts, whole, gold),
    ]


def checked_answers(run: Run, bodies: Sequence[Body]) -> list[dict[str, Any]]:
    """The answers of a run, sorted by body. Raises NotMeasured for an error, for offsets that do not match the text,
    and for a text that was not processed whole."""
    if failed := [reply.status for reply in run.replies if reply.status != "200"]:
        raise NotMeasured(f"ours answered {failed[0]}")
    if wrong := offset_errors(run.replies, [body["text"] for body in bodies]):
        raise NotMeasured(f"{wrong} answers have offsets that do not match their texts")
    words = [generated.word_count(body["text"]) for body in bodies]
    replies = sorted(run.replies, key=lambda reply: reply.body_index)
    answers: list[dict[str, Any]] = [json.loads(reply.content) for reply in replies]
    for reply, answer in zip(replies, answers, strict=True):
        if answer["usage"]["words"] != words[reply.body_index]:
            raise NotMeasured(f"ours processed {answer['usage']['words']} of {words[reply.body_index]} words")
    return answers


def _document_rows(
    bench: Bench, section: str, model: Path, document: Body, windows: Sequence[int]
) -> list[Row]:  # fmt: skip
    """Words/s, memory, and the latency of short texts while the document is processed."""
    words, most = bench.plan.document_words, max(bench.plan.concurrencies)
    few = min(8, most)
    with _our_server(bench, section, model) as (server, load):
        with Client(server.url) as client:
            window = client.model().max_words
        parts = generated.pieces(document, window)
        load("the document, first", [document], concurrency=1, max_requests=1)
        with memory_samples(server) as sizes:
            whole, [answer, *_] = load("the document", [document], concurrency=1)
        single, _ = load(f"texts of {window} words", parts, concurrency=most)
        without, meanwhile, document_words_per_s = _short_texts_meanwhile(bench, server, load, document, few)
    speed, in_windows = words * whole["requests_per_s"], sum(windows)
    loop, loop_note = _loop_of_gliner(bench, model, parts)
    growth, before, after = (size / BYTES_PER_MB for size in (max(sizes) - sizes[0], sizes[0], sizes[-1]))
    bench.extra["long_texts"]["document"] = {
        "words": words, "windows": answer["usage"]["windows"], "words_in_windows": in_windows, "resident_bytes": sizes,
        "entities": len(answer["entities"]), "words_per_s": speed,
        "words_per_s_beside_short_texts": document_words_per_s,
    }  # fmt: skip
    name = f"a document of {words:,} words"
    return [
        Row(section, f"{name}, bf16", "words/s", speed, loop, "gliner, loop over its pieces", note=loop_note),
        Row(section, f"{name} over texts of {window} words, bf16", "words/s", speed, window * single["requests_per_s"],
            f"ours, concurrency {most}", 0.85,
            note=f"{1 - words / in_windows:.1%} of the words in its {len(windows)} windows are overlap"),
        Row(section, f"growth of resident memory with {name}", "MB", growth, _GROWTH_MB, "limit", 1.0, "less",
            f"after a first document; {before:.0f} MB before, {after:.0f} MB after"),
        Row(section, f"p95 of short texts during {name}, bf16, concurrency {few}", "ms", meanwhile["p95_ms"],
            without["p95_ms"], "without the document", 2.0, "less",
            f"p50 {meanwhile['p50_ms']:.0f} ms, without the document {without['p50_ms']:.0f} ms; "
            f"{meanwhile['requests_per_s']:.1f} requests/s, without it {without['requests_per_s']:.1f}; the document "
            f"meanwhile {document_words_per_s:.0f} words/s"),
    ]  # fmt: skip


def _bundled_rows(
    bench: Bench, section: str, texts: Sequence[str], document: Body, gold: Sequence[set[Span]]
) -> list[Row]:
    """How time grows with the labels, and how far the entities of a document are those of its paragraphs, `texts`, and
    the right ones."""
    with _our_server(bench, section, DEMO) as (_, load):
        groups = _label_group_row(bench, section, load)
        _, [whole] = load("paragraphs in one text", [document], concurrency=1, max_requests=1)
        _, answers = load("paragraphs", [document | {"text": text} for text in texts], max_requests=len(texts),
                          concurrency=max(bench.plan.concurrencies))  # fmt: skip
    separate = joined_spans(texts, [set(predictions_of(answer)) for answer in answers], _SEPARATOR)
    together = predictions_of(whole).keys()
    f1_of_both = f1([whole], [joined_spans(texts, gold, _SEPARATOR)]), f1(answers, gold)
    note = f"{whole['usage']['windows']} windows, {len(texts)} paragraphs"
    name = (
        f"entities of {generated.word_count(document['text']):,} words equal to their paragraphs', bundled model, bf16"
    )
    in_both, in_either = len(together & separate), len(together | separate)
    return [
        groups,
        Row(section, name, "entities", float(in_both), float(in_either), "entities of either", note=note),
        Row(section, "the same, against the entities in the templates", "F1", *f1_of_both, "the paragraphs", 0.95,
            note="sentences contain further entities of these types, which count as wrong"),
    ]  # fmt: skip


def _label_group_row(bench: Bench, section: str, load: Load) -> Row:
    """Time per group of labels."""
    group_ms: dict[int, float] = {}
    notes = {}
    for count in _LABELS:
        bodies = workload.many_labels(1, labels=count, words=(_WORDS_UNDER_LABELS, _WORDS_UNDER_LABELS))
        load(f"{count} labels, first", bodies, concurrency=1, max_requests=1)
        point, [answer, *_] = load(f"{count} labels", bodies, concurrency=1, seconds=bench.plan.settings_s / 2)
        usage = answer["usage"]
        group_ms[count] = point["p50_ms"] / usage["label_groups"]
        passes = f"{usage['label_groups']} x {usage['windows']} passes"
        notes[count] = f"{count:,} labels {point['p50_ms'] / 1000:.2f} s in {passes}"
    bench.extra["long_texts"]["group_ms"] = group_ms
    _, some, many = _LABELS
    note = f"a text of {_WORDS_UNDER_LABELS} words; {', '.join(notes.values())}"
    return Row(section, f"time per group, {many:,} labels over {some}, bundled model, bf16", "ms", group_ms[many],
               group_ms[some], f"ours, {some} labels", 1.2, "less", note)  # fmt: skip


@contextlib.contextmanager
def _our_server(bench: Bench, section: str, model: Path) -> Iterator[tuple[Server, Load]]:
    """Our server, and `_measure_load` on it."""
    with bench.ours(model, dtype=_DTYPE, request_timeout_s=_REQUEST_TIMEOUT_S) as server:
        yield server, partial(_measure_load, bench, section, server)


def _measure_load(
    bench: Bench, section: str, server: Server, name: str, bodies: Sequence[Body], *, concurrency: int,
    seconds: float | None = None, max_requests: int | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:  # fmt: skip
    """The point of a closed loop, and its `checked_answers`."""
    until = UNLIMITED_S if max_requests else seconds or bench.plan.seconds
    run = closed_loop(server.url + EXTRACT, workload.encoded(bodies), concurrency=concurrency, seconds=until,
                      max_requests=max_requests)  # fmt: skip
    point = bench.keep_point("ours", run, concurrency=concurrency, section=section, dtype=_DTYPE, texts=name)
    return point, checked_answers(run, bodies)


def _loop_of_gliner(bench: Bench, model: Path, parts: Sequence[Body]) -> tuple[float | None, str]:
    """Words/s of gliner in a loop over pieces of a document; a note."""
    some, words = list(parts[:_PIECES]), generated.word_count(parts[0]["text"])
    try:
        result = job.run("gliner_own", model=model, bodies=some, batch_sizes=[1],
                         seconds=bench.plan.in_process_s, dtype=_DTYPE)  # fmt: skip
    except NotMeasured as reason:
        return None, f"not measured: {reason}"
    return words * result["best"], f"{len(some)} of its {len(parts)} pieces of {words} words"


def _short_texts_meanwhile(
    bench: Bench, server: Server, load: Load, document: Body, number: int
) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Points of short texts without a document and while one is processed; the words/s of the document meanwhile."""
    bodies, route = workload.short(bench.plan.texts), server.url + EXTRACT
    bench.warm_up(route, bodies, number)
    without, _ = load("short texts", bodies, concurrency=number)
    with _document_stream(server, document) as progress:
        bench.warm_up(route, bodies, number)
        start, before = time.perf_counter(), progress.chars
        meanwhile, _ = load("short texts during the document", bodies, concurrency=number)
        chars_per_s = (progress.chars - before) / (time.perf_counter() - start)
    return without, meanwhile, chars_per_s * generated.word_count(document["text"]) / len(document["text"])


@dataclass(slots=True)
class _Progress:
    """Characters processed, over all repetitions of a text."""

    chars: int = 0


@contextlib.contextmanager
def _document_stream(server: Server, document: Body) -> Iterator[_Progress]:
    """Streams a document repeatedly while the block runs; the entities show the progress."""
    progress, stopped = _Progress(), threading.Event()
    text = document["text"]

    def read() -> None:
        with Client(server.url) as client:
            for before in itertools.count(0, len(text)):
                for event in client.extract_stream(text, document["labels"]):
                    if stopped.is_set():
                        return
                    if isinstance(event, Entity):
                        if text[event.start : event.end] != event.text:
                            raise NotMeasured("the offsets of an entity in a stream do not match its text")
                        progress.chars = before + event.end

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            yield progress
        finally:
            stopped.set()
        reader.result()
