"""Lets a process end with its parent. A parent that is killed cannot end its children, and they would keep its port."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

_CHECK_INTERVAL_S = 0.5


def when_orphaned(action: Callable[[], object]) -> None:
    """Call `action` once, in a thread, soon after the parent process has ended."""
    expected = os.getppid()

    def watch() -> None:
        while os.getppid() == expected:
            waiting.wait(_CHECK_INTERVAL_S)
        action()

    waiting = threading.Event()
    threading.Thread(target=watch, name="parent", daemon=True).start()
