from __future__ import annotations

import logging

import pytest

from gliner_bento.scheduler.observer import GuardedObserver, Outcome, Tally


class Broken(Tally):
    def on_finish(self, outcome: Outcome) -> None:
        raise RuntimeError("the metrics are on fire")


def test_observer_that_raises_is_logged_and_the_others_still_hear(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    with caplog.at_level(logging.ERROR, "gliner_bento.scheduler"):
        GuardedObserver(Broken(), tally).on_finish("completed")
    assert tally.counts()["completed"] == 1
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_every_hook_reaches_every_observer() -> None:
    tallies = [Tally(), Tally()]
    observer = GuardedObserver(*tallies)
    observer.on_batch(size=2, padded_tokens=20, real_tokens=15, wait_s=0.1, forward_s=0.2)
    observer.on_split(size=2)
    observer.on_finish("refused")
    expected = {"batches": 1, "batched_items": 2, "padded_tokens": 20, "real_tokens": 15, "splits": 1, "refused": 1}
    assert [tally.counts() for tally in tallies] == [expected, expected]
