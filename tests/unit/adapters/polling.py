"""Waiting with a timeout, for tests with threads."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0  # a safety net: only a test that hangs reaches it


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds that has no future."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.001)
