"""The number of torch threads of the calling thread, for a part of a computation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads while the context lasts."""
    # Read before it is set: reading runs torch's lazy initialization, which would later override the value.
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
