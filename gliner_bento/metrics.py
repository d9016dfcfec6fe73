"""Every `gliner_*` metric, declared once; served at /metrics, in the bento together with `bentoml_service_*`.

prometheus_client opens its files at import, so import this module inside a worker only.
"""

from __future__ import annotations

import os

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from gliner_bento.types import SelfTest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)

ITEMS = Counter("gliner_items_total", "Items that ended, by outcome.", ["outcome"])
UNFINISHED_ITEMS = Gauge("gliner_unfinished_items", "Items that wait or run.", multiprocess_mode="mostrecent")
BATCH_ITEMS = Histogram("gliner_batch_items", "Items of a batch.", buckets=_ITEMS)
BATCH_PADDED_TOKENS = Histogram("gliner_batch_padded_tokens", "Tokens of a batch, padding included.", buckets=_TOKENS)
TOKENS = Counter("gliner_tokens_total", "Tokens that the model has processed, without padding.")
WAIT_SECONDS = Histogram("gliner_batch_wait_seconds", "A batch's oldest item: admission to start.", buckets=_SECONDS)
STAGE_SECONDS = Histogram(
    "gliner_stage_seconds", "Duration of a stage: prepare per item, the others per batch.", ["stage"], buckets=_SECONDS
)
SPLITS = Counter("gliner_batch_splits_total", "Batches that failed or no longer fit the device, and were halved.")
NOT_FINITE = Counter("gliner_not_finite_items_total", "Items that failed because their scores were not numbers (NaN).")

SELF_TEST = Gauge(
    "gliner_self_test",
    "1 for the outcome of the self-test at start: passed, failed (gliner's own forward pass serves) or disabled.",
    ["outcome"],
    multiprocess_mode="max",
)

ADAPTER_LOAD_SECONDS = Histogram(
    "gliner_adapter_load_seconds",
    "Loading an adapter from disk into memory.",
    ["outcome"],
    buckets=_SECONDS,
)
ADAPTER_EVICTIONS = Counter("gliner_adapter_evictions_total", "Adapters evicted from memory or removed.")


class PrometheusObserver:
    """Implements the observers of the scheduler, the adapters and the replica."""

    def on_stage(self, stage: str, seconds: float) -> None:
        """A stage has ended."""
        STAGE_SECONDS.labels(stage).observe(seconds)

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        """The model has processed a batch."""
        BATCH_ITEMS.observe(size)
        BATCH_PADDED_TOKENS.observe(padded_tokens)
        TOKENS.inc(real_tokens)
        WAIT_SECONDS.observe(wait_s)

    def on_split(self, size: int) -> None:
        """A batch failed and is halved."""
        SPLITS.inc()

    def on_not_finite(self) -> None:
        """An item's scores are not numbers."""
        NOT_FINITE.inc()

    def on_finish(self, outcome: str) -> None:
        """An item has ended."""
        ITEMS.labels(outcome).inc()

    def on_load(self, seconds: float, outcome: str) -> None:
        """An adapter was loaded into memory, or failed to load."""
        ADAPTER_LOAD_SECONDS.labels(outcome).observe(seconds)

    def on_self_test(self, outcome: SelfTest) -> None:
        """The model is loaded."""
        SELF_TEST.labels(outcome).set(1)

    def on_unfinished(self, items: int) -> None:
        """The number of items that wait or run now."""
        UNFINISHED_ITEMS.set(items)

    def on_evict(self) -> None:
        """An adapter has left the memory."""
        ADAPTER_EVICTIONS.inc()


CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition() -> bytes:
    """All metrics of this process, or of all that share `PROMETHEUS_MULTIPROC_DIR`, in Prometheus' text format."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
