"""Models that share a device: equal shares of its time, by the seconds of their batches."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from typing import Any

import pytest
from stage import PATIENCE_S, Clock, Until

from benchmark.fake_engine import FakeEngine
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.scheduler.turns import DeviceTurns, ModelTurns
from gliner_bento.tasks.extraction import ExtractionItem as Item

CONFIG = SchedulerConfig(
    max_batch_size=4,
    max_batch_tokens=1000,
    batch_lookahead=100,
    inference_lanes=1,
    torch_threads=1,
    decoding_threads=0,
    queue_capacity=10_000,
    tokenizer_threads=1,
    batch_wait_timeout_ms=0,
    hang_timeout_s=PATIENCE_S,
)
SECONDS = {"slow": 1.0, "quick": 0.1, "idle": 0.1}


class Device:
    """Schedulers of models whose batches take the seconds of `SECONDS`, on a clock that only batches move.

    batches: the model and texts of each batch, in order. before: called with each batch before it runs."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = DeviceTurns(1, self.clock)
        self.batches: list[tuple[str, list[str]]] = []
        self.before: Any = lambda name: None
        self.of: dict[str, ModelTurns] = {}
        self.schedulers = {name: self._scheduler(name) for name in SECONDS}

    def _scheduler(self, name: str) -> Scheduler:
        def forward(batch: Any) -> None:
            self.before(name)
            self.clock.now_s += SECONDS[name]
            self.batches.append((name, [prepared.item.text for prepared in batch]))

        self.of[name] = self.turns.join(name)
        return Scheduler(FakeEngine(on_forward=forward), CONFIG, clock=self.clock, turns=self.of[name])

    def submit(self, name: str, items: int) -> list[Future[Any]]:
        texts = [Item(f"{name} Name{number}", ["name"], threshold=0.5) for number in range(items)]
        return self.schedulers[name].submit_many(texts, request_id=name)


@pytest.fixture
def device() -> Any:
    made = Device()
    yield made
    for scheduler in made.schedulers.values():
        scheduler.close()


def test_models_under_full_load_share_the_seconds_and_not_the_batches(device: Device, until: Until) -> None:
    held = device.turns.join("test")
    held.acquire(0)  # nothing runs until all items wait
    for scheduler in device.schedulers.values():
        scheduler.start()
    futures = [*device.submit("slow", 200), *device.submit("quick", 2000)]
    for name in ("slow", "quick"):
        until(lambda name=name: not device.schedulers[name].stats.preparing_items)
    held.release(0)
    for future in futures:
        assert future.result(PATIENCE_S).entities
    together = device.batches[:300]
    spent = Counter[str]()
    for name, _ in together:
        spent[name] += SECONDS[name]
    assert {name for name, _ in together} == {"slow", "quick"}
    assert abs(spent["slow"] / sum(spent.values()) - 0.5) < 0.05
    assert all({text.split()[0] for text in texts} == {name} for name, texts in device.batches)


def test_a_short_request_of_an_idle_model_waits_for_one_batch(device: Device, until: Until) -> None:
    sent: list[Future[Any]] = []
    for scheduler in device.schedulers.values():
        scheduler.start()

    def before(name: str) -> None:
        """While the fifth batch of the slow model runs, the idle one gets its request."""
        if len(device.batches) == 5 and not sent:
            sent.extend(device.submit("idle", 1))
            until(lambda: not device.of["slow"].alone)

    device.before = before
    for future in device.submit("slow", 100):
        future.result(PATIENCE_S)
    sent[0].result(PATIENCE_S)
    assert [name for name, _ in device.batches].index("idle") == 6
