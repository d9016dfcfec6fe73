"""Threads that compute on a CPU give way to those that answer requests, and to the express lane."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gliner_bento.engine.engine import GLiNEREngine


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a thread has no priority of its own")
@pytest.mark.parametrize(("start", "nicer"), [(GLiNEREngine.start_lane, 10), (GLiNEREngine.start_express_lane, 0)])
def test_a_lane_on_a_cpu_gives_way_and_so_do_the_threads_that_it_starts(start: Any, nicer: int):
    def lane() -> list[int]:
        start(SimpleNamespace(_device=torch.device("cpu")))
        with ThreadPoolExecutor(1) as started:
            return [priority(), started.submit(priority).result()]

    before = priority()
    with ThreadPoolExecutor(1) as lanes:
        assert lanes.submit(lane).result() == [min(19, before + nicer)] * 2
    assert priority() == before
