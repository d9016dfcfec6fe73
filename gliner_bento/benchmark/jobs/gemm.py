"""How fast this machine multiplies matrices: the ceiling for everything else."""

from __future__ import annotations

import time
from typing import Any

import torch

from gliner_bento.benchmark.jobs import answer


def peak(dtype: str, threads: int, rows: int, inner: int, outer: int, seconds: float) -> dict[str, Any]:
    """The best of many products (rows, inner) x (inner, outer), in FLOP/s."""
    torch.set_num_threads(threads)
    kind = getattr(torch, dtype)
    linear = torch.nn.Linear(inner, outer, bias=False).to(kind)
    inputs = torch.randn(rows, inner).to(kind)
    best_s, until = float("inf"), time.perf_counter() + seconds
    with torch.inference_mode():
        while time.perf_counter() < until:
            began = time.perf_counter()
            linear(inputs)
            best_s = min(best_s, time.perf_counter() - began)
    return {"flop_per_s": 2 * rows * inner * outer / best_s, "dtype": dtype, "threads": threads}


if __name__ == "__main__":
    answer(peak)
