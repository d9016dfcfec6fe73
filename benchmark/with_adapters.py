"""Sections about LoRA adapters: their cost, whether every response is of its own adapter, the latency of loading them
while other requests are served, and PEFT's batches in process.

Over HTTP the baseline is our own server without adapters: no other server takes an adapter per request for gliner.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from benchmark import job
from benchmark.adapter_workload import Expected, adapter_ids, round_robin, zipf
from benchmark.answers import agreement_of, own_adapter_share
from benchmark.bench import UNLIMITED_S, Bench, log_progress
from benchmark.job import NotMeasured
from benchmark.over_http import EXTRACT
from benchmark.rows import Row
from benchmark.server import Server
from gliner_bento.client import Client
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import Run, closed_loop, open_loop
from gliner_bento.loadtest.workload import Body

KINDS = {"attention": "queries and values", "values": "values", "linear": "all linear layers"}
_NO_ADAPTER = "no adapter"
_FIRST_RESPONSE_MS = 300.0
_LOADS_PER_S = 5.0
_BATCH_SIZES = [8, 4]


@contextlib.contextmanager
def settings_for(bench: Bench, dtype: str, slots: int) -> Iterator[dict[str, Any]]:
    """Settings of our server: `slots` adapters on the device, and four times the plan's few in CPU memory, at least
    those on the device."""
    with tempfile.TemporaryDirectory(prefix="adapters-", dir=bench.models) as cache:
        yield {
            "dtype": dtype,
            "enable_lora": True,
            "adapter_root": bench.adapters(bench.checkpoint("ner")),
            "disk_cache_dir": cache,
            "max_device_adapters": slots,
            "max_cpu_adapters": max(slots, 4 * bench.plan.adapters[0]),
        }


def in_turn(texts: Sequence[Body], count: int, kind: str = "attention") -> list[Body]:
    """The texts with `count` adapters of a kind in turn."""
    return round_robin(texts, adapter_ids(kind, count))


class _AdapterLoads:
    """Workloads with and without adapters for one model, the expected predictions, and servers for them.

    texts: bodies without an adapter.
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
        """The texts with `count` adapters of a kind in turn."""
        return in_turn(self.texts, count, kind)

    @contextlib.contextmanager
    def server(self, dtype: str, slots: int) -> Iterator[Server]:
        """Our server with these settings."""
        with settings_for(self.bench, dtype, slots) as settings, self.bench.ours(self.model, **settings) as server:
            yield server

    def measure(self, server: Server, name: str, bodies: Sequence[Body], **about: Any) -> dict[str, Any]:
        """See `Bench.measure_load`."""
        route = server.url + EXTRACT
        return self.bench.measure_load("ours", route, bodies, adapters=name, **self.expected.of(bodies), **about)

    def measure_warm(
        self, server: Server, section: str, name: str, bodies: Sequence[Body], max_requests: int | None = None
    ) -> dict[str, Any]:
        """A load at the highest concurrency, bf16, after a warm-up with it."""
        number = max(self.bench.plan.concurrencies)
        self.bench.warm_up(server.url + EXTRACT, bodies, number)
        return self.measure(server, name, bodies, section=section, dtype="bfloat16", concurrency=number,
                            max_requests=max_requests)  # fmt: skip


def over_http(bench: Bench, section: str) -> list[Row]:
    """Requests/s with adapters in turn over requests/s without, bf16."""
    few, many, _ = bench.plan.adapters
    kinds_by_slots = {few: [("attention", 1), ("attention", few), ("linear", few)]}
    kinds_by_slots.setdefault(many, []).append(("attention", many))
    loads, rows = _AdapterLoads(bench), []
    for slots, kinds in kinds_by_slots.items():
        with loads.server("bfloat16", slots) as server:
            base = loads.measure_warm(server, section, _NO_ADAPTER, loads.texts)
            for kind, count in dict.fromkeys(kinds):
                name = f"{count} {'adapter' if count == 1 else 'adapters'} of {KINDS[kind]}"
                point = loads.measure_warm(server, section, name, loads.of(kind, count))
                target = 0.8 if (kind, count) == ("attention", few) else None
                note = f"max_device_adapters {slots}; {_agreement_note(point, base)}"
                rows.append(_row_over_base(bench, section, name, point, base, note, target))
    return rows


