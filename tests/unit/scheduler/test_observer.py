from __future__ import annotations

import logging

import pytest
from stage import Tally

from gliner_bento.scheduler.observer import GuardedObserver, Outcome


class Broken(Tally):
    def on_finish(self, outcome: Outcome, items: int = 1) -> None:
        raise RuntimeError("the metrics are broken")


def test_observer_that_raises_is_logged_and_still_called(caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken()
    observer = GuardedObserver([broken])
    with caplog.at_level(logging.ERROR, "gliner_bento.scheduler"):
        observer.on_finish("completed")
    observer.on_split(size=2)
    assert broken.counts == {"splits": 1}
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_every_hook_reaches_the_observer() -> None:
    tally = Tally()
    observer = GuardedObserver([tally])
    observer.on_stage("decode", 0.1)
    observer.on_batch(size=2, padded_tokens=20, real_tokens=15, wait_s=0.1)
    observer.on_split(size=2)
    observer.on_finish("refused")
    assert tally.counts == {
        "batches": 1,
        "batched_items": 2,
        "padded_tokens": 20,
        "real_tokens": 15,
        "splits": 1,
        "refused": 1,
    }
    assert tally.stages == {"decode"}


def test_every_observer_is_called() -> None:
    tallies = Tally(), Tally()
    GuardedObserver(tallies).on_split(size=2)
    assert [tally.counts for tally in tallies] == [{"splits": 1}] * 2
