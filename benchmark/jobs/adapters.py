"""LoRA adapters of the benchmark: made by PEFT with random weights; and gliner's predictions with each of them merged.

They are strong enough to change most predictions, and keep the spread of the scores of the checkpoint.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

from benchmark.jobs import run_job
from benchmark.jobs.gliner_own import Body, decode, run

RANK = 16
STRENGTH = 0.25
_ENCODER = "token_rep_layer.bert_layer.model.encoder."


def main(what: str, **arguments: Any) -> dict[str, Any]:
    """Do `what`: one of the public functions below."""
    warnings.simplefilter("ignore")
    functions: dict[str, Callable[..., dict[str, Any]]] = {"make": make, "merged": merged}
    return functions[what](**arguments)


def make(model: str, folder: str, counts: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Write `counts` adapters of each kind (see `targets`) below `folder`: root/KIND-000, root/KIND-001, ..."""
    gliner = GLiNER.from_pretrained(model)
    torch.manual_seed(seed)
    for kind, count in counts.items():
        config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules=targets(gliner, kind))
        adapted = get_peft_model(gliner.model, config)
        for number in range(count):
            _draw(adapted)
            adapted.save_pretrained(str(Path(folder) / "root" / f"{kind}-{number:03}"))
        adapted.unload()
    return {"counts": counts}


def targets(gliner: Any, kind: str) -> list[str]:
    """Names of the encoder's linear layers that a kind of adapters changes.

    attention: PEFT's defaults for such an encoder, queries and values; values: the values alone; linear: all.
    """
    encoder = gliner.model.token_rep_layer.bert_layer.model.config.model_type
    default = set(TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING[encoder])
    target_names = {"attention": default, "values": {name for name in default if "value" in name}, "linear": None}[kind]
    return [
        name
        for name, module in gliner.model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and name.startswith(_ENCODER)
        and (target_names is None or name.rpartition(".")[2] in target_names)
    ]


def merged(model: str, folder: str, bodies: list[Body]) -> dict[str, Any]:
    """The answers of gliner's own forward in float32, one text per batch, the adapter of each body (if any) merged into
    the weights by PEFT. folder: of the adapters.

    In one thread, so that several of these jobs can run in parallel.
    """
    torch.set_num_threads(1)
    gliner = GLiNER.from_pretrained(model).eval()
    answers: dict[int, dict[str, Any]] = {}
    of_adapters: dict[str | None, list[int]] = {}
    for number, body in enumerate(bodies):
        of_adapters.setdefault(body.get("adapter_id"), []).append(number)
    for adapter_id, numbers in of_adapters.items():
        with _with_adapter(gliner, Path(folder) / adapter_id if adapter_id else None):
            for number in numbers:
                [answers[number]] = decode(gliner, run(gliner, [bodies[number]]))
    return {"answers": [answers[number] for number in range(len(bodies))]}


@contextmanager
def _with_adapter(gliner: Any, folder: Path | None) -> Iterator[None]:
    """The adapter is merged into the model's weights while the block runs; afterwards they are bitwise the old ones."""
    if folder is None:
        yield
        return
    adapted = PeftModel.from_pretrained(gliner.model, str(folder), low_cpu_mem_usage=True)
    layers = [module.get_base_layer() for module in adapted.modules() if isinstance(module, LoraLayer)]
    before = [layer.weight.detach().clone() for layer in layers]
    gliner.model = adapted.merge_and_unload().eval()
    try:
        yield
    finally:
        with torch.no_grad():
            for layer, weight in zip(layers, before, strict=True):
                layer.weight.copy_(weight)


@torch.no_grad()
def _draw(adapted: Any) -> None:
    """Draw weights so that an update is a vector `STRENGTH` times as long as the layer's input, for any rank."""
    for name, parameter in adapted.named_parameters():
        if "lora_A" in name:
            parameter.normal_(0.0, 1 / parameter.shape[-1] ** 0.5)
        elif "lora_B" in name:
            parameter.normal_(0.0, STRENGTH / parameter.shape[-1] ** 0.5)


if __name__ == "__main__":
    run_job(main)
