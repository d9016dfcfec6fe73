"""Checkpoints of the benchmark: the shape of deberta-v3-small under gliner's default head, with random weights.

The weights of a model do not change the cost of a text, except through the number of predictions. So the weights are
drawn at random (the backbone by transformers, heads by He's rule), and the scores are calibrated afterwards: the scale
of the logits is set to a standard deviation of `SPREAD`, and a constant is added to all of them so that texts of the
mixed workload have `ENTITIES_PER_TEXT` entities on average (flat, threshold 0.5). The constant is carried by one of the
hidden dimensions of the product of spans and labels: both sides of it are zeroed, and the biases set one side to 1 and
the other to the constant, so gliner loads and runs the model unchanged.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER, GLiNERConfig
from transformers import PreTrainedTokenizerFast

from benchmark.jobs import run_job
from benchmark.jobs.gliner_own import Ran, decode, run

SPREAD = 1.5
ENTITIES_PER_TEXT = 2.5
CONSTANT = 0
_BISECTIONS = 14

_DEBERTA = {
    "model_type": "deberta-v2",
    "hidden_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "position_buckets": 256,
    "relative_attention": True,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
}
_BERT_SMALL = {
    "model_type": "bert",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
}
_BASE = {"num_hidden_layers": 12}
_LARGE = {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
_MODERNBERT_BASE = {
    "model_type": "modernbert",
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
    "bos_token_id": 101,
    "cls_token_id": 101,
    "eos_token_id": 102,
    "sep_token_id": 102,
}
# By family: what differs from gliner's defaults and the shape of deberta-v3-small.
FAMILIES: dict[str, dict[str, Any]] = {
    "ner": {},
    "bi": {"labels_encoder": "here", "labels_encoder_config": _BERT_SMALL},
    "base": {"encoder_config": _DEBERTA | _BASE},
    "large": {"encoder_config": _DEBERTA | _LARGE},
    "modernbert": {"encoder_config": _MODERNBERT_BASE},
}


def build(family: str, folder: str, tokenizer: str, bodies: list[dict[str, Any]], seed: int = 0) -> dict[str, Any]:
    """Write the checkpoint of `family` into `folder` with the tokenizer of another checkpoint."""
    warnings.simplefilter("ignore")
    tokens = Path(folder) / "tokenizer"
    words = _tokenizer(Path(tokenizer), tokens)
    options = dict(FAMILIES[family])
    if "labels_encoder" in options:
        options["labels_encoder"] = str(tokens)
        options["labels_encoder_config"] = {**_BERT_SMALL, "vocab_size": len(words)}
    encoder = {**options.pop("encoder_config", _DEBERTA), "vocab_size": len(words)}
    torch.manual_seed(seed)
    config = GLiNERConfig(model_name=str(tokens), encoder_config=encoder, span_mode="markerV0", **options)
    model = GLiNER.from_config(config, backbone_from_pretrained=False).eval()
    if torch.cuda.is_available():
        model.to("cuda")
    _draw_heads(model.model)
    entities_per_text = calibrate_entities(model, bodies)
    model.to("cpu").save_pretrained(Path(folder), safe_serialization=True)
    return {"entities_per_text": entities_per_text}


def _tokenizer(checkpoint: Path, folder: Path) -> Any:
    """The tokenizer of a checkpoint without gliner's own tokens: gliner adds them and counts them from the end."""
    shutil.copytree(checkpoint, folder, ignore=lambda _, names: [name for name in names if "tokenizer" not in name])
    described = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    own = len(described["model"]["vocab"])
    ordinary = [token for token in described["added_tokens"] if token["id"] < own]
    _rewrite(folder / "tokenizer.json", {"added_tokens": ordinary})
    _rewrite(folder / "tokenizer_config.json", {"model_max_length": None, "max_length": None})  # positions are relative
    return PreTrainedTokenizerFast.from_pretrained(folder)


