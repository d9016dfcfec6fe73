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
"""Share of the device's memory that the graphs of all lanes may hold."""

T = TypeVar("T")

Run = Callable[[torch.Tensor], T]
"""Computes scores from a bucket's tensor on the device. Must not read anything else of the batch."""

Graph = Callable[[torch.Tensor], T]
"""A captured forward pass, called with a bucket's tensor in host memory. A call overwrites the previous result."""


class CudaCapture:
    """Captures forward passes on one CUDA device, with a memory pool per lane."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held_bytes = 0
        self._max_bytes = MEMORY_FRACTION * torch.cuda.get_device_properties(device).total_memory
        self._of_lane = threading.local()  # pool, capture_stream

    def __call__(self, run: Run[T], data: torch.Tensor) -> Graph[T]:
        """The graph of `run`. data: an example, in host memory. Raises what `run` raises."""
        if not hasattr(self._of_lane, "pool"):
            self._of_lane.pool = torch.cuda.graph_pool_handle()
            self._of_lane.capture_stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with device_wait:
            before = torch.cuda.memory_reserved(self._device)
            static = data.to(self._device)
            torch.cuda.synchronize(self._device)
            # Not on the lane's stream: if a thread frees host memory meanwhile, torch records an event on that stream.
            with torch.cuda.stream(self._of_lane.capture_stream):
                graph = _CudaGraph(run, static, self._of_lane.pool)
            self._held_bytes += max(0, torch.cuda.memory_reserved(self._device) - before)
        return graph

    def has_memory(self) -> bool:
        """Whether another graph may be captured."""
        return self._held_bytes < self._max_bytes


class _CudaGraph(Generic[T]):
    def __init__(self, run: Run[T], data: torch.Tensor, pool: Any) -> None:
        self._data = data
        self._graph = torch.cuda.CUDAGraph()
        # "thread_local": other threads may allocate memory meanwhile.
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
    """The graphs of one model; each lane has its own. Safe to call from several lanes.

    agree: whether two results are equal apart from rounding. A graph's first result is compared with the same pass
        without a graph. If they differ, or capturing fails, all batches run without graphs from then on.
    max_graphs: limit for each lane; the least recently used graph is evicted. captured: number of graphs of all lanes.
    """

    def __init__(self, capture: CudaCapture, agree: Callable[[T, T], bool], max_graphs: int = MAX_GRAPHS) -> None:
        self._capture = capture
        self._agree = agree
        self._max_graphs = max_graphs
        self._of_lane = threading.local()  # graphs
        self._failed = False
        self.captured = 0

    def find(self, bucket: Bucket, run: Run[T], data: torch.Tensor, run_eager: Callable[[], T]) -> Graph[T] | None:
        """The graph of a bucket, captured now if this is its second batch; None: run the batch without a graph.

        data: see `CudaCapture`. run_eager: the same pass over `data`, without a graph. When the memory for graphs
        is used up, no graph is captured or evicted."""
        if not hasattr(self._of_lane, "graphs"):
            self._of_lane.graphs = OrderedDict()
        graphs: OrderedDict[Bucket, Graph[T] | None] = self._of_lane.graphs  # None: one batch so far
        if self._failed or (graphs.get(bucket) is None and not self._capture.has_memory()):
            return None
        if bucket not in graphs:
            graphs[bucket] = None
            if len(graphs) > self._max_graphs:
                _, evicted = graphs.popitem(last=False)
                if evicted is not None:
                    self.captured -= 1
            return None
        graphs.move_to_end(bucket)
        if graphs[bucket] is None:
            graphs[bucket] = self._captured(bucket, run, data, run_eager)
        return graphs[bucket]

    def _captured(self, bucket: Bucket, run: Run[T], data: torch.Tensor, run_eager: Callable[[], T]) -> Graph[T] | None:
        try:
            graph = self._capture(run, data)
            if not self._agree(graph(data), run_eager()):
                raise RuntimeError("its replay gives other results")
        except (RuntimeError, TypeError) as error:  # TypeError: `run` reads more than the tensor
            logger.warning("batches run without CUDA graphs: a batch of %s cannot be captured: %r", bucket, error)
            self._failed = True
            return None
        self.captured += 1
        return graph
