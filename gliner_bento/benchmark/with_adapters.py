"""Sections of the report about LoRA adapters: what they cost, whether every answer is its adapter's, how they come
into memory while others are served, and how others serve them in process.

Over HTTP it is our server with adapters against the same server without: no other serves gliner's models with them.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from gliner_bento.benchmark import job, workload
from gliner_bento.benchmark.adapter_workload import Expected, adapter_ids, round_robin, zipf
from gliner_bento.benchmark.answers import agreement_of, own_share
from gliner_bento.benchmark.bench import FOREVER_S, Bench, tell
from gliner_bento.benchmark.job import NotMeasured
from gliner_bento.benchmark.load import Run, closed_loop, open_loop
from gliner_bento.benchmark.over_http import EXTRACT
from gliner_bento.benchmark.rows import Row
from gliner_bento.benchmark.server import Server
from gliner_bento.benchmark.workload import Body
from gliner_bento.client import Client

KINDS = {"attention": "queries and values", "values": "values", "linear": "all linear layers"}
_NO_ADAPTER = "no adapter"
_FIRST_ANSWER_MS = 300.0
_LOADS_PER_S = 5.0
_PEERS = {
    "peft": ("PEFT, mixed batches", 2.0),
    "peft-batches": ("PEFT, a batch per adapter", None),
    "polylora": ("PolyLoRA", 2.0),
}
_PACKAGES = ("peft", "polylora")
_BATCH_SIZES = [8, 4]


class _Asked:
    """What is asked of one model with its adapters and without, what is expected of it, and servers to ask.

    texts: without an adapter.
    """

    def __init__(self, bench: Bench) -> None:
        few, many, every = bench.plan.adapters
        self.bench = bench
        self.model = bench.checkpoint("ner")
        self.adapters = bench.adapters(self.model)
        self.texts = bench.bodies("ner", bench.plan.adapter_texts)
        bodies = self.texts
        for kind, count in (("attention", 1), ("attention", few), ("attention", many), ("attention", every),
                            ("values", few), ("linear", few)):  # fmt: skip
            bodies = [*bodies, *(body for body in self.of(kind, count) if body not in bodies)]
        bodies.sort(key=lambda body: str(body.get("adapter_id", "")))
        self.expected = Expected(bodies, bench.expected_with_adapters(self.model, bodies))

    def of(self, kind: str, count: int) -> list[Body]:
        """The texts with so many adapters of a kind in turn."""
        return round_robin(self.texts, adapter_ids(kind, count))

    @contextlib.contextmanager
    def settings(self, dtype: str, slots: int) -> Iterator[dict[str, Any]]:
        """Of ours, with so many adapters on the device and four times the few in memory."""
        few = self.bench.plan.adapters[0]
        with tempfile.TemporaryDirectory(prefix="adapters-", dir=self.bench.models.resolve()) as cache:
            yield {
                "dtype": dtype,
                "enable_lora": True,
                "adapter_root": self.adapters.root,
                "disk_cache_dir": cache,
                "max_device_adapters": slots,
                "max_cpu_adapters": 4 * few,
            }

    @contextlib.contextmanager
    def server(self, dtype: str, slots: int) -> Iterator[Server]:
        """Ours, with these settings."""
        with self.settings(dtype, slots) as settings, self.bench.ours(self.model, **settings) as server:
            yield server

    def point(self, server: Server, name: str, bodies: Sequence[Body], **about: Any) -> dict[str, Any]:
        """See `Bench.point`."""
        route = server.url + EXTRACT
        return self.bench.point("ours", route, bodies, adapters=name, **self.expected.of(bodies), **about)


def over_http(bench: Bench, section: str) -> list[Row]:
    """Requests/s with adapters in turn over requests/s without, bf16."""
    few, many, _ = bench.plan.adapters
    loads = {few: [("attention", 1), ("attention", few), ("linear", few)]}
    loads.setdefault(many, []).append(("attention", many))
    asked, rows = _Asked(bench), []
    for slots, of_server in loads.items():
        with asked.server("bfloat16", slots) as server:
            base = _measured(asked, server, section, _NO_ADAPTER, asked.texts)
            for kind, count in dict.fromkeys(of_server):
                name = f"{count} {'adapter' if count == 1 else 'adapters'} of {KINDS[kind]}"
                point = _measured(asked, server, section, name, asked.of(kind, count))
                goal = 0.8 if (kind, count) == ("attention", few) else None
                note = f"max_device_adapters {slots}; {_judged(point, base)}"
                rows.append(_over_base(bench, section, name, point, base, note, goal))
    return rows


def exact(bench: Bench, section: str) -> list[Row]:
    """Whether every answer is its adapter's, fp32, where rounding excuses nothing, also while adapters make room."""
    few, _, every = bench.plan.adapters
    asked, rows = _Asked(bench), []
    loads = {f"{few} adapters of {KINDS[kind]}": asked.of(kind, few) for kind in ("attention", "linear")}
    changing = zipf(asked.of("attention", every), bench.plan.adapter_requests // 4)
    loads[f"{every} adapters over {few} slots"] = changing
    with asked.server("float32", few) as server:
        for name, bodies in loads.items():
            point = asked.point(server, name, bodies, section=section, dtype="float32", most=len(bodies),
                                concurrency=max(bench.plan.concurrencies))  # fmt: skip
            told = point["agreement"]
            note = (
                f"{len(bodies) - told['answers']} errors, {told['wrong']} wrong answers, scores off by "
                f"{told['worst_score_difference']:.0e} at most"
            )
            right = float(told["answers"] - told["wrong"])
            rows.append(Row(section, f"right answers, {name}, fp32", "answers", right, float(len(bodies)), "requests",
                            1.0, note=note))  # fmt: skip
    return rows


def tiers(bench: Bench, section: str) -> list[Row]:
    """Adapters that come from the disk, and more adapters than the device and the memory hold, bf16."""
    few, many, every = bench.plan.adapters
    asked = _Asked(bench)
    bodies = asked.of("attention", every)
    changing = zipf(bodies, bench.plan.adapter_requests)
    with asked.server("bfloat16", few) as server:
        bench.warm(server.url + EXTRACT, asked.texts)
        rows = _cold(asked, server, section, bodies[-bench.plan.cold_adapters :])
        rows.append(_beside(asked, server, section, bodies[many:every]))
        base = _measured(asked, server, section, _NO_ADAPTER, asked.texts)
        name = f"{every} adapters over {few} slots"
        point = _measured(asked, server, section, name, changing, most=len(changing))
    note = (
        f"{len(changing)} requests, adapters drawn by Zipf's law, max_cpu_adapters {4 * few}; "
        f"{len(changing) - point['agreement']['answers']} errors; {_judged(point, base)}"
    )
    return [*rows, _over_base(bench, section, name, point, base, note, None)]


def in_process(bench: Bench, section: str) -> list[Row]:
    """Texts/s without a server, bf16, few adapters in turn; who answers wrong in float32 has no speed."""
    few, asked = bench.plan.adapters[0], _Asked(bench)
    loads = {kind: asked.of(kind, few) for kind in ("attention", "values")}
    expected = {kind: asked.expected.of(bodies)["expected"] for kind, bodies in loads.items()}
    ours: dict[str, dict[str, Any]] = {}
    with asked.settings("bfloat16", few) as settings:
        for kind, bodies in loads.items():
            told = bench.ours_in_process(asked.model, settings, what="throughput", bodies=bodies,
                                         seconds=bench.plan.in_process_s)  # fmt: skip
            agreement = agreement_of(told["answers"], expected[kind])
            ours[kind] = {"texts_per_s": told["texts_per_s"], "agreement": agreement}
    extra = bench.extra["adapters_in_process"] = {KINDS[kind]: {"ours": one} for kind, one in ours.items()}
    rows = []
    for peer, kind, one in _of_peers(asked, loads):
        (name, goal), speed, note = _PEERS[peer], None, f"not measured: {one.get('error')}"
        if "error" not in one:
            agreement, in_fp32 = (agreement_of(one[answers], expected[kind]) for answers in ("answers", "exact"))
            extra[KINDS[kind]][name] = {"texts_per_s": one["best"], "agreement": agreement, "exact": in_fp32}
            note = f"at batch size {', '.join(f'{size}: {fast:.1f}' for size, fast in one['texts_per_s'].items())}"
            if wrong := in_fp32["wrong"]:
                note = f"not measured: in fp32 {wrong} of {len(loads[kind])} answers are wrong; {note}"
            else:
                speed = one["best"]
        tell(f"  {name}, {KINDS[kind]}: {note}")
        rows.append(Row(section, f"{few} adapters of {KINDS[kind]}, in process, bf16", "texts/s",
                        ours[kind]["texts_per_s"], speed, name, goal, note=note))  # fmt: skip
    return rows


def _of_peers(asked: _Asked, loads: dict[str, list[Body]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What jobs/mixed.py tells of each peer and kind."""
    for package in _PACKAGES:
        peers = [peer for peer in _PEERS if peer.startswith(package)]
        try:
            told = job.run("mixed", peers=peers, model=str(asked.model.resolve()), folder=str(asked.adapters.root),
                           bodies=loads, layers=asked.adapters.layers, batch_sizes=_BATCH_SIZES,
                           seconds=asked.bench.plan.in_process_s / 2, dtype="bfloat16")  # fmt: skip
        except NotMeasured as reason:
            told = {peer: {kind: {"error": str(reason)} for kind in loads} for peer in peers}
        for peer in peers:
            for kind in loads:
                yield peer, kind, told[peer][kind]


def _measured(
    asked: _Asked, server: Server, section: str, name: str, bodies: Sequence[Body], most: int | None = None
) -> dict[str, Any]:
    """A load at the most concurrency, bf16, on a server that is warm for it."""
    number = max(asked.bench.plan.concurrencies)
    asked.bench.warm(server.url + EXTRACT, bodies, number)
    return asked.point(server, name, bodies, section=section, dtype="bfloat16", concurrency=number, most=most)


def _over_base(
    bench: Bench, section: str, name: str, point: dict[str, Any], base: dict[str, Any], note: str, goal: float | None
) -> Row:
    speeds = [one["requests_per_s"] for one in (point, base)]
    bench.extra.setdefault("adapters", []).append(
        {"name": name, "ms": 1000 / speeds[0], "without_ms": 1000 / speeds[1]}
    )
    return Row(section, f"{name}, bf16, {point['concurrency']} at once", "requests/s", speeds[0], speeds[1],
               _NO_ADAPTER, goal, note=note)  # fmt: skip


def _judged(point: dict[str, Any], base: dict[str, Any]) -> str:
    told, without = point["agreement"], base["agreement"]
    return (
        f"{told['own']:.1%} of answers are nearest to their own merged model's, F1 {told['f1']:.2f} "
        f"(without adapter {without['f1']:.2f})"
    )


def _cold(asked: _Asked, server: Server, section: str, contents: Sequence[Body]) -> list[Row]:
    """First answers of adapters that were put but not loaded, and the same requests again, one at a time.

    contents: bodies with the adapters that are put, under other names.
    """
    bodies = []
    with Client(server.url) as client:
        for number, body in enumerate(contents):
            name = f"cold-{number:03}"
            card = client.put_adapter(name, asked.adapters.root / body["adapter_id"], preload=False)
            if card.tier != "disk":
                raise NotMeasured(f"an adapter that was put and not asked for is in the tier {card.tier}")
            bodies += [body | {"adapter_id": name}] * 2
    run = closed_loop(server.url + EXTRACT, workload.encoded(bodies), concurrency=1, seconds=FOREVER_S,
                      most=len(bodies))  # fmt: skip
    if failed := [reply.status for reply in run.replies if reply.status != "200"]:
        raise NotMeasured(f"an adapter that was put was answered {failed[0]}")
    latencies_ms = [reply.latency_s * 1000 for reply in run.replies]
    asked.bench.extra["cold_ms"] = latencies_ms
    first, again = (statistics.median(latencies_ms[at::2]) for at in (0, 1))
    own = own_share(run.replies, **asked.expected.of([body for body in contents for _ in range(2)]))
    title = f"first answer with an adapter on disk, bf16, median of {len(contents)}"
    note = f"worst {max(latencies_ms[::2]):.0f} ms; {own:.1%} of answers are nearest to their own merged model's"
    return [
        Row(section, title, "ms", first, _FIRST_ANSWER_MS, "the goal", 1.0, "less", note),
        Row(section, title, "ms", first, again, "the same request again", better="less"),
    ]


def _beside(asked: _Asked, server: Server, section: str, coming: Sequence[Body]) -> Row:
    """How long requests without an adapter take while adapters come from the disk, and while none does.

    coming: bodies with an adapter each that nobody has asked for, more than the memory holds.
    """
    number = min(8, max(asked.bench.plan.concurrencies))
    seconds = asked.bench.plan.seconds
    p95_ms: list[float] = []
    notes = []
    for name, bodies in (("one resident", coming[:1]), ("each from disk", coming[1:])):
        with _asking(server, bodies, seconds) as runs:
            point = asked.point(server, f"{_NO_ADAPTER}, beside adapters, {name}", asked.texts, section=section,
                                dtype="bfloat16", concurrency=number, seconds=seconds)  # fmt: skip
        told = runs[0].summary()
        p95_ms.append(point["p95_ms"])
        answers = ", ".join(f"{count} x {status}" for status, count in told["statuses"].items())
        own = own_share(runs[0].replies, **asked.expected.of(bodies)) or 0
        notes.append(f"{name}: {answers}, {own:.1%} nearest to their own, p50 {told['p50_ms'] or 0:.0f} ms")
    return Row(section, f"p95 without adapter while adapters load, bf16, {number} at once", "ms", p95_ms[1], p95_ms[0],
               "while none loads", better="less",
               note=f"beside requests with adapters, {_LOADS_PER_S:.0f}/s; {'; '.join(notes)}")  # fmt: skip


@contextlib.contextmanager
def _asking(server: Server, bodies: Sequence[Body], seconds: float) -> Iterator[list[Run]]:
    """Within it, requests on a schedule; their run is there afterwards."""
    runs: list[Run] = []
    asked = workload.encoded(bodies)
    thread = threading.Thread(
        target=lambda: runs.append(open_loop(server.url + EXTRACT, asked, rate=_LOADS_PER_S, seconds=seconds))
    )
    thread.start()
    try:
        yield runs
    finally:
        thread.join()
