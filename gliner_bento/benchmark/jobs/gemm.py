"""How fast this machine multiplies matrices: the ceiling for everything else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from gliner_bento.benchmark.jobs import answer


def peak(dtype: str, threads: int, rows: int, inner: int, outer: int, seconds: float) -> dict[str, Any]:
    """FLOP/s of the fastest of some products: (rows, inner) x (inner, inner) and (inner, outer), by torch as it is and
    with weights that oneDNN has laid out for it. Of each counts what one in ten of many reaches, so that no freak does.
    """
    torch.set_num_threads(threads)
    kind = getattr(torch, dtype)
    inputs = torch.randn(rows, inner).to(kind)
    found: dict[str, float] = {}
    with torch.inference_mode():
        for columns in (inner, outer):
            weight = torch.randn(columns, inner).to(kind)
            for name, multiply in _ways(weight, rows).items():
                took_s = _typical_s(lambda multiply=multiply: multiply(inputs), seconds / 4)  # type: ignore[misc]
                found[f"{name}, {rows} x {inner} x {columns}"] = 2 * rows * inner * columns / took_s
    fastest = max(found, key=lambda name: found[name])
    return {"flop_per_s": found[fastest], "fastest": fastest, "all": found, "dtype": dtype, "threads": threads}


def _ways(weight: torch.Tensor, rows: int) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "torch": lambda inputs: torch.nn.functional.linear(inputs, weight)
    }
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        ways["oneDNN"] = lambda inputs: torch.ops.mkldnn._linear_pointwise(inputs, packed, None, "none", [], "")
    return ways


def _typical_s(work: Callable[[], object], seconds: float) -> float:
    """What one in ten of many runs takes at most."""
    took_s: list[float] = []
    work()
    until = time.perf_counter() + seconds
    while not took_s or time.perf_counter() < until:
        began = time.perf_counter()
        work()
        took_s.append(time.perf_counter() - began)
    return sorted(took_s)[len(took_s) // 10]


if __name__ == "__main__":
    answer(peak)
