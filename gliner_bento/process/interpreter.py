"""Python's options for a process that serves: fewer garbage collections, and shorter turns of threads."""

from __future__ import annotations

import gc
import sys

# For so long a thread that tokenizes or decodes may hold the interpreter's lock, for which a lane waits after each of
# its operations. Python's default is 5 ms.
_SWITCH_INTERVAL_S = 0.001

_COLLECT_AFTER = (20_000, 20, 20)
"""See `gc.set_threshold`; Python's are (700, 10, 10)."""


def prefer_throughput() -> None:
    """Call it when the process has loaded what it needs.

    Collections stopped the event loop of a busy gateway for up to a quarter of a second. What start-up has made is
    there to stay, and most of what requests make is freed without them.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
