"""Adapters in a temporary folder, and threads that end with the test."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peft_adapters import Save, Saved, save_adapter
from polling import PATIENCE_S


@pytest.fixture
def thread() -> Iterator[Callable[..., threading.Thread]]:
    """Start a thread; it is joined at the end of the test."""
    threads = []

    def start(call: Callable[..., object], *given: object) -> threading.Thread:
        threads.append(threading.Thread(target=call, args=given, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for started in threads:
        started.join(PATIENCE_S)
        assert not started.is_alive()


@pytest.fixture
def _busy_threads() -> Iterator[None]:
    """Switch threads as often as possible."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def save(**options: Any) -> Saved:
        return save_adapter(tmp_path / "adapter", **options)

    return save
