"""The naive way to process a long text: gliner's own `predict_entities` in a loop over its pieces."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
from gliner import GLiNER

from benchmark.jobs import run_job


def main(model: str, texts: list[str], labels: list[str], seconds: float, dtype: str) -> dict[str, Any]:
    """How many of the texts are processed within `seconds`, and the exact time; the first one is also the warm-up."""
    warnings.simplefilter("ignore")
    loaded = GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    loaded.predict_entities(texts[0], labels)
    start, done = time.perf_counter(), 0
    while done == 0 or (done < len(texts) and time.perf_counter() - start < seconds):
        loaded.predict_entities(texts[done], labels)
        done += 1
    return {"texts": done, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    run_job(main)
