from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from doubles.fake_engine import FakeEngine, extract
from stage import PATIENCE_S, Gate, MakeItem, Start, Until, ending_of, settle

from gliner_bento.engine.base import Prepared
from gliner_bento.errors import InternalError, NotReady
from gliner_bento.scheduler.watchdog import Watchdog

HUNG = "hangs"


def texts_of(work: Any) -> list[str]:
    """Of what a stage is called with."""
    parts = work if isinstance(work, Sequence) else [work]
    return [part.item.text if isinstance(part, Prepared) else part.text for part in parts]


@pytest.fixture
def hang(gate: Gate) -> Callable[[Any], None]:
    """Hang until the test ends, if the item is among what a stage is called with."""
    return lambda work: gate.hold([]) if HUNG in texts_of(work) else None


@pytest.mark.parametrize("stage", ["prepare", "collate", "forward", "decode"])
def test_work_that_hangs_fails_all_items_and_readiness(
    stage: str, start: Start, gate: Gate, item: MakeItem, hang: Callable[[Any], None]
) -> None:
    engine = FakeEngine(**{f"on_{stage}": hang})  # type: ignore[arg-type]
    scheduler = start(engine, hang_timeout_s=0.2, inference_lanes=1)
    reasons: list[str] = []
    ended = threading.Event()
    assert ending_of(scheduler.submit(item("Ada"), request_id="r")) == extract(item("Ada"))
    hung = scheduler.submit(item(HUNG), request_id="r")
    gate.arrival()
    scheduler.watch_for_hangs(lambda reason: (reasons.append(reason), ended.set()))  # type: ignore[arg-type, func-returns-value]
    assert isinstance(ending_of(hung), InternalError)  # no client should repeat it
    waiting = ending_of(scheduler.submit(item("Ada"), request_id="r"))
    assert isinstance(waiting, NotReady)
    assert ended.wait(PATIENCE_S)
    assert not scheduler.ready
    (reason,) = reasons
    doing = {"prepare": "preparation"}.get(stage, stage)
    assert reason.startswith(f"{doing} of 1 items has not ended within 0.2 s (hang_timeout_s), at ")
    assert "threading.py" in reason  # where the thread is


def test_what_waits_behind_hung_work_is_answered_too(
    start: Start, gate: Gate, item: MakeItem, until: Until, hang: Callable[[Any], None]
) -> None:
    scheduler = start(FakeEngine(on_forward=hang), hang_timeout_s=0.2, inference_lanes=1, max_batch_size=1)
    ended = threading.Event()
    hung = scheduler.submit(item(HUNG), request_id="r")
    others = [scheduler.submit(item("Ada"), request_id="r") for _ in range(5)]
    gate.arrival()
    settle(scheduler, until)
    scheduler.watch_for_hangs(lambda _: ended.set())
    assert isinstance(ending_of(hung), InternalError)
    assert [type(ending_of(other)) for other in others] == [NotReady] * 5
    assert ended.wait(PATIENCE_S)


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    watchdog = Watchdog(timeout_s=8.0)  # checks every second
    with watchdog.watch("forward", []):
        assert watchdog.check(elapsed_s=3600.0) is None  # stopped for an hour: counts for two seconds
        assert [watchdog.check(1.0) for _ in range(6)] == [None] * 6
        hung = watchdog.check(1.0)
        assert hung is not None
        assert hung.doing == "forward"
    assert watchdog.check(1.0) is None


def test_of_several_that_hang_the_first_is_reported() -> None:
    watchdog = Watchdog(timeout_s=1.0)
    with watchdog.watch("decode", []):
        watchdog.check(0.4)
        with watchdog.watch("prepare", []):
            for _ in range(4):
                watchdog.check(0.4)
            hung = watchdog.check(0.4)
    assert hung is not None
    assert hung.doing == "decode"
