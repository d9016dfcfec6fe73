"""LoRA adapters in process, served by others on gliner's own forward: their answers in float32, their speed in another
precision.

peft          a batch's texts with an adapter each (`adapter_names`)
peft-batches  batches whose texts have one adapter each, which is made the active one
polylora      PolyLoRA around the text encoder, as gliner.serve puts it there, and told the adapters of each batch
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

from gliner_bento.benchmark.jobs import answer
from gliner_bento.benchmark.jobs.adapters import RANK
from gliner_bento.benchmark.jobs.gliner_own import Ask, Body, by_length, decode, measured, run


def main(
    peers: list[str],
    model: str,
    folder: str,
    bodies: dict[str, list[Body]],
    layers: dict[str, list[str]],
    batch_sizes: list[int],
    seconds: float,
    dtype: str,
) -> dict[str, Any]:
    """Of each peer and kind of adapters: texts/s in `dtype` at each batch size, the answers at the last, and the
    `exact` ones, in float32 at the first; or the `error` that the peer fails with.

    folder: of the adapters. bodies: of each kind. layers: the model's that each kind changes.
    """
    warnings.simplefilter("ignore")
    told: dict[str, Any] = {peer: {} for peer in peers}
    for peer in peers:
        batches_of = by_adapter if peer == "peft-batches" else by_length
        for kind, asked in bodies.items():
            folders = {body["adapter_id"]: Path(folder) / body["adapter_id"] for body in asked}
            loaded = partial(_PEERS[peer], model, folders, layers[kind])
            try:
                exact = measured(loaded("float32"), asked, batch_sizes[:1], 0.0, batches_of)
                fast = measured(loaded(dtype), asked, batch_sizes, seconds, batches_of)
            except (ValueError, RuntimeError) as error:
                told[peer][kind] = {"error": str(error).splitlines()[0]}
            else:
                told[peer][kind] = fast | {"exact": exact["answers"]}
    return told


def by_adapter(bodies: Sequence[Body], size: int) -> list[list[int]]:
    """Batches of at most `size` texts with the same adapter, sorted as `by_length` does."""
    batches = []
    for name in sorted({body["adapter_id"] for body in bodies}):
        own = [number for number, body in enumerate(bodies) if body["adapter_id"] == name]
        batches += [[own[i] for i in batch] for batch in by_length([bodies[number] for number in own], size)]
    return batches


def _on_peft(model: str, folders: dict[str, Path], dtype: str) -> tuple[Any, Any]:
    """gliner with the adapters, which are in its own precision, and PEFT's part of it."""
    gliner = GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    (first, folder), *others = folders.items()
    adapted = PeftModel.from_pretrained(gliner.model, str(folder), adapter_name=first, autocast_adapter_dtype=False)
    for name, other in others:
        adapted.load_adapter(str(other), name, autocast_adapter_dtype=False)
    gliner.model = adapted.eval()
    return gliner, adapted


def _peft(model: str, folders: dict[str, Path], _: list[str], dtype: str) -> Ask:
    gliner, _adapted = _on_peft(model, folders, dtype)
    return lambda batch: decode(gliner, run(gliner, batch, adapter_names=[body["adapter_id"] for body in batch]))


def _peft_batches(model: str, folders: dict[str, Path], _: list[str], dtype: str) -> Ask:
    gliner, adapted = _on_peft(model, folders, dtype)

    def ask(batch: Sequence[Body]) -> list[dict[str, Any]]:
        adapted.set_adapter(batch[0]["adapter_id"])
        return decode(gliner, run(gliner, batch))

    return ask


def _polylora(model: str, folders: dict[str, Path], layers: list[str], dtype: str) -> Ask:
    from polylora import PolyLoraConfig, PolyLoraModel  # noqa: PLC0415  may be missing

    gliner = GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    holder, within = gliner.model.token_rep_layer.bert_layer, "token_rep_layer.bert_layer.model."
    names = [layer.removeprefix(within) for layer in layers]
    config = PolyLoraConfig(max_gpu_adapters=len(folders), max_rank=RANK, target_modules=names)
    holder.model = wrapped = PolyLoraModel(holder.model, config).eval()
    for name, folder in folders.items():
        wrapped.load_adapter_from_disk(name, str(folder))
    current: list[str] = []
    # gliner's forward drops what it does not know, so the wrapper would never be told.
    wrapped.register_forward_pre_hook(lambda _, args, named: (args, named | {"adapter_ids": current}), with_kwargs=True)

    def ask(batch: Sequence[Body]) -> list[dict[str, Any]]:
        current[:] = [body["adapter_id"] for body in batch]
        return decode(gliner, run(gliner, batch))

    return ask


_PEERS: dict[str, Callable[[str, dict[str, Path], list[str], str], Ask]] = {
    "peft": _peft,
    "peft-batches": _peft_batches,
    "polylora": _polylora,
}

if __name__ == "__main__":
    answer(main)
