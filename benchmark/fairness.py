"""A server with two API keys.

The section `fairness`: tenant B sends a few short texts per second, first alone, then beside tenant A with 64
connections of long texts: of one pass, then of several.

The section `express`: one short text a second beside each kind of flood, of another tenant and of the same one, and the
throughput of the server with and without it; and a flood of short texts beside a flood of long ones.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from statistics import median
from typing import Any, TypeVar

import aiohttp

from benchmark import generated
from benchmark.bench import DEMO, Bench
from benchmark.over_http import BATCH, BYTES_PER_MB, EXTRACT
from benchmark.rows import Row
from benchmark.server import metrics_page
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import authorization, closed_loop, open_loop, percentile_ms
from gliner_bento.storage.api_keys import hash_of

T = TypeVar("T")

KEYS = {"a": "key of tenant a", "b": "key of tenant b"}
CONNECTIONS = 64
RATE = 4.0
WORDS = (300, 2000)
TARGET = 2.0
_PATIENCE_S = 60.0
_LEAD_S = 5.0  # A is alone for this long before B begins

SHORT_EVERY_S = 1.0
KEPT, SLOWER, SHARE = 0.95, 3.0, 0.9
"""Targets of the section `express`: throughput beside the short texts over that without, p95 of the short texts beside
a flood over that alone, and a tenant's part of the cost over its share."""
_ROUNDS = 5  # one of a few seconds varies by a tenth
_FLOODS: dict[str, tuple[str, int, list[Any]]] = {
    "24 connections of 300 words": (EXTRACT, 24, [generated.document(300, seed) for seed in range(32)]),
    "8 connections of 2,000 words": (EXTRACT, 8, [generated.document(2000, seed) for seed in range(32)]),
    "2 connections of 256 texts": (
        BATCH,
        2,
        [
            {
                "texts": [generated.document(120, 1000 * request + seed)["text"] for seed in range(256)],
                "labels": workload.LABEL_SETS[0],
            }
            for request in range(4)
        ],
    ),
}
"""Route, number of connections and bodies. The last is what `bulk` sends."""
_USAGE = re.compile(rb'"usage":\{"words":\d+,"tokens":(\d+),"windows":\d+,"passes":(\d+)')
_TOKENS = re.compile(r"^gliner_tokens_total\{[^}]*\} (\S+)$", re.MULTILINE)
_DOUBLE_COST_TOKENS = 200  # as in the engine: a pass of as many tokens costs twice its tokens


class Flood:
    """A tenant, in a thread of its own: connections that send one text after another, and wait as long as Retry-After
    says when they are refused. statuses: of the responses so far."""

    def __init__(self, url: str, bodies: Sequence[bytes], connections: int, tenant: str = "a") -> None:
        self.statuses: Counter[str] = Counter()
        self._served: list[tuple[float, float, float]] = []  # when sent and answered, and the cost in tokens
        self._under_way_s: dict[int, float] = {}  # by connection, when its last request was sent
        self._tenant = tenant
        self._url = url
        self._bodies = bodies
        self._connections = connections
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cost_between(self, begin_s: float, end_s: float) -> float:
        """The cost of what was served then, in tokens. That of a request counts as spread over the time until its
        answer: a long text takes seconds, so counting answers would add what was served before `begin_s`."""
        return sum(
            cost * max(0.0, min(answered_s, end_s) - max(sent_s, begin_s)) / (answered_s - sent_s)
            for sent_s, answered_s, cost in list(self._served)
        )

    @property
    def oldest_s(self) -> float:
        """When the oldest request was sent that may not have been answered."""
        return min(self._under_way_s.values(), default=math.inf)

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=self._connections)
        async with aiohttp.ClientSession(connector=connector, headers=authorization(KEYS[self._tenant])) as session:
            connections = [asyncio.ensure_future(self._send(session, first)) for first in range(self._connections)]
            await asyncio.to_thread(self._ended.wait)
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _send(self, session: aiohttp.ClientSession, connection: int) -> None:
        number = connection
        while True:
            body = self._bodies[number % len(self._bodies)]
            number += self._connections
            sent_s = self._under_way_s[connection] = time.monotonic()
            try:
                async with session.post(self._url, data=body, headers={"Content-Type": "application/json"}) as answer:
                    content = await answer.read()
                    self._served.append((sent_s, time.monotonic(), served_cost(content)))
                    self.statuses[str(answer.status)] += 1
                    wait_s = int(answer.headers.get("Retry-After", 0))
            except aiohttp.ClientError as error:
                self.statuses[type(error).__name__] += 1
                wait_s = 1
            await asyncio.sleep(wait_s)


