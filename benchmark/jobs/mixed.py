"""Other libraries with LoRA adapters on gliner's own forward: answers in float32, and speed in another precision.

peft          batches of texts with different adapters (`adapter_names`)
peft-batches  batches of texts with the same adapter, which is set active
polylora      PolyLoRA around the text encoder, as in gliner.serve, with the adapter ids of each batch
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER
from peft import PeftModel

from benchmark.jobs import run_job
from benchmark.jobs.adapters import RANK
from benchmark.jobs.gliner_own import Body, Predict, by_length, decode, measure, run


def main(
    baselines: list[str],
    model: str,
    folder: str,
    bodies: dict[str, list[Body]],
    layers: dict[str, list[str]],
    batch_sizes: list[int],
    seconds: float,
    dtype: str,
) -> dict[str, Any]:
    """For each baseline and kind of adapters: texts/s in `dtype` at each batch size, the answers at the last one, and
    `exact`, the answers in float32 at the first one; or the `error` that the baseline fails with.

    folder: of the adapters. bodies: by kind. layers: names of the layers that each kind changes.
    """
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {baseline: {} for baseline in baselines}
    for baseline in baselines:
        batches_of = by_adapter if baseline == "peft-batches" else by_length
        for kind, of_kind in bodies.items():
            folders = {body["adapter_id"]: Path(folder) / body["adapter_id"] for body in of_kind}
            load = partial(_BASELINES[baseline], model, folders, layers[kind])
            try:
                exact = measure(load("float32"), of_kind, batch_sizes[:1], 0.0, batches_of)
                fast = measure(load(dtype), of_kind, batch_sizes, seconds, batches_of)
            except (ValueError, RuntimeError) as error:
                results[baseline][kind] = {"error": str(error).splitlines()[0]}
            else:
                results[baseline][kind] = fast | {"exact": exact["answers"]}
    return results


def by_adapter(bodies: Sequence[Body], size: int) -> list[list[int]]:
    """Batches of at most `size` texts with the same adapter, sorted as by `by_length`."""
    batches = []
    for name in sorted({body["adapter_id"] for body in bodies}):
        own = [number for number, body in enumerate(bodies) if body["adapter_id"] == name]
        batches += [[own[i] for i in batch] for batch in by_length([bodies[number] for number in own], size)]
    return batches


def _on_peft(model: str, folders: dict[str, Path], dtype: str) -> tuple[Any, Any]:
    """gliner with the adapters, in the same precision, and the PEFT model inside it."""
    gliner = GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    (first, folder), *rest = folders.items()
    adapted = PeftModel.from_pretrained(gliner.model, str(folder), adapter_name=first, autocast_adapter_dtype=False)
    for name, adapter in rest:
        adapted.load_adapter(str(adapter), name, autocast_adapter_dtype=False)
    gliner.model = adapted.eval()
    return gliner, adapted


def _peft(model: str, folders: dict[str, Path], _: list[str], dtype: str) -> Predict:
    gliner, _adapted = _on_peft(model, folders, dtype)
    return lambda batch: decode(gliner, run(gliner, batch, adapter_names=[body["adapter_id"] for body in batch]))


def _peft_batches(model: str, folders: dict[str, Path], _: list[str], dtype: str) -> Predict:
    gliner, adapted = _on_peft(model, folders, dtype)

    def predict(batch: Sequence[Body]) -> list[dict[str, Any]]:
        adapted.set_adapter(batch[0]["adapter_id"])
        return decode(gliner, run(gliner, batch))

    return predict


def _polylora(model: str, folders: dict[str, Path], layers: list[str], dtype: str) -> Predict:
    from polylora import PolyLoraConfig, PolyLoraModel  # noqa: PLC0415  may be missing

    gliner = GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    holder, within = gliner.model.token_rep_layer.bert_layer, "token_rep_layer.bert_layer.model."
    names = [layer.removeprefix(within) for layer in layers]
    config = PolyLoraConfig(max_gpu_adapters=len(folders), max_rank=RANK, target_modules=names)
    holder.model = wrapped = PolyLoraModel(holder.model, config).eval()
    for name, folder in folders.items():
        wrapped.load_adapter_from_disk(name, str(folder))
    current: list[str] = []
    # gliner's forward drops unknown arguments, so the wrapper would never get the adapter ids.
    wrapped.register_forward_pre_hook(lambda _, args, named: (args, named | {"adapter_ids": current}), with_kwargs=True)

    def predict(batch: Sequence[Body]) -> list[dict[str, Any]]:
        current[:] = [body["adapter_id"] for body in batch]
        return decode(gliner, run(gliner, batch))

    return predict


_BASELINES: dict[str, Callable[[str, dict[str, Path], list[str], str], Predict]] = {
    "peft": _peft,
    "peft-batches": _peft_batches,
    "polylora": _polylora,
}

if __name__ == "__main__":
    run_job(main)
