"""Models that share a device: equal shares of its time, by the seconds of their batches."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future
from typing import Any

import pytest
from doubles.fake_engine import FakeEngine
from stage import PATIENCE_S, Clock, Until

from gliner_bento.errors import InternalError
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


@pytest.mark.parametrize(("text", "place"), [("Ada " * 300, 6), ("Ada", 5)], ids=["medium", "short"])
def test_a_request_of_an_idle_model_waits_for_one_batch_and_a_short_one_for_none(
    device: Device, until: Until, text: str, place: int
) -> None:
    sent: list[Future[Any]] = []
    for scheduler in device.schedulers.values():
        scheduler.start()

    def before(name: str) -> None:
        """Before the sixth batch of the slow model runs, the idle one gets its request."""
        if len(device.batches) == 5 and not sent and name == "slow":
            item = Item(text, ["name"], threshold=0.5)
            sent.append(device.schedulers["idle"].submit(item, request_id="idle"))
            if text == "Ada":
                sent[0].result(PATIENCE_S)
            else:
                until(lambda: not device.of["slow"].alone)

    device.before = before
    for future in device.submit("slow", 100):
        future.result(PATIENCE_S)
    sent[0].result(PATIENCE_S)
    assert [name for name, _ in device.batches].index("idle") == place


def begun(turns: ModelTurns) -> threading.Event:
    """Set when the model's express lane has its turn."""
    event = threading.Event()

    def begin() -> None:
        turns.begin_express()
        event.set()

    threading.Thread(target=begin, daemon=True).start()
    return event


def test_one_express_lane_runs_at_a_time_on_a_device(clock: Clock) -> None:
    device = DeviceTurns(1, clock)
    first, second = device.join("first"), device.join("second")
    first.begin_express()
    assert not second.alone
    waiting = begun(second)
    assert not waiting.wait(0.05)
    first.end_express()
    assert waiting.wait(PATIENCE_S)
    third = device.join("third")
    left = begun(third)
    third.leave()
    assert left.wait(PATIENCE_S), "a model that has left waits for nothing"
    second.end_express()
    assert first.alone


def test_a_model_whose_express_lane_ran_longer_waits_for_the_others(clock: Clock, until: Until) -> None:
    device = DeviceTurns(1, clock)
    held, ahead, behind = device.join("held"), device.join("ahead"), device.join("behind")
    held.acquire(0)
    for model in (ahead, behind):
        threading.Thread(target=model.acquire, args=[0], daemon=True).start()
        until(lambda: not held.alone)
    ahead.begin_express()
    clock.now_s += 10
    until(lambda: len(device._waiting._active) == 2)
    ahead.end_express()
    waiting = begun(ahead)
    assert not waiting.wait(0.05)
    held.release(0)  # next is the model that is behind, and then nobody else waits
    until(lambda: list(behind.held_since_s) == [0])
    assert waiting.wait(PATIENCE_S)


def test_a_dead_express_lane_holds_no_turn(device: Device) -> None:
    held = device.turns.join("test")
    held.acquire(0)
    device.schedulers["idle"].start()

    def die(name: str) -> None:
        raise SystemExit

    device.before = die
    (future,) = device.submit("idle", 1)
    assert isinstance(future.exception(PATIENCE_S), InternalError)
    assert begun(held).wait(PATIENCE_S)
    held.end_express()
    held.release(0)
