"""For tests with threads of their own: how long they wait for each other."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 30.0  # a safety net: no test passes or fails by waiting, unless something hangs


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds that no future tells of."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.001)
