"""How fast this machine multiplies matrices: the ceiling for everything else."""

from __future__ import annotations

import time
from typing import Any

import torch

from gliner_bento.benchmark.jobs import answer


def peak(dtype: str, threads: int, rows: int, inner: int, outer: int, seconds: float) -> dict[str, Any]:
    """FLOP/s of products (rows, inner) x (inner, outer): what one in ten of many reaches, so that no freak counts."""
    torch.set_num_threads(threads)
    kind = getattr(torch, dtype)
    linear = torch.nn.Linear(inner, outer, bias=False).to(kind)
    inputs = torch.randn(rows, inner).to(kind)
    took_s: list[float] = []
    until = time.perf_counter() + seconds
    with torch.inference_mode():
        while not took_s or time.perf_counter() < until:
            began = time.perf_counter()
            linear(inputs)
            took_s.append(time.perf_counter() - began)
    good_s = sorted(took_s)[len(took_s) // 10]
    return {"flop_per_s": 2 * rows * inner * outer / good_s, "dtype": dtype, "threads": threads}


if __name__ == "__main__":
    answer(peak)
