"""What the first CUDA device is."""

from __future__ import annotations

from typing import Any

import torch

from benchmark.jobs import run_job


def main() -> dict[str, Any]:
    """Plain values. Raises RuntimeError without a device."""
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    of_device = torch.cuda.get_device_properties(0)
    return {
        "name": of_device.name,
        "memory_bytes": of_device.total_memory,
        "multiprocessors": of_device.multi_processor_count,
        "cuda": torch.version.cuda,
    }


if __name__ == "__main__":
    run_job(main)
