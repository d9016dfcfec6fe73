from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stage import UNHURRIED

from gliner_bento.scheduler.lanes import Lanes


def test_lane_is_alive_from_its_start_to_its_death() -> None:
    lanes = Lanes(2)
    assert (lanes.alive, list(lanes.states)) == (0, ["starting", "starting"])
    lanes.become(0, "alive")
    lanes.become(1, "dead")
    assert (lanes.alive, list(lanes.states)) == (1, ["alive", "dead"])


@given(free=st.integers(0, 8), costs=st.lists(st.integers(1, 100), min_size=1))
def test_shares_of_all_free_lanes_hold_all_that_waits_and_no_more_than_needed(free: int, costs: list[int]) -> None:
    lanes = Lanes(9)
    lanes.idle = list(range(free))
    share = lanes.share(sum(costs))
    assert share * (1 + free) >= sum(costs) > (share - 1) * (1 + free)


def test_lone_batch_computes_with_the_threads_of_all_idle_lanes() -> None:
    lanes = Lanes(4)
    lanes.idle = [1, 2, 3]
    assert lanes.borrow(coming=0) == 3
    assert lanes.borrow(coming=0) == 0  # all is lent
    lanes.give_back(3)
    assert lanes.borrow(coming=0) == 3


def test_lanes_that_are_about_to_be_used_lend_nothing_and_the_others_are_shared() -> None:
    lanes = Lanes(4)
    lanes.idle = [1, 2, 3]
    assert lanes.borrow(coming=1) == 1
    lanes.idle = [2, 3]
    assert lanes.borrow(coming=0) == 1
    assert lanes.borrow(coming=5) == 0


@settings(UNHURRIED, max_examples=50)
class AnyTraffic(RuleBasedStateMachine):
    """No lane's threads are lent twice, however batches begin and end."""

    COUNT = 5

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes(self.COUNT)
        self.lanes.idle = list(range(self.COUNT))
        self.running: list[int] = []

    @precondition(lambda self: self.lanes.free)
    @rule(coming=st.integers(0, 10))
    def begin(self, coming: int) -> None:
        self.lanes.idle.pop()
        lent = sum(self.running)
        borrowed = self.lanes.borrow(coming)
        assert borrowed == 0 or lent + borrowed <= self.lanes.free - min(self.lanes.free, coming)
        self.running.append(borrowed)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.lanes.give_back(self.running.pop(data.draw(st.integers(0, len(self.running) - 1))))
        self.lanes.idle.append(0)

    @invariant()
    def nothing_stays_lent(self) -> None:
        if not self.running:
            assert self.lanes.borrow(coming=0) == self.lanes.free
            self.lanes.give_back(self.lanes.free)


TestAnyTraffic = AnyTraffic.TestCase
