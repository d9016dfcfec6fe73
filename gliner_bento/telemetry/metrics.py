"""Every `gliner_*` metric, declared once; served at /metrics and listed in docs/metrics.md.

No label has a value that a client chooses. `process_metrics` makes the metrics of this process at its first call.
Knows no models.
"""

from __future__ import annotations

import os
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
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
    values,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gliner_bento import __version__
from gliner_bento.adapter_types import AdapterCacheStatus
from gliner_bento.model_types import ModelState
from gliner_bento.replicas.base import ReplicaStatus
from gliner_bento.status_types import HealthState, SelfTest
from gliner_bento.storage.files import is_alive

CONTENT_TYPE = CONTENT_TYPE_LATEST

# Upper bounds of the histograms' buckets.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUEST_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics(Collector):
    """The metrics of a process; those of a model have its name in the label `model`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._http_requests = counter(
            "gliner_http_requests_total",
            "Answered requests. route: the template of the path; all unknown paths share one value.",
            ["route", "method", "status"],
        )
        self._http_seconds = histogram(
            "gliner_http_request_seconds",
            "Time from the arrival of a request to the end of its answer. Only requests that reached the replica.",
            ["route"],
            buckets=_REQUEST_SECONDS,
        )
        self.http_in_flight = gauge(
            "gliner_http_requests_in_flight",
            "Requests that have arrived and are not answered yet.",
            multiprocess_mode="livesum",
        )
        self._errors = counter(
            "gliner_errors_total",
            "Requests answered with an error, by error code: queue_full, deadline_exceeded, ...",
            ["code"],
        )
        self._repeated_items = counter(
            "gliner_repeated_items_total", "Items that were retried on another replica after their replica was lost."
        )
        self.items = counter("gliner_items_total", "Finished items, by outcome.", ["model", "outcome"])
        self.batch_items = histogram("gliner_batch_items", "Items per batch.", ["model"], buckets=_ITEMS)
        self.batch_padded_tokens = histogram(
            "gliner_batch_padded_tokens", "Tokens per batch, including padding.", ["model"], buckets=_TOKENS
        )
        self.tokens = counter("gliner_tokens_total", "Tokens processed by the model, without padding.", ["model"])
        self.wait_seconds = histogram(
            "gliner_batch_wait_seconds",
            "Time that the oldest item of a batch has waited, from its admission to the start of the batch.",
            ["model"],
            buckets=_SECONDS,
        )
        self.stage_seconds = histogram(
            "gliner_stage_seconds",
            "Duration of a stage: prepare per item; collate, forward and decode per batch.",
            ["model", "stage"],
            buckets=_SECONDS,
        )
        self.express_batches = counter(
            "gliner_express_batches_total", "Batches of short texts that the express lane has taken.", ["model"]
        )
        self.splits = counter(
            "gliner_batch_splits_total",
            "Batches that were halved because they failed or did not fit on the device.",
            ["model"],
        )
        self.not_finite = counter(
            "gliner_not_finite_items_total",
            "Items that failed because a score was not a finite number (NaN).",
            ["model"],
        )
        self.self_test = gauge(
            "gliner_self_test",
            "1 for the outcome of the self-test at start: passed, failed (gliner's own forward pass serves) or "
            "disabled.",
            ["model", "outcome"],
            multiprocess_mode="max",
        )
        self.adapter_load_seconds = histogram(
            "gliner_adapter_load_seconds",
            "Time to load an adapter from disk into memory, by outcome.",
            ["model", "outcome"],
            buckets=_SECONDS,
        )
        self.adapter_evictions = counter(
            "gliner_adapter_evictions_total", "Adapters evicted from memory, or removed by a request.", ["model"]
        )
        # Cached, because `labels` takes longer than counting.
        self._http_requests_of = cache(self._http_requests.labels)
        self._http_seconds_of = cache(self._http_seconds.labels)

    def on_answer(
        self, route: str, method: str, status: int, seconds: float, admitted: bool, error: str | None
    ) -> None:
        """A request was answered. admitted: its items were sent to the replica. error: the code of its error."""
        self._http_requests_of(route, method, status).inc()
        if admitted:
            self._http_seconds_of(route).observe(seconds)
        if error:
            self._errors.labels(error).inc()

    def on_repeat(self, items: int) -> None:
        """Items of a lost replica are retried on another one."""
        self._repeated_items.inc(items)

    def of_model(self, model: str) -> ModelMetrics:
        """The metrics of one model. model: the name that it is served under."""
        return ModelMetrics(self, model)

    def collect(self) -> Iterator[Metric]:
        """These metrics, and those of Python and the process."""
        return chain(REGISTRY.collect(), self.registry.collect())


class ModelMetrics:
    """The metrics of one model. Implements the observers of the scheduler, the adapters and the replica."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._batch_items = metrics.batch_items.labels(model)
        self._batch_padded_tokens = metrics.batch_padded_tokens.labels(model)
        self._tokens = metrics.tokens.labels(model)
        self._wait_seconds = metrics.wait_seconds.labels(model)
        self._express_batches = metrics.express_batches.labels(model)
        self._splits = metrics.splits.labels(model)
        self._not_finite = metrics.not_finite.labels(model)
        self._adapter_evictions = metrics.adapter_evictions.labels(model)
        self._items_of = cache(partial(metrics.items.labels, model))
        self._stage_seconds_of = cache(partial(metrics.stage_seconds.labels, model))
        self._metrics, self._model = metrics, model

    def on_stage(self, stage: str, seconds: float) -> None:
        """A stage has ended."""
        self._stage_seconds_of(stage).observe(seconds)

    def on_batch(self, size: int, padded_tokens: int, real_tokens: int, wait_s: float) -> None:
        """The model has processed a batch."""
        self._batch_items.observe(size)
        self._batch_padded_tokens.observe(padded_tokens)
        self._tokens.inc(real_tokens)
        self._wait_seconds.observe(wait_s)

    def on_express(self) -> None:
        """The express lane takes a batch."""
        self._express_batches.inc()

    def on_split(self, size: int) -> None:
        """A batch failed and is halved."""
        self._splits.inc()

    def on_not_finite(self) -> None:
        """An item's scores are not numbers."""
        self._not_finite.inc()

    def on_finish(self, outcome: str, items: int = 1) -> None:
        """Items have ended."""
        self._items_of(outcome).inc(items)

    def on_traced(self, timing: object) -> None:
        """Counts nothing, because only traced items are reported here."""

    def on_load(self, seconds: float, outcome: str) -> None:
        """An adapter was loaded into memory, or failed to load."""
        self._metrics.adapter_load_seconds.labels(self._model, outcome).observe(seconds)

    def on_self_test(self, outcome: SelfTest) -> None:
        """The outcome of the self-test at start is known."""
        self._metrics.self_test.labels(self._model, outcome).set(1)

    def on_evict(self) -> None:
        """An adapter has left the memory."""
        self._adapter_evictions.inc()


