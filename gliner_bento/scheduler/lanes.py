"""Which lanes live, which are free, and to whom the free ones lend their threads.

Pure counting: not thread-safe, the dispatcher calls it under the scheduler's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal

LaneState = Literal["starting", "alive", "dead"]


class Lanes:
    """`count` lanes. Those in `idle` are alive and do nothing; the lowest number is the one to use next. The dispatcher
    keeps that list.

    One lane alone borrows. A thread that has computed with several others keeps them, and where there are more of these
    than cores, OpenMP lets all of them sleep between any two operations: that made two threads slower than one.
    """

    def __init__(self, count: int) -> None:
        self._states: list[LaneState] = ["starting"] * count
        self.idle: list[int] = []

    @property
    def states(self) -> Sequence[LaneState]:
        """One for each lane."""
        return self._states

    @property
    def alive(self) -> int:
        """How many can run batches."""
        return self._states.count("alive")

    @property
    def free(self) -> int:
        """How many do nothing."""
        return len(self.idle)

    def become(self, number: int, state: LaneState) -> None:
        """A lane has started or died."""
        self._states[number] = state

    def share(self, waiting_cost: int) -> int:
        """How much of what waits a lane takes that has just stopped being free, so that the free ones have as much.

        Two lanes of one thread do more than one lane of two, so what waits is spread before threads are lent.
        """
        return ceil(waiting_cost / (1 + self.free))

    def borrow(self, number: int, coming: int) -> int:
        """Lanes whose threads lane `number` may compute with, beside its own, in a batch that starts now.

        coming: items that wait, or will in a moment. A free lane that they need lends nothing.
        """
        return max(0, self.free - coming) if number == self._states.index("alive") else 0
