from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.scheduler.lanes import Lanes


def test_lane_is_alive_from_its_start_to_its_death() -> None:
    lanes = Lanes(2)
    assert (lanes.alive, list(lanes.states)) == (0, ["starting", "starting"])
    lanes.set_state(0, "alive")
    lanes.set_state(1, "dead")
    assert (lanes.alive, list(lanes.states)) == (1, ["alive", "dead"])


@given(free=st.integers(1, 8), costs=st.lists(st.integers(1, 100), min_size=1))
def test_shares_of_all_free_lanes_hold_all_that_waits_and_no_more_than_needed(free: int, costs: list[int]) -> None:
    lanes = Lanes(9)
    lanes.idle = list(range(free))
    share = lanes.tokens_per_lane(sum(costs))
    assert share is not None
    assert share * (1 + free) >= sum(costs) > (share - 1) * (1 + free)


def test_the_only_lane_that_is_idle_leaves_nothing_for_others() -> None:
    assert Lanes(2).tokens_per_lane(100) is None


def lanes_of(count: int, idle: list[int]) -> Lanes:
    lanes = Lanes(count)
    for number in range(count):
        lanes.set_state(number, "alive")
    lanes.idle = idle
    return lanes


def test_idle_lanes_share_their_threads_with_a_lone_batch() -> None:
    assert lanes_of(4, [1, 2, 3]).shared_by(0, arriving=0) == 3


def test_lanes_that_are_about_to_be_used_keep_their_threads() -> None:
    lanes = lanes_of(4, [1, 2, 3])
    assert [lanes.shared_by(0, arriving) for arriving in range(5)] == [3, 2, 1, 0, 0]


def test_only_the_first_lane_that_is_alive_uses_shared_threads() -> None:
    lanes = lanes_of(3, [0, 2])
    assert lanes.shared_by(1, arriving=0) == 0
    lanes.set_state(0, "dead")
    lanes.idle = [2]
    assert lanes.shared_by(1, arriving=0) == 1