def fairness(bench: Bench, section: str) -> list[Row]:
    """B's p95 beside A over its p95 alone, for each length of A's texts."""
    short, seconds = workload.encoded(workload.short(256)), bench.plan.seconds
    with bench.ours(DEMO, api_keys=_keys()) as server:
        url = server.url + EXTRACT

        def b() -> dict[str, Any]:
            return open_loop(url, short, rate=RATE, seconds=seconds, api_key=KEYS["b"]).summary()

        closed_loop(url, short, concurrency=4, seconds=min(5.0, seconds), api_key=KEYS["b"])
        alone, beside = b(), {}
        for words in WORDS:
            long = workload.encoded([generated.document(words, seed) for seed in range(32)])
            with Flood(url, long, CONNECTIONS) as flood:
                time.sleep(_LEAD_S)
                beside[words] = {"b": b(), "a_statuses": dict(flood.statuses)}
            time.sleep(_LEAD_S)
    bench.extra["fairness"] = {"rate": RATE, "connections": CONNECTIONS, "b_alone": alone, "beside_a": beside}
    return [
        Row(section, f"p95 of short texts beside {CONNECTIONS} connections of texts of {words} words", "ms",
            one["b"]["p95_ms"], alone["p95_ms"], "alone", TARGET, "less",
            f"responses of the short texts {one['b']['statuses']}, of the long ones {one['a_statuses']}")
        for words, one in beside.items()
    ]  # fmt: skip


def express(bench: Bench, section: str) -> list[Row]:
    """For each flood: tokens/s of all with and without one short text a second, in turn, and the short texts' p95."""
    bodies, seconds = workload.encoded(workload.short(256)), bench.plan.seconds
    facts: dict[str, Any] = {"short_every_s": SHORT_EVERY_S, "rounds": _ROUNDS, "floods": {}}
    bench.extra["express"] = facts
    with bench.ours(DEMO, api_keys=_keys()) as server:
        url = server.url + EXTRACT
        closed_loop(url, bodies, concurrency=4, seconds=min(5.0, seconds), api_key=KEYS["b"])
        shorts = _Shorts(url, bodies)
        facts["alone"] = alone = shorts.send(_ROUNDS * seconds, "b")
        for name, (route, connections, texts) in _FLOODS.items():
            with Flood(server.url + route, workload.encoded(texts), connections) as flood:
                time.sleep(_LEAD_S)
                facts["floods"][name] = _beside(shorts, server.url, seconds)
                facts["floods"][name]["statuses"] = dict(flood.statuses)
            time.sleep(_LEAD_S)
        facts["shares"] = shares = _shares(url, bodies, seconds)
        facts["resident_mb"] = server.resident_bytes()["model_process"] / BYTES_PER_MB
    rows = []
    for name, found in facts["floods"].items():
        for who in ("b", "a"):
            title = f"{name}, beside a short text a second of {'another' if who == 'b' else 'the same'} tenant"
            note = f"short texts: {found[who]['statuses']}"
            rows += [
                Row(section, f"throughput of {title}", "tokens/s", found[who]["tokens_per_s"],
                    found["tokens_per_s"], "without it", KEPT, note=note),
                Row(section, f"p95 of the short text: {title}", "ms", found[who]["p95_ms"], alone["p95_ms"], "alone",
                    SLOWER, "less", note),
            ]  # fmt: skip
    fair = sum(shares.values()) / 2
    title = "smaller part of the cost: 24 connections of 300 words, 24 of short texts of another tenant"
    return [*rows, Row(section, title, "tokens", min(shares.values()), fair, "its share", SHARE, note=str(shares))]


