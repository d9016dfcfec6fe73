"""The naive service: gliner behind BentoML's own adaptive batching (`batchable=True`), in place of our scheduler.

`bentoml serve benchmark.jobs.naive_service:NaiveService`, with BENCH_MODEL and BENCH_DTYPE.
"""

from __future__ import annotations

import os
from typing import Any

import bentoml


@bentoml.service(name="NaiveService", traffic={"timeout": 120})
class NaiveService:
    """One model, one worker."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415  not in the supervising process
        from gliner import GLiNER  # noqa: PLC0415

        dtype = getattr(torch, os.environ["BENCH_DTYPE"])
        self.model = GLiNER.from_pretrained(os.environ["BENCH_MODEL"], dtype=dtype).eval()

    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=60_000)  # type: ignore[untyped-decorator]
    def extract(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One answer per item."""
        labels = [item["labels"] for item in items]
        batch = self.model.inference([item["text"] for item in items], labels, threshold=0.5, batch_size=len(items))
        return [{"entities": entities} for entities in batch]
