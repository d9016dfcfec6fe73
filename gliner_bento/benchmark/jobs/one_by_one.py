"""What one writes first for a long text: its pieces, one after the other, through gliner's own `predict_entities`."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
from gliner import GLiNER

from gliner_bento.benchmark.jobs import answer


def main(model: str, texts: list[str], labels: list[str], seconds: float, dtype: str) -> dict[str, Any]:
    """How many of the texts are read until `seconds` are over, and in how many; the first is read once before."""
    warnings.simplefilter("ignore")
    loaded = GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    loaded.predict_entities(texts[0], labels)
    began, read = time.perf_counter(), 0
    while read == 0 or (read < len(texts) and time.perf_counter() - began < seconds):
        loaded.predict_entities(texts[read], labels)
        read += 1
    return {"texts": read, "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    answer(main)
