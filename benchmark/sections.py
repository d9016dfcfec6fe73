"""The sections of the report, in order; a section that cannot be measured does not affect the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmark import (
    bulk,
    cost,
    fairness,
    in_process,
    on_gpu,
    over_http,
    overhead,
    personal_data,
    precisions,
    with_adapters,
    with_long_texts,
    with_models,
    with_schemas,
)
from benchmark.bench import Bench, log_progress
from benchmark.job import NotMeasured
from benchmark.rows import Row

Section = Callable[[Bench, str], list[Row]]

SECTIONS: dict[str, Section] = {
    "bf16": partial(over_http.http, "bfloat16", 4.0),
    "fp32": partial(over_http.http, "float32", 3.3),
    "naive": over_http.naive,
    "in_process": in_process.in_process,
    "gliner2": with_schemas.gliner2,
    "gliclass": with_schemas.gliclass,
    "served": in_process.served,
    "gateways": over_http.gateways,
    "relex": over_http.relex,
    "labels128": over_http.labels128,
    "labels1000": in_process.labels1000,
    "adapters": with_adapters.over_http,
    "adapters_exact": with_adapters.exact,
    "adapters_tiers": with_adapters.tiers,
    "adapters_in_process": with_adapters.in_process,
    "long_texts": with_long_texts.long_texts,
    "int8": precisions.int8,
    "models": with_models.models,
    "overhead": overhead.overhead,
    "pii": personal_data.personal_data,
    "cost": cost.cost,
    "bulk": bulk.bulk,
    "fairness": fairness.fairness,
    "express": fairness.express,
    "gpu": on_gpu.gpu,
}
ON_DEMAND = ("bulk", "cost", "express", "fairness", "gateways", "gpu", "int8", "models", "pii")
"""Sections that run only if they are named."""
DEFAULT = [name for name in SECTIONS if name not in ON_DEMAND]


def measure(bench: Bench, names: Sequence[str], keep: Callable[[], None]) -> None:
    """Measure sections in the order of SECTIONS; `keep` is called after each one, to store the results so far."""
    for name in [name for name in SECTIONS if name in names]:
        start = time.monotonic()
        log_progress(f"{name} ...")
        try:
            rows = SECTIONS[name](bench, name)
        except (NotMeasured, ImportError) as reason:
            log_progress(f"  not measured: {reason}")
            rows = [Row(name, name, "", None, note=f"not measured: {reason}")]
        except Exception as error:  # a failed section must not cost the results of the rest
            log_progress(f"  failed: {error!r}")
            rows = [Row(name, name, "", None, note=f"not measured: {error!r}"[:300])]
        bench.rows += rows
        bench.extra.setdefault("seconds", {})[name] = time.monotonic() - start
        keep()
