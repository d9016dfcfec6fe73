"""Waits for states that nothing reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 240.0
"""A safety net: no test passes or fails by waiting, unless something hangs."""


def wait_until(holds: Callable[[], T], *, every_s: float = 0.001, state: Callable[[], object] = str) -> T:
    """Return what `holds` returns as soon as it is true. every_s: the pause between two looks. state: shown if it never
    becomes true."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not (held := holds()):
        assert time.monotonic() < give_up_s, f"the condition never held {state()}"
        time.sleep(every_s)
    return held
