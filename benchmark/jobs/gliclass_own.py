"""gliclass itself in process: a checkpoint with random weights, its answers, and its speed at several batch sizes."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gliclass import GLiClassModel, GLiClassModelConfig, ZeroShotClassificationPipeline
from transformers import AutoTokenizer

from benchmark.jobs import run_job
from benchmark.jobs.checkpoints import _DEBERTA, _tokenizer
from benchmark.jobs.gliner_own import measure

_MARKERS = ["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"]


def main(what: str, **arguments: Any) -> dict[str, Any]:
    """Do `what`: one of the public functions below."""
    return build(**arguments) if what == "build" else speed(**arguments)


def build(folder: str, tokenizer: str, seed: int = 0) -> dict[str, Any]:
    """Write a checkpoint of the shape of deberta-v3-small into `folder`."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        words = _tokenizer(Path(tokenizer), Path(scratch) / "tokenizer")
    words.add_special_tokens({"additional_special_tokens": _MARKERS})
    words.model_max_length = 1024
    label, text, example = words.convert_tokens_to_ids(_MARKERS)
    torch.manual_seed(seed)
    encoder = {**_DEBERTA, "vocab_size": len(words)}
    marked = {"class_token_index": label, "text_token_index": text, "example_token_index": example}
    config = GLiClassModelConfig(encoder_config=encoder, encoder_model=folder, prompt_first=True, **marked)
    GLiClassModel(config).eval().save_pretrained(folder)
    words.save_pretrained(folder)
    return {}


def speed(model: str, bodies: list[dict[str, Any]], batch_sizes: list[int], seconds: float) -> dict[str, Any]:
    """See `gliner_own.measure`. The bodies have one classification, which is the same in all."""
    warnings.simplefilter("ignore")
    loaded = GLiClassModel.from_pretrained(model)
    own = AutoTokenizer.from_pretrained(model)
    pipeline = ZeroShotClassificationPipeline(
        loaded, own, device="cpu", classification_type="single-label", progress_bar=False
    )

    @torch.inference_mode()
    def predict(batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        ((_, labels),) = batch[0]["classifications"].items()
        answers = pipeline([body["text"] for body in batch], labels, batch_size=len(batch))
        return [{"entities": [], "classes": [best["label"]]} for (best, *_) in answers]

    return measure(predict, bodies, batch_sizes, seconds)


if __name__ == "__main__":
    run_job(main)
