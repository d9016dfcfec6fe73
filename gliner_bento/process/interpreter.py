"""Python's options for a process that serves: fewer garbage collections, and a shorter switch interval of threads."""

from __future__ import annotations

import gc
import sys

# How long a thread that tokenizes or decodes may hold the interpreter's lock; a lane waits for the lock after each of
# its operations. Python's default is 5 ms.
_SWITCH_INTERVAL_S = 0.001

_COLLECT_AFTER = (20_000, 20, 20)
"""See `gc.set_threshold`; Python's default is (700, 10, 10)."""


def prefer_throughput() -> None:
    """Set the options. To be called at the end of the start.

    With Python's thresholds, garbage collections stop the event loop of a busy gateway for up to 0.25 s. Objects made
    at the start are never garbage, and most objects of requests are freed without a collection.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
