"""Waiting for a CUDA device.

If one thread waits for the whole device while another captures a CUDA graph, the capture fails.
"""

from __future__ import annotations

import threading

import torch

device_wait = threading.Lock()
"""Held while a graph is captured, and while a thread waits for a device, as it does to free cached memory."""


def synchronize(device: torch.device) -> None:
    """Wait for all streams of a CUDA device; does nothing on a CPU."""
    if device.type == "cuda":
        with device_wait:
            torch.cuda.synchronize(device)


def empty_cache() -> None:
    """Release the memory that torch caches on CUDA devices."""
    with device_wait:
        torch.cuda.empty_cache()
