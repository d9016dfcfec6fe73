"""How much work a replica has done in the last minute."""

from __future__ import annotations

import threading
import time
from collections import deque

from gliner_bento.scheduler.observer import Observer
from gliner_bento.status_types import Throughput

WINDOW_S = 60


class WorkLog(Observer):
    """Counts batches per second, and forgets them after `WINDOW_S`. Thread-safe."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._lock = threading.Lock()
        self._seconds: deque[tuple[int, list[int]]] = deque()  # second, [batches, items, tokens]

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        with self._lock:
            counts = self._current_second()
            counts[0] += 1
            counts[1] += size
            counts[2] += real_tokens

    def throughput(self) -> Throughput:
        """Averages over the window, or since the start."""
        elapsed_s = max(1.0, min(WINDOW_S, time.monotonic() - self._started_s))
        with self._lock:
            self._forget_old()
            batches, items, tokens = (sum(counts[kind] for _, counts in self._seconds) for kind in range(3))
        return Throughput(
            batches_per_s=round(batches / elapsed_s, 2),
            items_per_s=round(items / elapsed_s, 2),
            tokens_per_s=round(tokens / elapsed_s, 1),
        )

    def _current_second(self) -> list[int]:
        second = int(time.monotonic())
        if not self._seconds or self._seconds[-1][0] != second:
            self._forget_old()
            self._seconds.append((second, [0, 0, 0]))
        return self._seconds[-1][1]

    def _forget_old(self) -> None:
        while self._seconds and self._seconds[0][0] <= time.monotonic() - WINDOW_S:
            self._seconds.popleft()