def _rewrite(file: Path, changed: dict[str, Any]) -> None:
    """Change keys of a JSON file; None removes a key."""
    content = json.loads(file.read_text("utf-8")) | changed
    kept = {key: value for key, value in content.items() if value is not None or key not in changed}
    file.write_text(json.dumps(kept), encoding="utf-8")


@torch.inference_mode()
def export(model: str, folder: str) -> dict[str, Any]:
    """gliner's own ONNX export of a checkpoint, with the tokenizer."""
    warnings.simplefilter("ignore")
    Path(folder).mkdir(parents=True)
    GLiNER.from_pretrained(model).export_to_onnx(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (Path(model) / name).exists():
            shutil.copy(Path(model) / name, folder)
    return {"folder": folder}


def quantize(exported: str, folder: str) -> dict[str, Any]:
    """The export with onnxruntime's dynamic quantization."""
    from onnxruntime.quantization import quantize_dynamic  # noqa: PLC0415  the others do without the package

    shutil.copytree(exported, folder, ignore=shutil.ignore_patterns("*.onnx*"))
    quantize_dynamic(Path(exported, "model.onnx"), Path(folder, "model.onnx"))
    return {"folder": folder}


@torch.no_grad()
def _draw_heads(model: torch.nn.Module) -> None:
    """Weights that preserve variance through ReLUs, and zero biases: bfloat16 keeps the differences between inputs."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and not name.startswith("token_rep_layer"):
            torch.nn.init.kaiming_normal_(module.weight)
            module.bias.zero_()


@torch.no_grad()
def calibrate_entities(model: Any, bodies: list[dict[str, Any]]) -> float:
    """Centre, scale and shift the logits of spans; the resulting entities per text."""
    spans, labels = model.model.span_rep_layer.span_rep_layer.out_project, model.model.prompt_rep_layer
    _centre(model, bodies, spans)
    _centre(model, bodies, labels)
    for layer in (spans, labels):  # clear the dimension that will carry the constant
        layer[-1].weight[CONSTANT] = 0.0
        layer[-1].bias[CONSTANT] = 0.0
    logits = torch.cat([run(model, [body]).output.logits.flatten() for body in bodies])
    _scale(spans, SPREAD / float(logits.std()))
    ran = [run(model, [body]) for body in bodies]
    threshold = _bisected(lambda at: _count(model, ran, "entities", threshold=at) / len(bodies), ENTITIES_PER_TEXT)
    spans[-1].bias[CONSTANT] = 1.0
    labels[-1].bias[CONSTANT] = -math.log(threshold / (1 - threshold))
    return _count(model, [run(model, [body]) for body in bodies], "entities") / len(bodies)


def _centre(model: Any, bodies: list[dict[str, Any]], layer: Any) -> None:
    """Subtract the mean output of a layer from its bias."""
    outputs: list[torch.Tensor] = []
    hook = layer.register_forward_hook(lambda _, __, output: outputs.append(output.flatten(0, -2)))
    for body in bodies:
        run(model, [body])
    hook.remove()
    layer[-1].bias -= torch.cat(outputs).mean(0)


def _scale(layer: Any, factor: float) -> None:
    layer[-1].weight *= factor
    layer[-1].bias *= factor


def _count(model: Any, ran: list[Ran], kind: str, **thresholds: float) -> int:
    return sum(len(answer[kind]) for one in ran for answer in decode(model, one, **thresholds))


def _bisected(count: Callable[[float], float], target: float) -> float:
    """The threshold with a count of about `target`, between 0.5 (too many, since scores are centred) and 1."""
    low, high = 0.5, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if count(middle) > target else (low, middle)
    return high


MAKERS: dict[str, Callable[..., dict[str, Any]]] = {"build": build, "export": export, "quantize": quantize}


def main(what: str, **arguments: Any) -> dict[str, Any]:
    """`what`: a key of `MAKERS`."""
    return MAKERS[what](**arguments)


if __name__ == "__main__":
    run_job(main)
