"""Every `gliner_*` metric, declared once; served at /metrics and listed in docs/metrics.md.

No label has a value that a client chooses. prometheus_client opens its files when metrics are declared, so import this
module inside a worker only. Knows no models.
"""

from __future__ import annotations

import os
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gliner_bento import __version__
from gliner_bento.adapter_types import AdapterCacheStatus
from gliner_bento.exits import is_alive
from gliner_bento.replicas.base import ReplicaStatus
from gliner_bento.status_types import HealthState
from gliner_bento.types import SelfTest

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUEST_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)

disable_created_metrics()  # type: ignore[no-untyped-call]

HTTP_REQUESTS = Counter(
    "gliner_http_requests_total",
    "Requests that were answered. route: the template of the path; unknown paths have one value.",
    ["route", "method", "status"],
)
HTTP_SECONDS = Histogram(
    "gliner_http_request_seconds",
    "Duration of a request that the replica has worked on, until its answer is sent.",
    ["route"],
    buckets=_REQUEST_SECONDS,
)
HTTP_IN_FLIGHT = Gauge("gliner_http_requests_in_flight", "Requests that are being served.", multiprocess_mode="livesum")
ERRORS = Counter(
    "gliner_errors_total",
    "Requests that were answered with an error, by its code: queue_full (refused), deadline_exceeded (missed), ...",
    ["code"],
)

ITEMS = Counter("gliner_items_total", "Items that ended, by outcome.", ["outcome"])
BATCH_ITEMS = Histogram("gliner_batch_items", "Items of a batch.", buckets=_ITEMS)
BATCH_PADDED_TOKENS = Histogram("gliner_batch_padded_tokens", "Tokens of a batch, padding included.", buckets=_TOKENS)
TOKENS = Counter("gliner_tokens_total", "Tokens that the model has processed, without padding.")
WAIT_SECONDS = Histogram("gliner_batch_wait_seconds", "A batch's oldest item: admission to start.", buckets=_SECONDS)
STAGE_SECONDS = Histogram(
    "gliner_stage_seconds", "Duration of a stage: prepare per item, the others per batch.", ["stage"], buckets=_SECONDS
)
SPLITS = Counter("gliner_batch_splits_total", "Batches that failed or no longer fit the device, and were halved.")
REPEATED_ITEMS = Counter("gliner_repeated_items_total", "Items of a lost replica that were repeated on another one.")
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


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What the replica reports when it is scraped; None: it did not answer, or has no adapters."""

    status: ReplicaStatus | None
    adapters: AdapterCacheStatus | None


@dataclass(frozen=True, slots=True)
class StateGauge:
    """A gauge that is read from the replica's state at each scrape. values: by the label's value."""

    name: str
    documentation: str
    values: Callable[[ReplicaState], Mapping[str, float]]
    label: str | None = None


def _of_status(read: Callable[[ReplicaStatus], float]) -> Callable[[ReplicaState], Mapping[str, float]]:
    return lambda state: {"": read(state.status)} if state.status else {}


def _ready(state: ReplicaState) -> Mapping[str, float]:
    return {"": state.status is not None and state.status.ready}


def _lanes(state: ReplicaState) -> Mapping[str, float]:
    if (status := state.status) is None:
        return {}
    dead = status.lanes - status.idle_lanes - status.busy_lanes
    return {"busy": status.busy_lanes, "idle": status.idle_lanes, "dead": dead}


def _adapters(state: ReplicaState) -> Mapping[str, float]:
    if (adapters := state.adapters) is None:
        return {}
    on_device = sum(adapter_id is not None for adapter_id in adapters.device_slots)
    return {"device": on_device, "cpu": len(adapters.in_memory), "disk": len(adapters.on_disk)}


def _replicas(state: ReplicaState) -> Mapping[str, float]:
    if state.status is None or not state.status.replicas:
        return {}
    return dict.fromkeys(get_args(HealthState), 0.0) | Counts(one.state for one in state.status.replicas)


STATE_GAUGES = (
    StateGauge("gliner_ready", "1 if the replica admits items and all of its threads are alive.", _ready),
    StateGauge(
        "gliner_unfinished_items",
        "Items that wait or run. The passes of a long text count as one item.",
        _of_status(lambda status: status.unfinished_items),
    ),
    StateGauge(
        "gliner_waiting_items",
        "Items and passes of long texts that are in no batch yet.",
        _of_status(lambda status: status.waiting_items),
    ),
    StateGauge(
        "gliner_running_items",
        "Items and passes of long texts that are in a batch.",
        _of_status(lambda status: status.running_items),
    ),
    StateGauge(
        "gliner_waiting_tokens", "Their cost while they wait.", _of_status(lambda status: status.waiting_tokens)
    ),
    StateGauge("gliner_running_tokens", "Their cost while they run.", _of_status(lambda status: status.running_tokens)),
    StateGauge("gliner_lanes", "Lanes that run a batch, that are idle, and that have died.", _lanes, "state"),
    StateGauge("gliner_replicas", "Replicas by state, as in /v1/replicas.", _replicas, "state"),
    StateGauge("gliner_adapters", "Adapters on the device, in CPU memory and on disk.", _adapters, "tier"),
)


_MODEL_INFO = ("gliner_model_info", "1; its labels say what is served.")
_MODEL_LABELS = ("version", "model", "device", "dtype")


def _model_info(state: ReplicaState) -> GaugeMetricFamily:
    family = GaugeMetricFamily(*_MODEL_INFO, labels=_MODEL_LABELS)
    if state.status:
        model = state.status.model
        family.add_metric((__version__, model.model, model.device, model.dtype), 1)
    return family


class _StateCollector(Collector):
    """The gauges of one scrape."""

    def __init__(self, state: ReplicaState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        for gauge in STATE_GAUGES:
            labels = (gauge.label,) if gauge.label else ()
            family = GaugeMetricFamily(gauge.name, gauge.documentation, labels=labels)
            for value, number in gauge.values(self._state).items():
                family.add_metric((value,) if gauge.label else (), number)
            yield family
        yield _model_info(self._state)


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

    def on_traced(self, timing: object) -> None:
        """Of traced items only, so not counted."""

    def on_load(self, seconds: float, outcome: str) -> None:
        """An adapter was loaded into memory, or failed to load."""
        ADAPTER_LOAD_SECONDS.labels(outcome).observe(seconds)

    def on_self_test(self, outcome: SelfTest) -> None:
        """The model is loaded."""
        SELF_TEST.labels(outcome).set(1)

    def on_evict(self) -> None:
        """An adapter has left the memory."""
        ADAPTER_EVICTIONS.inc()


def declared() -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Name, type, labels and description of each metric."""
    for metric in globals().values():
        if isinstance(metric, MetricWrapperBase):
            (described,) = metric.describe()
            suffix = "_total" if described.type == "counter" else ""
            yield described.name + suffix, described.type, metric._labelnames, described.documentation
    for gauge in STATE_GAUGES:
        yield gauge.name, "gauge", (gauge.label,) if gauge.label else (), gauge.documentation
    yield _MODEL_INFO[0], "gauge", _MODEL_LABELS, _MODEL_INFO[1]