class _Shorts:
    """Short texts, one at a time."""

    def __init__(self, url: str, bodies: Sequence[bytes]) -> None:
        self._url = url
        self._bodies = bodies

    def send(self, seconds: float, tenant: str) -> dict[str, Any]:
        """Send one every SHORT_EVERY_S seconds. Latencies include a new connection."""
        statuses, latencies_s = Counter[str](), list[float]()
        start_s = time.perf_counter()
        for number in range(int(seconds / SHORT_EVERY_S)):
            time.sleep(max(0.0, start_s + number * SHORT_EVERY_S - time.perf_counter()))
            (reply,) = closed_loop(
                self._url, [self._bodies[number % 256]], concurrency=1, seconds=1, max_requests=1, api_key=KEYS[tenant]
            ).replies
            statuses[reply.status] += 1
            latencies_s.append(reply.latency_s)
        return {"statuses": dict(statuses), "latencies_s": latencies_s} | _percentiles(latencies_s)


def _percentiles(latencies_s: Iterable[float]) -> dict[str, float | None]:
    ordered = sorted(latencies_s)
    return {f"p{at}_ms": percentile_ms(ordered, at) for at in (50, 95)}


def _beside(shorts: _Shorts, url: str, seconds: float) -> dict[str, Any]:
    """Tokens/s without short texts and with those of either tenant, medians of `_ROUNDS` in turn; and the latencies of
    the short texts of all rounds."""
    without, beside = list[float](), {tenant: list[dict[str, Any]]() for tenant in KEYS}
    for _ in range(_ROUNDS):
        without.append(_tokens_per_s(url, partial(time.sleep, seconds))[0])
        for tenant, rounds in beside.items():
            speed, sent = _tokens_per_s(url, partial(shorts.send, seconds, tenant))
            rounds.append(sent | {"tokens_per_s": speed})
    found: dict[str, Any] = {"tokens_per_s": median(without), "rounds": {"without": without, **beside}}
    for tenant, rounds in beside.items():
        found[tenant] = {
            "tokens_per_s": median(one["tokens_per_s"] for one in rounds),
            "statuses": dict(sum((Counter(one["statuses"]) for one in rounds), Counter())),
        } | _percentiles(chain.from_iterable(one["latencies_s"] for one in rounds))
    return found


def _tokens_per_s(url: str, during: Callable[[], T]) -> tuple[float, T]:
    """Tokens that the model processes per second while `during` runs, and its result."""
    before, start_s = _tokens(url), time.perf_counter()
    result = during()
    return (_tokens(url) - before) / (time.perf_counter() - start_s), result


def _tokens(url: str) -> float:
    return sum(map(float, _TOKENS.findall(metrics_page(url, authorization(KEYS["b"])))))


def _shares(url: str, short: Sequence[bytes], seconds: float) -> dict[str, float]:
    """The cost of what was served to tenant A with texts of 300 words, and to tenant B with short ones."""
    _, connections, long = _FLOODS["24 connections of 300 words"]
    with Flood(url, workload.encoded(long), connections) as a, Flood(url, short, connections, "b") as b:
        time.sleep(_LEAD_S)
        begin_s = time.monotonic()
        time.sleep(2 * seconds)
        end_s = time.monotonic()
        while min(a.oldest_s, b.oldest_s) < end_s and time.monotonic() < end_s + _PATIENCE_S:
            time.sleep(0.1)  # what was under way is counted once it has its answer
    return {"a": a.cost_between(begin_s, end_s), "b": b.cost_between(begin_s, end_s)}


def served_cost(answer: bytes) -> float:
    """The cost in tokens of the texts of an answer. The passes of a text have about equal parts of its tokens."""
    found = [(int(tokens), max(1, int(passes))) for tokens, passes in _USAGE.findall(answer)]
    return sum(tokens + tokens**2 / passes / _DOUBLE_COST_TOKENS for tokens, passes in found)


def _keys() -> str:
    scopes = ["extract", "metrics"]
    return json.dumps([{"name": name, "sha256": hash_of(key), "scopes": scopes} for name, key in KEYS.items()])
