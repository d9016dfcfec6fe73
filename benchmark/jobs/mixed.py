"""PEFT's batches of texts with different adapters (`adapter_names`) on gliner's own forward: answers and speed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER
from peft import PeftModel

from benchmark.jobs import run_job
from benchmark.jobs.gliner_own import Body, Predict, decode, measure, run


def main(
    model: str, folder: str, bodies: dict[str, list[Body]], batch_sizes: list[int], seconds: float, dtype: str
) -> dict[str, Any]:
    """For each kind of adapters: texts/s in `dtype` at each batch size, the answers at the last one, and `exact`, the
    answers in float32 at the first one; or the `error` that PEFT fails with.

    folder: of the adapters. bodies: by kind.
    """
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    for kind, of_kind in bodies.items():
        folders = {body["adapter_id"]: Path(folder) / body["adapter_id"] for body in of_kind}
        try:
            exact = measure(_predict(model, folders, "float32"), of_kind, batch_sizes[:1], 0.0)
            fast = measure(_predict(model, folders, dtype), of_kind, batch_sizes, seconds)
        except (ValueError, RuntimeError) as error:
            results[kind] = {"error": str(error).splitlines()[0]}
        else:
            results[kind] = fast | {"exact": exact["answers"]}
    return results


def _predict(model: str, folders: dict[str, Path], dtype: str) -> Predict:
    """gliner with the adapters, in the same precision."""
    gliner = GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    (first, folder), *rest = folders.items()
    adapted = PeftModel.from_pretrained(gliner.model, str(folder), adapter_name=first, autocast_adapter_dtype=False)
    for name, adapter in rest:
        adapted.load_adapter(str(adapter), name, autocast_adapter_dtype=False)
    gliner.model = adapted.eval()
    return lambda batch: decode(gliner, run(gliner, batch, adapter_names=[body["adapter_id"] for body in batch]))


if __name__ == "__main__":
    run_job(main)