def exact(bench: Bench, section: str) -> list[Row]:
    """Whether every response is of its own adapter, in fp32, where it must match to 1e-4; also with evictions."""
    few, _, every = bench.plan.adapters
    loads, rows = _AdapterLoads(bench), []
    bodies_by_name = {f"{few} adapters of {KINDS[kind]}": loads.of(kind, few) for kind in ("attention", "linear")}
    evicting = zipf(loads.of("attention", every), bench.plan.adapter_requests // 4)
    bodies_by_name[f"{every} adapters over {few} slots"] = evicting
    with loads.server("float32", few) as server:
        for name, bodies in bodies_by_name.items():
            point = loads.measure(server, name, bodies, section=section, dtype="float32", max_requests=len(bodies),
                                  concurrency=max(bench.plan.concurrencies))  # fmt: skip
            agreement = point["agreement"]
            note = (
                f"{len(bodies) - agreement['answers']} errors, {agreement['wrong']} wrong responses, largest score "
                f"difference {agreement['worst_score_difference']:.0e}"
            )
            right = float(agreement["answers"] - agreement["wrong"])
            rows.append(Row(section, f"right responses, {name}, fp32", "responses", right, float(len(bodies)),
                            "requests", 1.0, note=note))  # fmt: skip
    return rows


def tiers(bench: Bench, section: str) -> list[Row]:
    """Adapters that are loaded from disk, and more adapters than device slots and CPU memory hold, bf16."""
    few, many, every = bench.plan.adapters
    loads = _AdapterLoads(bench)
    bodies = loads.of("attention", every)
    evicting = zipf(bodies, bench.plan.adapter_requests)
    with loads.server("bfloat16", few) as server:
        bench.warm_up(server.url + EXTRACT, loads.texts)
        rows = _first_requests(loads, server, section, bodies[-bench.plan.cold_adapters :])
        rows.append(_while_adapters_load(loads, server, section, bodies[many:every]))
        base = loads.measure_warm(server, section, _NO_ADAPTER, loads.texts)
        name = f"{every} adapters over {few} slots"
        point = loads.measure_warm(server, section, name, evicting, max_requests=len(evicting))
    note = (
        f"{len(evicting)} requests, adapters drawn by Zipf's law, max_cpu_adapters {4 * few}; "
        f"{len(evicting) - point['agreement']['answers']} errors; {_agreement_note(point, base)}"
    )
    return [*rows, _row_over_base(bench, section, name, point, base, note, None)]


def in_process(bench: Bench, section: str) -> list[Row]:
    """Texts/s without a server, bf16, few adapters in turn; a baseline with wrong predictions in fp32 has no speed."""
    few, loads = bench.plan.adapters[0], _AdapterLoads(bench)
    bodies_by_kind = {kind: loads.of(kind, few) for kind in ("attention", "values")}
    expected = {kind: loads.expected.of(bodies)["expected"] for kind, bodies in bodies_by_kind.items()}
    ours: dict[str, dict[str, Any]] = {}
    with settings_for(bench, "bfloat16", few) as settings:
        for kind, bodies in bodies_by_kind.items():
            result = bench.ours_in_process(loads.model, settings, what="throughput", bodies=bodies,
                                           seconds=bench.plan.in_process_s)  # fmt: skip
            agreement = agreement_of(result["answers"], expected[kind])
            ours[kind] = {"texts_per_s": result["texts_per_s"], "agreement": agreement}
    extra = bench.extra["adapters_in_process"] = {KINDS[kind]: {"ours": one} for kind, one in ours.items()}
    rows = []
    results: dict[str, Any]
    try:
        results = job.run("mixed", model=loads.model, bodies=bodies_by_kind, folder=loads.adapters,
                          batch_sizes=_BATCH_SIZES, seconds=bench.plan.in_process_s / 2, dtype="bfloat16")  # fmt: skip
    except NotMeasured as reason:
        results = {kind: {"error": str(reason)} for kind in bodies_by_kind}
    name = "PEFT, mixed batches"
    for kind, result in results.items():
        speed, note = None, f"not measured: {result.get('error')}"
        if "error" not in result:
            agreement, in_fp32 = (agreement_of(result[answers], expected[kind]) for answers in ("answers", "exact"))
            extra[KINDS[kind]][name] = {"texts_per_s": result["best"], "agreement": agreement, "exact": in_fp32}
            note = "texts/s by batch size: " + ", ".join(
                f"{size}: {per_s:.1f}" for size, per_s in result["texts_per_s"].items()
            )
            if wrong := in_fp32["wrong"]:
                note = f"not measured: wrong predictions for {wrong} of {len(bodies_by_kind[kind])} in fp32; {note}"
            else:
                speed = result["best"]
        log_progress(f"  {name}, {KINDS[kind]}: {note}")
        rows.append(Row(section, f"{few} adapters of {KINDS[kind]}, in process, bf16", "texts/s",
                        ours[kind]["texts_per_s"], speed, name, 2.0, note=note))  # fmt: skip
    return rows


def _row_over_base(
    bench: Bench, section: str, name: str, point: dict[str, Any], base: dict[str, Any], note: str, target: float | None
) -> Row:
    speeds = [one["requests_per_s"] for one in (point, base)]
    bench.extra.setdefault("adapters", []).append(
        {"name": name, "ms": 1000 / speeds[0], "without_ms": 1000 / speeds[1]}
    )
    return Row(section, f"{name}, bf16, concurrency {point['concurrency']}", "requests/s", speeds[0], speeds[1],
               _NO_ADAPTER, target, note=note)  # fmt: skip


def _agreement_note(point: dict[str, Any], base: dict[str, Any]) -> str:
    agreement, without = point["agreement"], base["agreement"]
    return (
        f"{agreement['own']:.1%} of responses are nearest to their own merged adapter, F1 {agreement['f1']:.2f} "
        f"(without adapter {without['f1']:.2f})"
    )


def _first_requests(loads: _AdapterLoads, server: Server, section: str, contents: Sequence[Body]) -> list[Row]:
    """First responses of adapters that are on disk only, and of the same requests repeated, one at a time.

    contents: bodies with the adapters that are uploaded, under new ids.
    """
    bodies = []
    with Client(server.url) as client:
        for number, body in enumerate(contents):
            name = f"cold-{number:03}"
            card = client.put_adapter(name, loads.adapters / body["adapter_id"], preload=False)
            if card.tier != "disk":
                raise NotMeasured(f"an adapter without requests is in the tier {card.tier}")
            bodies += [body | {"adapter_id": name}] * 2
    run = closed_loop(server.url + EXTRACT, workload.encoded(bodies), concurrency=1, seconds=UNLIMITED_S,
                      max_requests=len(bodies))  # fmt: skip
    if failed := [reply.status for reply in run.replies if reply.status != "200"]:
        raise NotMeasured(f"a request with an uploaded adapter was answered {failed[0]}")
    latencies_ms = [reply.latency_s * 1000 for reply in run.replies]
    loads.bench.extra["cold_ms"] = latencies_ms
    first, repeated = (statistics.median(latencies_ms[at::2]) for at in (0, 1))
    own = own_adapter_share(run.replies, **loads.expected.of([body for body in contents for _ in range(2)]))
    title = f"first response of an adapter on disk, bf16, median of {len(contents)}"
    note = f"maximum {max(latencies_ms[::2]):.0f} ms; {own:.1%} of responses are nearest to their own merged adapter"
    return [
        Row(section, title, "ms", first, _FIRST_RESPONSE_MS, "limit", 1.0, "less", note),
        Row(section, title, "ms", first, repeated, "the same request repeated", better="less"),
    ]


def _while_adapters_load(loads: _AdapterLoads, server: Server, section: str, cold: Sequence[Body]) -> Row:
    """Latency of requests without an adapter while adapters are loaded from disk, and while none is.

    cold: bodies with a different adapter each, none of them used so far, more than CPU memory holds.
    """
    number = min(8, max(loads.bench.plan.concurrencies))
    seconds = loads.bench.plan.seconds
    p95_ms: list[float] = []
    notes = []
    for name, bodies in (("one resident", cold[:1]), ("each from disk", cold[1:])):
        with _background_load(server, bodies, seconds) as runs:
            point = loads.measure(server, f"{_NO_ADAPTER}, with requests to adapters, {name}", loads.texts,
                                  section=section, dtype="bfloat16", concurrency=number, seconds=seconds)  # fmt: skip
        summary = runs[0].summary()
        p95_ms.append(point["p95_ms"])
        responses = ", ".join(f"{count} x {status}" for status, count in summary["statuses"].items())
        own = own_adapter_share(runs[0].replies, **loads.expected.of(bodies)) or 0
        notes.append(f"{name}: {responses}, {own:.1%} nearest to their own, p50 {summary['p50_ms'] or 0:.0f} ms")
    return Row(section, f"p95 without adapter while adapters load, bf16, concurrency {number}", "ms", p95_ms[1],
               p95_ms[0], "while none loads", better="less",
               note=f"{_LOADS_PER_S:.0f} requests/s with adapters meanwhile; {'; '.join(notes)}")  # fmt: skip


@contextlib.contextmanager
def _background_load(server: Server, bodies: Sequence[Body], seconds: float) -> Iterator[list[Run]]:
    """An open loop in a thread while the block runs; the list has its run afterwards."""
    runs: list[Run] = []
    payloads = workload.encoded(bodies)
    thread = threading.Thread(
        target=lambda: runs.append(open_loop(server.url + EXTRACT, payloads, rate=_LOADS_PER_S, seconds=seconds))
    )
    thread.start()
    try:
        yield runs
    finally:
        thread.join()
