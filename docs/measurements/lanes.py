"""Who needs shares of batches and an express lane (decision 21): the real queue and dispatcher on a simulated clock.

`PYTHONPATH=. python docs/measurements/lanes.py` prints lanes.txt. Nothing runs a model: a batch takes a fixed time,
and a time per token. Both are those of the bundled model on a CPU (10 ms, 8,000 tokens per second), and guesses for a
GPU.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from gliner_bento.engine.base import Prepared
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.scheduler import dispatcher
from gliner_bento.scheduler.batching import NO_ADAPTERS
from gliner_bento.scheduler.items import Items
from gliner_bento.scheduler.queue import WaitingQueue
from gliner_bento.tasks.extraction import ExtractionItem as Item

SHORT, SHORT_TOKENS = Item("Ada Lovelace wrote a program in London, and Charles Babbage built it.", {"p": "p"}), 40
MEDIUM, MEDIUM_TOKENS = Item("x" * 2_000, {"p": "p"}), 710
LONG, PASS_TOKENS, PASSES = Item("x" * 60_000, {"p": "p"}), 600, 40
GAIN, ROUND_TRIP_S = 0.7, 0.08
"""How much faster a lane is while another one is idle; in `shares`, mean time from an answer to the next request."""
RULES = ("no rule", "shares of batches", "and an express lane")
FLOODS = ("impatient connections", "the same with 300 words", "bulk requests", "long texts")
FOUR_TENANTS = "impatient connections of four tenants"


class Simulation:
    """One dispatcher. rules: how many of RULES[1:] hold. rate: tokens per second and lane. batch_s: fixed time of a
    batch. tokens: run so far, by tenant."""

    def __init__(self, rules: int, lanes: int, rate: float, batch_s: float, batch_tokens: int) -> None:
        self.now_s, self.tokens, self._rate, self._batch_s = 0.0, Counter[str](), rate, batch_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._queue = WaitingQueue(100_000, lambda: self.now_s, packs=True)
        self._queue.open()
        engine: Any = SimpleNamespace(batch_tokens=None, slot_state=lambda: NO_ADAPTERS)
        config = dispatcher.DispatcherConfig(
            max_batch_size=32, max_batch_tokens=batch_tokens, batch_lookahead=128, inference_lanes=lanes,
            torch_threads=1, decoding_threads=0, batch_wait_timeout_ms=0,
        )  # fmt: skip
        nothing: Any = None
        observer: Any = SimpleNamespace(on_express=lambda: None)
        items = Items(self._queue, observer, lambda: self.now_s)
        made: Any = dispatcher.BatchDispatcher(
            engine, config, items, observer=observer, watchdog=nothing, clock=lambda: self.now_s
        )
        made.wake = lambda: None
        for lane in range(lanes):
            made.lanes.set_state(lane, "alive")
            made.lanes.idle.append(lane)
        made._express_state = "alive" if rules > 1 else "dead"
        if rules < 1:
            self._queue.batch_quota = lambda *_: None  # type: ignore[method-assign]
            self._queue.excludes_others = lambda _: False  # type: ignore[method-assign]
        self._dispatcher = made
        self._lanes = lanes
        self._delays_s: dict[int, float] = {}  # of running batches, by lane
        self._ended: dict[int, Callable[[], None]] = {}

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now_s + seconds, self._number, event))

    def send(
        self, texts: int, share: TenantShare, done: Callable[[], None], item: Item = SHORT, tokens: int = SHORT_TOKENS
    ) -> None:
        """A request with several texts like `item`."""
        left = texts

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for entry in self._admit([item] * texts, share):
            self._ended[entry.sequence] = ended
            self._queue.put(entry, Prepared(item, tokens, words=5))

    def send_long(self, share: TenantShare, at_a_time: int, done: Callable[[], None]) -> None:
        """A request with a text of many passes."""
        (parent,) = self._admit([LONG], share)
        chunked: Any = object()
        self._queue.put(parent, Prepared(LONG, 0, words=0, chunked=chunked))
        left, running = PASSES, 0

        def fill() -> None:
            nonlocal left, running
            while left and running < at_a_time:
                left, running = left - 1, running + 1
                self._ended[self._queue.put_pass(parent, Prepared(LONG, PASS_TOKENS, words=5)).sequence] = ended

        def ended() -> None:
            nonlocal running
            running -= 1
            fill()
            if not left and not running:
                self._queue.finish(parent)
                done()

        fill()

    def run(self, until_s: float) -> None:
        while self._events and self._events[0][0] < until_s:
            self.now_s, _, event = heapq.heappop(self._events)
            event()
            self._dispatch()

    def _admit(self, items: Sequence[Item], share: TenantShare) -> Sequence[Any]:
        self._number += 1
        return self._queue.admit(items, f"r{self._number}", None, 0, share=share)

    def _dispatch(self) -> None:
        one, again = self._dispatcher, True
        while again:
            again = False
            for lane in sorted(one.lanes.idle):
                if not (one._next_batches or self._queue.waiting_entries):
                    break
                one._running.pop(lane, None)
                one.lanes.idle.remove(lane)
                self._start(lane, one._take_batch(lane))
                again = True
            if one._has_express_work():
                self._start_express(one._take_express_batch())
            if (ahead := one._take_ahead()) is not None:
                one._next_batches.append(ahead)
                again = True

    def _start(self, lane: int, batch: Any) -> None:
        def end() -> None:
            if delay_s := self._delays_s.pop(lane, 0.0):
                self.after(delay_s, end)
                return
            self._dispatcher.lanes.idle.append(lane)
            self._dispatcher._running.pop(lane, None)
            self._finish(batch)

        self.after(self._seconds(batch, 1 + GAIN * batch.shared_lanes), end)

    def _start_express(self, batch: Any) -> None:
        """The express lane has a core of its own, because of its priority, and the lanes share the others."""
        seconds = self._seconds(batch, 1)
        for lane in self._dispatcher._running:
            self._delays_s[lane] = self._delays_s.get(lane, 0.0) + seconds / self._lanes

        def end() -> None:
            self._dispatcher._express_batch = None
            self._finish(batch)

        self.after(seconds, end)

    def _seconds(self, batch: Any, speed: float) -> float:
        return self._batch_s + sum(entry.cost for entry in batch.entries) / (self._rate * speed)

    def _finish(self, batch: Any) -> None:
        for entry in batch.entries:
            self.tokens[entry.tenant.name] += entry.cost
            self._queue.finish(entry)
        for entry in batch.entries:
            self._ended.pop(entry.sequence)()


def measure(flood: str, *, same: bool, rules: int, **machine: Any) -> list[float]:
    """p50 and p95 of short requests in ms, and tokens per second of all."""
    lanes, (seconds, every_s) = machine["lanes"], (60, 0.5) if machine["rate"] < 10_000 else (20, 0.02)
    scene, rng = Simulation(rules, **machine), random.Random(1)
    own = TenantShare("a")
    other = own if same else TenantShare("b")
    latencies_ms: list[float] = []

    def short() -> None:
        sent_s = scene.now_s
        scene.send(1, own, lambda: latencies_ms.append(1000 * (scene.now_s - sent_s)))
        scene.after(rng.expovariate(1 / every_s), short)

    def send(other: TenantShare) -> None:
        again = partial(scene.after, 0.001, partial(send, other))
        if flood == "long texts":
            scene.send_long(other, 2 * lanes, again)
        elif flood == "the same with 300 words":
            scene.send(1, other, again, MEDIUM, MEDIUM_TOKENS)
        else:
            scene.send(256 if flood == "bulk requests" else 1, other, again)

    scene.after(0.1, short)
    for number in range({"": 0, "bulk requests": 4, "long texts": 4, FOUR_TENANTS: 128}.get(flood, 64)):
        sender = TenantShare(f"b{number % 4}") if flood == FOUR_TENANTS else other
        scene.after(number / 1000, partial(send, sender))
    scene.run(seconds)
    latencies_ms.sort()
    return [*(latencies_ms[int(part * len(latencies_ms))] for part in (0.5, 0.95)), scene.tokens.total() / seconds]


def shares(**machine: Any) -> tuple[int, int]:
    """Tokens per second of two tenants: 24 connections with texts of 300 words, 24 with short ones."""
    scene, rng, seconds = Simulation(2, **machine), random.Random(1), 30

    def send(share: TenantShare, item: Item, tokens: int) -> None:
        again = partial(send, share, item, tokens)
        scene.send(1, share, lambda: scene.after(ROUND_TRIP_S * (0.5 + rng.random()), again), item, tokens)

    for number in range(24):
        scene.after(number / 1000, partial(send, TenantShare("a"), MEDIUM, MEDIUM_TOKENS))
        scene.after(number / 1000, partial(send, TenantShare("b"), SHORT, SHORT_TOKENS))
    scene.run(seconds)
    return round(scene.tokens["a"] / seconds), round(scene.tokens["b"] / seconds)


if __name__ == "__main__":
    sys.stdout.write("p50 ms, p95 ms; tokens/s\n")
    machines = ((2, 8000, 0.01, 1024), (4, 8000, 0.01, 1024), (1, 100_000, 0.002, 16_384))
    for lanes, rate, batch_s, batch_tokens in machines:
        of: dict[str, Any] = {"lanes": lanes, "rate": rate, "batch_s": batch_s, "batch_tokens": batch_tokens}
        p50, p95, _ = measure("", same=True, rules=2, **of)
        sys.stdout.write(
            f"\n{lanes} lanes, {rate} tokens/s each, batches of {batch_tokens} tokens and {1000 * batch_s:.0f} ms; "
            f"alone {p50:.0f}, {p95:.0f}\n"
        )
        for flood in (*FLOODS, FOUR_TENANTS):
            for same in (False,) if flood == FOUR_TENANTS else (True, False):
                rows = [measure(flood, same=same, rules=rules, **of) for rules in range(len(RULES))]
                shown = " | ".join(
                    f"{rule}: {p50:.0f}, {p95:.0f}; {speed:.0f}"
                    for rule, (p50, p95, speed) in zip(RULES, rows, strict=True)
                )
                tenant = "" if flood == FOUR_TENANTS else f" of {'the same' if same else 'another'} tenant"
                sys.stdout.write(f"{flood}{tenant} | {shown}\n")
        sys.stdout.write(f"24 connections of 300 words, 24 of short texts of another tenant | {shares(**of)}\n")
