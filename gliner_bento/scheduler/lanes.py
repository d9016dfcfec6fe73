"""Which lanes are alive, which are idle, and which share their threads.

Starts no threads. Not thread-safe: the dispatcher calls it with the scheduler's lock held.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal

LaneState = Literal["starting", "alive", "dead"]


class Lanes:
    """`count` lanes. idle: numbers of the lanes that are alive and run nothing; the dispatcher changes this list, and
    uses the lane with the lowest number next.

    Only one lane, the first that is alive, computes with the threads of idle lanes. The reason is OpenMP: a thread that
    has computed in parallel keeps its worker threads, and if there are more workers than cores, they sleep between
    operations (docs/decisions/0006-threads-of-lanes.md).
    """

    def __init__(self, count: int) -> None:
        self._states: list[LaneState] = ["starting"] * count
        self.idle: list[int] = []

    @property
    def states(self) -> Sequence[LaneState]:
        """The state of each lane."""
        return self._states

    @property
    def alive(self) -> int:
        """How many lanes can run batches."""
        return self._states.count("alive")

    @property
    def free(self) -> int:
        """How many lanes are idle."""
        return len(self.idle)

    def set_state(self, number: int, state: LaneState) -> None:
        """Lane `number` has started or died."""
        self._states[number] = state

    def tokens_per_lane(self, waiting_cost: int) -> int | None:
        """Maximum cost of a batch, such that each idle lane gets as much of the waiting work as the batch's own lane;
        None: no other lane is idle.

        Two lanes of one thread have a higher throughput than one lane of two threads. So work is spread over lanes
        first, and threads are shared only if lanes stay idle.
        """
        return ceil(waiting_cost / (1 + self.free)) if self.idle else None

    def shared_by(self, number: int, arriving: int) -> int:
        """Number of idle lanes whose threads lane `number` may use for a batch that starts now.

        arriving: number of items that wait or are in preparation. For each of them, one idle lane keeps its threads.
        """
        return max(0, self.free - arriving) if number == self._states.index("alive") else 0
