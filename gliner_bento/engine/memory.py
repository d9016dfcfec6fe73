"""The highest cost of a batch that fits the device's memory: measured at start, reduced when memory runs out.

Counts in the scheduler's unit (cost, in tokens) and in bytes; knows no model, no items and no queue. Not used on a CPU,
whose memory swaps before it runs out.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import clear_frames

import torch

from gliner_bento.engine.synchronize import empty_cache, synchronize
from gliner_bento.errors import DoesNotFit

logger = logging.getLogger(__name__)

SHORTEST_TOKENS = 64
RECOVERY_BATCHES = 100
_GROWTH = 1.25
_MIN_TEXTS = 2  # a batch of one may need less memory per token than larger batches

Run = Callable[[int, int], int]
"""Runs a batch of (number of texts, tokens of each); returns its cost, in tokens, as the scheduler counts it."""


def release_freed_memory() -> None:
    """Return freed memory to the system. Without this, glibc keeps much of it after loading."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def device_bytes(device: str) -> int:
    """Total memory of a GPU."""
    return int(torch.cuda.mem_get_info(device)[1])


def release_memory() -> None:
    """Release the memory that torch caches on GPUs and that glibc keeps for the process."""
    if torch.cuda.is_available():
        empty_cache()
    release_freed_memory()


class CudaAllocator:
    """The memory of one CUDA device, as torch's caching allocator reports it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._allocated_bytes = 0

    def free_bytes(self) -> int:
        """Bytes available for new tensors: free in the driver, and unused in torch's cache."""
        free, _ = torch.cuda.mem_get_info(self._device)
        return free + torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)

    def reset_peak(self) -> None:
        """Start a measurement."""
        synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self._allocated_bytes = torch.cuda.memory_allocated(self._device)

    def peak_bytes(self) -> int:
        """Peak of allocated bytes since `reset_peak`, less the bytes allocated then. Does not count fragmentation."""
        synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - self._allocated_bytes

    def empty_cache(self) -> None:
        """Release cached memory that no tensor uses, of all streams."""
        empty_cache()


class MemoryModel:
    """The budget of one batch. Lanes share it: every method may be called from any thread.

    budget_tokens: the budget at start, and the highest one.
    least_tokens: the lowest budget.
    """

    def __init__(self, allocator: CudaAllocator, *, budget_tokens: int, least_tokens: int) -> None:
        self._allocator = allocator
        self._full_tokens = max(budget_tokens, least_tokens)
        self._least_tokens = least_tokens
        self._lock = threading.Lock()
        self._budget_tokens = self._full_tokens
        self._good_batches = 0

    @property
    def batch_tokens(self) -> int:
        """The highest cost of a batch now."""
        with self._lock:
            return self._budget_tokens

    @contextmanager
    def guard(self, cost_tokens: int) -> Iterator[None]:
        """The context for running a batch of this cost. If memory runs out, reduces the budget, frees memory and raises
        `DoesNotFit`. The caller may split the batch and try again; a single item fails with this error."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            self.on_out_of_memory(cost_tokens)
            clear_frames(error.__traceback__)  # the traceback's frames hold the batch's tensors
            self._allocator.empty_cache()
            raise DoesNotFit("the text with its labels needs more memory than the device has") from None
        self.on_success(cost_tokens)

    def on_out_of_memory(self, cost_tokens: int) -> None:
        """Reduce the budget to half of the batch's cost.

        A batch that costs more than the budget does not change it. It is a single item, or was formed before the budget
        was reduced: so two lanes that fail concurrently reduce it once.
        """
        with self._lock:
            self._good_batches = 0
            if cost_tokens <= self._budget_tokens:
                self._budget_tokens = max(self._least_tokens, cost_tokens // 2)
            budget = self._budget_tokens
        logger.warning("out of memory with a batch of cost %d; the budget is now %d", cost_tokens, budget)

    def on_success(self, cost_tokens: int) -> None:
        """Raise a reduced budget after `RECOVERY_BATCHES` batches, each costing over half of it."""
        with self._lock:
            if self._budget_tokens < self._full_tokens and 2 * cost_tokens > self._budget_tokens:
                self._good_batches += 1
                if self._good_batches == RECOVERY_BATCHES:
                    self._good_batches = 0
                    self._budget_tokens = min(self._full_tokens, int(self._budget_tokens * _GROWTH) + 1)


def calibrate(
    allocator: CudaAllocator,
    run: Run,
    *,
    longest_tokens: int,
    target_memory_fraction: float,
    memory_overhead_factor: float,
    lanes: float,
) -> MemoryModel:
    """Measure the bytes per token of cost in a batch of each length of `powers_of_two`. The maximum sets the budget.

    target_memory_fraction: share of the free bytes for batches.
    memory_overhead_factor: ratio of expected to measured bytes (fragmentation, other kernels).
    lanes: number of concurrent batches; a fraction counts a smaller batch.

    Raises `DoesNotFit` if not even the shortest text fits.
    """
    lengths = powers_of_two(longest_tokens)
    allocator.empty_cache()
    bytes_per_token, highest_cost, least_tokens = 1.0, 0, 0
    try:
        least_tokens = run(1, lengths[0])  # not measured: in the first batch, libraries allocate workspaces
        allocator.empty_cache()
        free_bytes = allocator.free_bytes()
        for tokens in lengths:
            allocator.reset_peak()
            texts = max(_MIN_TEXTS, 2 * longest_tokens // tokens)
            cost_tokens = run(texts, tokens)
            bytes_per_token = max(bytes_per_token, allocator.peak_bytes() / cost_tokens)
            highest_cost = max(highest_cost, cost_tokens)
        lane_bytes = free_bytes * target_memory_fraction / lanes
        budget_tokens = int(lane_bytes / (bytes_per_token * memory_overhead_factor))
    except torch.OutOfMemoryError as error:
        if not least_tokens:
            raise DoesNotFit("the device's memory does not hold the model and one short text") from error
        budget_tokens = int(highest_cost / lanes)
        logger.warning("the memory of the device is too small for batches of the longest texts")
    allocator.empty_cache()
    memory = MemoryModel(allocator, budget_tokens=budget_tokens, least_tokens=least_tokens)
    logger.info("budget of a batch: %d tokens of %.0f bytes", memory.batch_tokens, bytes_per_token)
    return memory


def powers_of_two(longest_tokens: int) -> list[int]:
    """`SHORTEST_TOKENS` times 1, 2, 4, ... while below `longest_tokens`, then `longest_tokens`."""
    lengths = [SHORTEST_TOKENS << step for step in range(64) if SHORTEST_TOKENS << step < longest_tokens]
    return [*lengths, longest_tokens]