@cache
def process_metrics() -> Metrics:
    """The metrics of this process. `ServiceProcess` sets PROMETHEUS_MULTIPROC_DIR, the folder in which processes share
    them, before the first call."""
    # prometheus_client chose its value class at import, before the variable was set.
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    return Metrics()


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a model's replica reports. status, adapters: None if it did not answer. adapters: None also if disabled.

    model: the name that the model is served under; None: not known yet. state: the model's state, as in /v1/models.
    """

    model: str | None
    status: ReplicaStatus | None
    adapters: AdapterCacheStatus | None
    state: ModelState = "ready"


@dataclass(frozen=True, slots=True)
class StateGauge:
    """A gauge that is read from the replicas' states at each scrape.

    values: the gauge's numbers, by value of `label`; without a label, the only key is "".
    """

    name: str
    documentation: str
    values: Callable[[ReplicaState], Mapping[str, float]]
    label: str | None = None

    @property
    def labels(self) -> Sequence[str]:
        """The names of all labels."""
        return ("model", self.label) if self.label else ("model",)


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
    return dict.fromkeys(get_args(HealthState), 0.0) | Counts(replica.state for replica in state.status.replicas)


def _states(state: ReplicaState) -> Mapping[str, float]:
    return {name: name == state.state for name in get_args(ModelState)}


STATE_GAUGES = (
    StateGauge("gliner_model_state", "1 for the state of the model, as in /v1/models.", _states, "state"),
    StateGauge("gliner_ready", "1 if the replica admits items and all of its threads are alive.", _ready),
    StateGauge(
        "gliner_unfinished_items",
        "Items that are waiting or running. The passes of a long text count as one item.",
        _of_status(lambda status: status.unfinished_items),
    ),
    StateGauge(
        "gliner_waiting_items",
        "Items, and passes of long texts, that are not in a batch yet.",
        _of_status(lambda status: status.waiting_items),
    ),
    StateGauge(
        "gliner_running_items",
        "Items, and passes of long texts, that are in a batch.",
        _of_status(lambda status: status.running_items),
    ),
    StateGauge(
        "gliner_waiting_tokens",
        "Estimated tokens of waiting items.",
        _of_status(lambda status: status.waiting_tokens),
    ),
    StateGauge("gliner_running_tokens", "Tokens of running items.", _of_status(lambda status: status.running_tokens)),
    StateGauge("gliner_lanes", "Lanes by state: busy, idle or dead.", _lanes, "state"),
    StateGauge("gliner_replicas", "Replicas by health state, as in /v1/replicas.", _replicas, "state"),
    StateGauge("gliner_adapters", "Adapters on the device, in CPU memory and on disk.", _adapters, "tier"),
)


_INFO_NAME, _INFO_HELP = "gliner_model_info", "Constant 1; labels: version, model, device and dtype."
_INFO_LABELS = ("version", "model", "device", "dtype")


def _model_info(states: Sequence[ReplicaState]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(_INFO_NAME, _INFO_HELP, labels=_INFO_LABELS)
    for state in states:
        if state.status:
            family.add_metric((__version__, state.model or "", state.status.model.device, state.status.model.dtype), 1)
    return family


class _StateCollector(Collector):
    """The gauges of one scrape."""

    def __init__(self, states: Sequence[ReplicaState]) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        for gauge in STATE_GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.documentation, labels=gauge.labels)
            for state in self._states:
                for label_value, number in gauge.values(state).items():
                    label_values = (label_value,) if gauge.label else ()
                    family.add_metric([state.model or "", *label_values], number)
            yield family
        yield _model_info(self._states)


def declared() -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Name, type, labels and description of each metric."""
    for metric in vars(process_metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (described,) = metric.describe()
            suffix = "_total" if described.type == "counter" else ""
            yield described.name + suffix, described.type, metric._labelnames, described.documentation
    for gauge in STATE_GAUGES:
        yield gauge.name, "gauge", gauge.labels, gauge.documentation
    yield _INFO_NAME, "gauge", _INFO_LABELS, _INFO_HELP


class _MergedCollector(Collector):
    """The metrics of this process, and those of remote replicas, to which it adds the label `replica`."""

    def __init__(self, states: Sequence[ReplicaState], remote: Mapping[str, bytes]) -> None:
        self._states = states
        self._remote = remote

    def collect(self) -> Iterator[Metric]:
        own = chain(process_metrics().collect(), _StateCollector(self._states).collect())
        families = {family.name: family for family in own}
        for name, text in self._remote.items():
            for theirs in text_string_to_metric_families(text.decode()):
                merged = families.setdefault(theirs.name, Metric(theirs.name, theirs.documentation, theirs.type))
                for sample in theirs.samples:
                    merged.samples.append(sample._replace(labels={**sample.labels, "replica": name}))
        yield from families.values()


def own_exposition() -> bytes:
    """The metrics of this process in Prometheus' text format."""
    return generate_latest(process_metrics())


def exposition(states: Sequence[ReplicaState], remote: Mapping[str, bytes] | None = None) -> bytes:
    """All metrics in Prometheus' text format: of this process, or of all that share `PROMETHEUS_MULTIPROC_DIR`.

    remote: the `own_exposition` of each remote replica, by its name; if given, the folder is not read.
    """
    registry = CollectorRegistry()
    if remote is not None:
        registry.register(_MergedCollector(states, remote))
        return generate_latest(registry)
    registry.register(_StateCollector(states))
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is None:
        return own_exposition() + generate_latest(registry)
    for pid in _dead_processes(Path(folder)):
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def _dead_processes(folder: Path) -> Iterable[int]:
    """Ids of ended processes, whose requests in flight would be counted for ever."""
    pids = {int(file.stem.rpartition("_")[2]) for file in folder.glob("gauge_live*.db")}
    return [pid for pid in pids if not is_alive(pid)]
