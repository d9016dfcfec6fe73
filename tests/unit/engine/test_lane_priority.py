"""Threads that compute on a CPU give way to those that answer requests."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from gliner_bento.engine.engine import GLiNEREngine


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a thread has no priority of its own")
def test_a_lane_on_a_cpu_gives_way_and_so_do_the_threads_that_it_starts():
    def lane() -> list[int]:
        GLiNEREngine.start_lane(SimpleNamespace(_device=torch.device("cpu")))
        with ThreadPoolExecutor(1) as started:
            return [priority(), started.submit(priority).result()]

    before = priority()
    with ThreadPoolExecutor(1) as lanes:
        assert lanes.submit(lane).result() == [min(19, before + 5)] * 2
    assert priority() == before
