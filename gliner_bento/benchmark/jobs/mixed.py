"""LoRA adapters in process, served by others on gliner's own forward: their answers in float32, their speed in another
precision.

peft          a batch's texts with an adapter each (`adapter_names`)
peft-batches  batches whose texts have one adapter each, which is made the active one
polylora      PolyLoRA around the text encoder, as gliner.serve puts it there, and told the adapters of each batch
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER
from peft import PeftModel

from gliner_bento.benchmark.jobs import answer
from gliner_bento.benchmark.jobs.adapters import RANK
from gliner_bento.benchmark.jobs.gliner_own import Ask, Body, by_length, decode, measured, run


def main(
    peer: str, model: str, folder: str, bodies: dict[str, list[Body]], batch_sizes: list[int], seconds: float,
    dtype: str, layers: dict[str, list[str]],
) -> dict[str, Any]:  # fmt: skip
    """For each kind of adapters its answers in float32 (one pass, at the first batch size) and its texts/s in `dtype`
    at each batch size; or the `error` of a kind that the peer fails at.

    bodies: of each kind. layers: the encoder's that adapters of each kind change. folder: of the adapters.
    """
    warnings.simplefilter("ignore")
    told: dict[str, Any] = {}
    for kind, asked in bodies.items():
        names = sorted({body["adapter_id"] for body in asked})
        folders = {name: Path(folder) / name for name in names}
        batches_of = by_adapter if peer == "peft-batches" else by_length
        try:
            ask = _PEERS[peer](model, "float32", folders, layers[kind])
            exact = measured(ask, asked, batch_sizes[:1], 0.0, batches_of)
            ask = _PEERS[peer](model, dtype, folders, layers[kind])
            fast = measured(ask, asked, batch_sizes, seconds, batches_of)
        except (ValueError, RuntimeError) as error:
            told[kind] = {"error": str(error).splitlines()[0]}
            continue
        told[kind] = fast | {"exact": exact["answers"]}
    return told


def by_adapter(bodies: Sequence[Body], size: int) -> list[list[int]]:
    """Batches of at most `size` texts with the same adapter, sorted as `by_length` does."""
    batches = []
    for name in sorted({body["adapter_id"] for body in bodies}):
        own = [number for number, body in enumerate(bodies) if body["adapter_id"] == name]
        batches += [[own[i] for i in batch] for batch in by_length([bodies[number] for number in own], size)]
    return batches


def _on_peft(model: str, dtype: str, folders: dict[str, Path]) -> tuple[Any, Any]:
    """gliner with the adapters, which are in its own precision, and PEFT's part of it."""
    gliner = GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    (first, folder), *others = folders.items()
    adapted = PeftModel.from_pretrained(gliner.model, str(folder), adapter_name=first, autocast_adapter_dtype=False)
    for name, other in others:
        adapted.load_adapter(str(other), name, autocast_adapter_dtype=False)
    gliner.model = adapted.eval()
    return gliner, adapted


def _peft(model: str, dtype: str, folders: dict[str, Path], _: list[str]) -> Ask:
    gliner, _adapted = _on_peft(model, dtype, folders)
    return lambda batch: decode(gliner, run(gliner, batch, adapter_names=[body["adapter_id"] for body in batch]))


def _peft_batches(model: str, dtype: str, folders: dict[str, Path], _: list[str]) -> Ask:
    gliner, adapted = _on_peft(model, dtype, folders)

    def ask(batch: Sequence[Body]) -> list[dict[str, Any]]:
        adapted.set_adapter(batch[0]["adapter_id"])
        return decode(gliner, run(gliner, batch))

    return ask


def _polylora(model: str, dtype: str, folders: dict[str, Path], layers: list[str]) -> Ask:
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


_PEERS: dict[str, Callable[[str, str, dict[str, Path], list[str]], Ask]] = {
    "peft": _peft,
    "peft-batches": _peft_batches,
    "polylora": _polylora,
}

if __name__ == "__main__":
    answer(main)
