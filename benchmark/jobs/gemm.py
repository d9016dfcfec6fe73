"""The speed of dense matrix products on this machine: the roofline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmark.jobs import run_job


def peak(dtype: str, threads: int, rows: int, inner: int, outer: int, seconds: float) -> dict[str, Any]:
    """FLOP/s of the fastest of several products: (rows, inner) x (inner, inner) and (inner, outer), by torch with plain
    weights and with weights that oneDNN has packed. The time of each product is the 10th percentile of many runs.
    """
    torch.set_num_threads(threads)
    kind = getattr(torch, dtype)
    inputs = torch.randn(rows, inner).to(kind)
    speeds: dict[str, float] = {}
    with torch.inference_mode():
        for columns in (inner, outer):
            weight = torch.randn(columns, inner).to(kind)
            for name, multiply in _products(weight, rows).items():
                took_s = _time_s(lambda multiply=multiply: multiply(inputs), seconds / 4)  # type: ignore[misc]
                speeds[f"{name}, {rows} x {inner} x {columns}"] = 2 * rows * inner * columns / took_s
    fastest = max(speeds, key=lambda name: speeds[name])
    return {"flop_per_s": speeds[fastest], "fastest": fastest, "all": speeds, "dtype": dtype, "threads": threads}


def _products(weight: torch.Tensor, rows: int) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    products: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "torch": lambda inputs: torch.nn.functional.linear(inputs, weight)
    }
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        products["oneDNN"] = lambda inputs: torch.ops.mkldnn._linear_pointwise(inputs, packed, None, "none", [], "")
    return products


def _time_s(work: Callable[[], object], seconds: float) -> float:
    """The 10th percentile of the time of many runs."""
    took_s: list[float] = []
    work()
    until = time.perf_counter() + seconds
    while not took_s or time.perf_counter() < until:
        start = time.perf_counter()
        work()
        took_s.append(time.perf_counter() - start)
    return sorted(took_s)[len(took_s) // 10]


if __name__ == "__main__":
    run_job(peak)
