"""Waiting for a CUDA device.

A thread that waits for the whole device while another one captures a CUDA graph ends the capture, so that it fails.
"""

from __future__ import annotations

import threading

import torch

device_wait = threading.Lock()
"""Held while a graph is captured, and while a thread waits for a device; freeing cached memory waits, too."""


def synchronize(device: torch.device) -> None:
    """Wait for all streams of a CUDA device; nothing on a CPU."""
    if device.type == "cuda":
        with device_wait:
            torch.cuda.synchronize(device)


def empty_cache() -> None:
    """Release the memory of CUDA devices that torch has cached."""
    with device_wait:
        torch.cuda.empty_cache()
