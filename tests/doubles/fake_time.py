"""Tests on simulated time: the loop of the benchmark's simulation."""

from __future__ import annotations

import asyncio

from benchmark.simulate.fake_time import FakeTimeLoop, run_fast

__all__ = ["FakeTimeLoop", "now_s", "run_fast"]


def now_s() -> float:
    """The running loop's time."""
    return asyncio.get_running_loop().time()