def on_answer(route: str, method: str, status: int, seconds: float, admitted: bool, error: str | None) -> None:
    """A request was answered. admitted: it had items for the replica. error: the code of its error."""
    HTTP_REQUESTS.labels(route, method, status).inc()
    if admitted:
        HTTP_SECONDS.labels(route).observe(seconds)
    if error:
        ERRORS.labels(error).inc()


class _MergedCollector(Collector):
    """The metrics of this process, and those of others with a label `replica`."""

    def __init__(self, state: ReplicaState, others: Mapping[str, bytes]) -> None:
        self._state = state
        self._others = others

    def collect(self) -> Iterator[Metric]:
        families = {family.name: family for family in (*REGISTRY.collect(), *_StateCollector(self._state).collect())}
        for name, text in self._others.items():
            for theirs in text_string_to_metric_families(text.decode()):
                merged = families.setdefault(theirs.name, Metric(theirs.name, theirs.documentation, theirs.type))
                for sample in theirs.samples:
                    merged.samples.append(sample._replace(labels={**sample.labels, "replica": name}))
        yield from families.values()


def own_exposition() -> bytes:
    """The metrics of this process in Prometheus' text format."""
    return generate_latest(REGISTRY)


def exposition(state: ReplicaState, others: Mapping[str, bytes] | None = None) -> bytes:
    """All metrics in Prometheus' text format: of this process, or of all that share `PROMETHEUS_MULTIPROC_DIR`.

    others: the `own_exposition` of processes on other machines, by replica; instead of the folder's.
    """
    gauges = CollectorRegistry()
    if others is not None:
        gauges.register(_MergedCollector(state, others))
        return generate_latest(gauges)
    gauges.register(_StateCollector(state))
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is None:
        return generate_latest(REGISTRY) + generate_latest(gauges)
    for pid in _dead_processes(Path(folder)):
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
    MultiProcessCollector(gauges)  # type: ignore[no-untyped-call]
    return generate_latest(gauges)


def _dead_processes(folder: Path) -> Iterable[int]:
    """Processes whose requests in flight would be counted for ever."""
    pids = {int(file.stem.rpartition("_")[2]) for file in folder.glob("gauge_live*.db")}
    return [pid for pid in pids if not is_alive(pid)]
