"""CUDA graphs of padded batches: all kernels of a captured forward pass are launched by one call.

A padded batch's forward pass is a function of one tensor and its bucket, so it is captured once for each bucket and
replayed on other tensors. The second batch of a bucket captures it; the first one warms the kernels up.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

from gliner_bento.engine.layers.buckets import Bucket
from gliner_bento.engine.synchronize import device_wait

logger = logging.getLogger(__name__)

MAX_GRAPHS = 256
MEMORY_FRACTION = 0.1
"""The part of the device's memory that the graphs of all lanes may hold."""

T = TypeVar("T")

Run = Callable[[torch.Tensor], T]
"""From a bucket's tensor on the device to scores. Must not read anything else of the batch."""

Graph = Callable[[torch.Tensor], T]
"""A captured forward pass, from a bucket's tensor in host memory. Its next run overwrites the result."""


class CudaCapture:
    """Captures forward passes on one CUDA device, in one pool of memory for each lane."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held_bytes = 0
        self._most_bytes = MEMORY_FRACTION * torch.cuda.get_device_properties(device).total_memory
        self._lane = threading.local()

    def __call__(self, run: Run[T], data: torch.Tensor) -> Graph[T]:
        """The graph of `run`. data: an example, in host memory. Raises what `run` raises."""
        if not hasattr(self._lane, "pool"):
            self._lane.pool = torch.cuda.graph_pool_handle()
            self._lane.stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with device_wait:
            before = torch.cuda.memory_reserved(self._device)
            static = data.to(self._device)
            torch.cuda.synchronize(self._device)
            # Not on the lane's stream: torch records events there when any thread frees host memory.
            with torch.cuda.stream(self._lane.stream):
                graph = _CudaGraph(run, static, self._lane.pool)
            self._held_bytes += max(0, torch.cuda.memory_reserved(self._device) - before)
        return graph

    def has_memory(self) -> bool:
        """Whether another graph may be captured."""
        return self._held_bytes < self._most_bytes


class _CudaGraph(Generic[T]):
    def __init__(self, run: Run[T], data: torch.Tensor, pool: Any) -> None:
        self._data = data
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may allocate memory meanwhile.
        self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            self._result = run(data)
        finally:
            self._graph.capture_end()

    def __call__(self, data: torch.Tensor) -> T:
        self._data.copy_(data, non_blocking=True)
        self._graph.replay()
        return self._result


class Graphs(Generic[T]):
    """The graphs of one model, of each lane its own. Safe to call from several lanes.

    agree: whether the results of a replay and of the pass that it was captured from are equal but for rounding. If they
        are not, or capturing fails, all batches run without graphs from then on.
    most: graphs of one lane; the least recently used one is evicted. captured: graphs of all lanes.
    """

    def __init__(self, capture: CudaCapture, agree: Callable[[T, T], bool], most: int = MAX_GRAPHS) -> None:
        self._capture = capture
        self._agree = agree
        self._most = most
        self._lane = threading.local()
        self._failed = False
        self.captured = 0

    def find(self, bucket: Bucket, run: Run[T], data: torch.Tensor, launch: Callable[[], T]) -> Graph[T] | None:
        """The graph of a bucket, captured now for its second batch; None: run without. data: see `CudaCapture`.

        launch: `run` of `data`, without a graph. When the memory is used up, no graph is evicted or captured."""
        if not hasattr(self._lane, "graphs"):
            self._lane.graphs = OrderedDict()
        graphs: OrderedDict[Bucket, Graph[T] | None] = self._lane.graphs  # None: one batch so far
        if self._failed or (graphs.get(bucket) is None and not self._capture.has_memory()):
            return None
        if bucket not in graphs:
            graphs[bucket] = None
            if len(graphs) > self._most:
                _, evicted = graphs.popitem(last=False)
                self.captured -= evicted is not None
            return None
        graphs.move_to_end(bucket)
        if graphs[bucket] is None:
            graphs[bucket] = self._captured(bucket, run, data, launch)
        return graphs[bucket]

    def _captured(self, bucket: Bucket, run: Run[T], data: torch.Tensor, launch: Callable[[], T]) -> Graph[T] | None:
        try:
            graph = self._capture(run, data)
            if not self._agree(graph(data), launch()):
                raise RuntimeError("its replay gives other results")
        except (RuntimeError, TypeError) as error:  # TypeError: it reads more than the tensor
            logger.warning("batches run without CUDA graphs, one of %s cannot be captured: %r", bucket, error)
            self._failed = True
            return None
        self.captured += 1
        return graph
