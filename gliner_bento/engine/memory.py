"""What a batch may cost for the device's memory to hold it: measured at start, halved when memory runs out.

Counts in the scheduler's unit (cost, in tokens) and in bytes; knows no model, no items and no queue. A CPU has no such
model: its memory swaps before it fails.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import clear_frames
from typing import Protocol

import torch

from gliner_bento.errors import DoesNotFit

logger = logging.getLogger(__name__)

SHORTEST_TOKENS = 64
RECOVERY_BATCHES = 100
_GROWTH = 1.25
_FEWEST_ROWS = 2  # a single row may take shortcuts that no batch takes

Run = Callable[[int, int], int]
"""(rows, tokens of each) -> what the batch cost, in tokens, as the scheduler counts it; the batch has run by then."""


def give_back_freed_memory() -> None:
    """What a process has freed, glibc keeps for itself in pieces: after loading that is a good part of the weights."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


class Allocator(Protocol):
    """The memory of one device."""

    def free_bytes(self) -> int:
        """Bytes that new tensors may take."""

    def reset_peak(self) -> None:
        """Measure from here."""

    def peak_bytes(self) -> int:
        """The most that was taken at once since `reset_peak`, beside what was taken then."""

    def empty_cache(self) -> None:
        """Give back what no tensor holds."""


class CudaAllocator:
    """torch's caching allocator on one CUDA device, as an `Allocator`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._taken_bytes = 0

    def free_bytes(self) -> int:
        """What the driver has, and what torch keeps and no tensor holds."""
        free, _ = torch.cuda.mem_get_info(self._device)
        return free + torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)

    def reset_peak(self) -> None:
        """Measure from here."""
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self._taken_bytes = torch.cuda.memory_allocated(self._device)

    def peak_bytes(self) -> int:
        """The most that tensors took at once, fragments beside them not counted."""
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - self._taken_bytes

    def empty_cache(self) -> None:
        """For all streams."""
        torch.cuda.empty_cache()


class MemoryModel:
    """The budget of one batch. Lanes share it: every method may be called from any thread.

    budget_tokens: what a batch may cost while all is well.
    least_tokens: out-of-memory never takes the budget below it.
    """

    def __init__(self, allocator: Allocator, *, budget_tokens: int, least_tokens: int) -> None:
        self._allocator = allocator
        self._full_tokens = max(budget_tokens, least_tokens)
        self._least_tokens = least_tokens
        self._lock = threading.Lock()
        self._budget_tokens = self._full_tokens
        self._good_batches = 0

    @property
    def batch_tokens(self) -> int:
        """What a batch may cost now."""
        with self._lock:
            return self._budget_tokens

    @contextmanager
    def guard(self, cost_tokens: int) -> Iterator[None]:
        """Run a batch of this cost inside. Out of memory shrinks the budget, frees what it can and raises `DoesNotFit`:
        the batch may be split and tried again, and a single item gets that as its answer."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            self.on_out_of_memory(cost_tokens)
            clear_frames(error.__traceback__)  # the model's frames hold the batch's tensors as long as the error lives
            self._allocator.empty_cache()
            raise DoesNotFit("the text with its labels needs more memory than the device has") from None
        self.on_success(cost_tokens)

    def on_out_of_memory(self, cost_tokens: int) -> None:
        """The next batches cost half of what did not fit.

        What costs more than the budget says nothing about it: a single item may, and so may a batch from before the
        budget shrank (two lanes that fail at once halve it once).
        """
        with self._lock:
            self._good_batches = 0
            if cost_tokens <= self._budget_tokens:
                self._budget_tokens = max(self._least_tokens, cost_tokens // 2)
            budget = self._budget_tokens
        logger.warning("a batch of cost %d did not fit the device; batches now cost %d", cost_tokens, budget)

    def on_success(self, cost_tokens: int) -> None:
        """After enough batches that came near a shrunk budget, it grows a step: one spike is not for ever."""
        with self._lock:
            if self._budget_tokens < self._full_tokens and 2 * cost_tokens > self._budget_tokens:
                self._good_batches += 1
                if self._good_batches == RECOVERY_BATCHES:
                    self._good_batches = 0
                    self._budget_tokens = min(self._full_tokens, int(self._budget_tokens * _GROWTH) + 1)


def calibrate(
    allocator: Allocator,
    run: Run,
    *,
    longest_tokens: int,
    target_memory_fraction: float,
    memory_overhead_factor: float,
    lanes: int,
) -> MemoryModel:
    """Measure what a token costs at each power-of-two length up to `longest_tokens`, and plan with the dearest.

    target_memory_fraction: of the bytes that are free beside the weights, the share that batches may take.
    memory_overhead_factor: what a batch takes for each byte that was measured (fragments, other kernels).
    lanes: batches that are on the device at once.

    Raises `DoesNotFit` where not even the shortest batch runs.
    """
    lengths = powers_of_two(longest_tokens)
    allocator.empty_cache()
    token_bytes, ran_tokens, least_tokens = 1.0, 0, 0
    try:
        least_tokens = run(1, lengths[0])  # first: what libraries take once and keep is no cost of a batch
        allocator.empty_cache()
        free_bytes = allocator.free_bytes()
        for tokens in lengths:
            allocator.reset_peak()
            cost_tokens = run(max(_FEWEST_ROWS, 2 * lengths[-1] // tokens), tokens)
            token_bytes = max(token_bytes, allocator.peak_bytes() / cost_tokens)
            ran_tokens = max(ran_tokens, cost_tokens)
        budget_tokens = int(free_bytes * target_memory_fraction / lanes / (token_bytes * memory_overhead_factor))
    except torch.OutOfMemoryError as error:
        if not least_tokens:
            raise DoesNotFit("the device's memory does not hold the model and one short text") from error
        logger.warning("long batches do not fit the device; batches cost at most %d", ran_tokens)
        budget_tokens = ran_tokens // lanes
    allocator.empty_cache()
    memory = MemoryModel(allocator, budget_tokens=budget_tokens, least_tokens=least_tokens)
    logger.info("a batch may cost %d tokens, of %.0f bytes each", memory.batch_tokens, token_bytes)
    return memory


def powers_of_two(longest_tokens: int) -> list[int]:
    """Lengths from `SHORTEST_TOKENS` on, doubling, and `longest_tokens` last, whatever it is."""
    lengths = [SHORTEST_TOKENS << step for step in range(64) if SHORTEST_TOKENS << step < longest_tokens]
    return [*lengths, longest_tokens]
