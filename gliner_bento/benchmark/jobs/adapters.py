"""LoRA adapters of the benchmark: made by PEFT with random weights, and what gliner answers with each of them merged.

As strong as they are, they change most answers, and scores stay as far apart as the checkpoint's own are.
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

from gliner_bento.benchmark.jobs import answer
from gliner_bento.benchmark.jobs.gliner_own import Body, decode, run

RANK = 16
STRENGTH = 0.25
_ENCODER = "token_rep_layer.bert_layer.model.encoder."


def main(what: str, **arguments: Any) -> dict[str, Any]:
    """Do `what`: one of the public functions below."""
    warnings.simplefilter("ignore")
    functions: dict[str, Callable[..., dict[str, Any]]] = {"make": make, "merged": merged}
    return functions[what](**arguments)


def make(model: str, folder: str, counts: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Write so many adapters of each kind (see `targets`) below `folder`: root/KIND-000, root/KIND-001, ..."""
    gliner = GLiNER.from_pretrained(model)
    torch.manual_seed(seed)
    layers: dict[str, list[str]] = {}
    for kind, count in counts.items():
        layers[kind] = targets(gliner, kind)
        config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules=layers[kind])
        adapted = get_peft_model(gliner.model, config)
        for number in range(count):
            _draw(adapted)
            adapted.save_pretrained(str(Path(folder) / "root" / f"{kind}-{number:03}"))
        adapted.unload()
    return {"layers": layers}


def targets(gliner: Any, kind: str) -> list[str]:
    """Names of the encoder's linear layers that a kind of adapters changes.

    attention: those that PEFT changes by default in such an encoder, its queries and values; values: of these the
    values; linear: all.
    """
    encoder = gliner.model.token_rep_layer.bert_layer.model.config.model_type
    default = set(TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING[encoder])
    wanted = {"attention": default, "values": {name for name in default if "value" in name}, "linear": None}[kind]
    return [
        name
        for name, module in gliner.model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and name.startswith(_ENCODER)
        and (wanted is None or name.rpartition(".")[2] in wanted)
    ]


def merged(model: str, folder: str, bodies: list[Body]) -> dict[str, Any]:
    """What gliner's own forward answers in float32 to each body alone, with the adapter that it names, if any, merged
    into the weights by PEFT. folder: of the adapters.

    In one thread, so that several can run at once.
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
    """Within it the adapter is in the model's weights, which have their old values to the bit afterwards."""
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
    """So that an update adds a vector `STRENGTH` times as long as the layer's input, whatever the rank."""
    for name, parameter in adapted.named_parameters():
        if "lora_A" in name:
            parameter.normal_(0.0, 1 / parameter.shape[-1] ** 0.5)
        elif "lora_B" in name:
            parameter.normal_(0.0, STRENGTH / parameter.shape[-1] ** 0.5)


if __name__ == "__main__":
    answer(main)
