"""Latency of a forward pass with one and two threads, and while another thread has used two: docs/decisions/0006.

    PYTHONPATH=. python docs/measurements/threads.py CHECKPOINT [--dtype bfloat16]

Prints the median milliseconds per text, one text at a time. Each column runs in a process of its own, because OpenMP
keeps the threads that it has started.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time

import torch

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import ExtractionItem as Item

COLUMNS = ("1 thread", "2 threads", "2 threads, another living thread having had two")
TEXT = "The company of Bill Gates is in Redmond, that of Steve Jobs is not: it works in Paris and in Tokyo. " * 2
ITEM = Item(TEXT, {label: label for label in ("person", "company", "city")})


def measured(checkpoint: str, dtype: str, column: str) -> float:
    """The median of 60 forward passes, in milliseconds."""
    options = Settings().decided_for("cpu").view(EngineOptions)
    engine = GLiNEREngine.load(checkpoint, device="cpu", dtype=dtype, options=options)
    if column == COLUMNS[2]:
        ready, over = threading.Event(), threading.Event()
        threading.Thread(target=lambda: (run(engine, 2, 3), ready.set(), over.wait()), daemon=True).start()
        ready.wait()
    return statistics.median(run(engine, 1 if column == COLUMNS[0] else 2, 60)) * 1000


def run(engine: GLiNEREngine, threads: int, times: int) -> list[float]:
    """Seconds of each forward pass."""
    torch.set_num_threads(threads)
    batch = engine.collate([engine.prepare(ITEM)])
    engine.forward(batch, threads)
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        engine.forward(batch, threads)
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """Print one row of the table, or with --column one number of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--column")
    options = parser.parse_args()
    if options.column:
        sys.stdout.write(json.dumps(measured(options.checkpoint, options.dtype, options.column)))
        return
    for column in COLUMNS:
        command = [sys.executable, __file__, options.checkpoint, "--dtype", options.dtype, "--column", column]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        sys.stdout.write(f"{options.dtype}, {column}: {float(answer):.0f} ms\n")


if __name__ == "__main__":
    main()
