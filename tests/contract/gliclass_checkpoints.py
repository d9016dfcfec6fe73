"""Tiny GLiClass checkpoints with random weights, built by gliclass's own classes without a network, and its answers.

tiny_gliclass(folder, backbone="deberta")   ->  folder, to be given to GLiNEREngine.load or gliclass
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from checkpoints import BACKBONES, HIDDEN, POSITIONS, draw_weights, wordpiece_tokenizer
from safetensors.torch import save_file

from gliner_bento.engine.checkpoint.gliclass import package
from gliner_bento.tasks.classifications import Classification

MARKERS = ["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"]
GENERATIVE: dict[str, dict[str, Any]] = {
    "t5": {"model_type": "t5", "d_model": HIDDEN, "d_kv": 8, "num_heads": 4, "num_layers": 2, "d_ff": 64},
    "qwen3": {
        **{"model_type": "qwen3", "hidden_size": HIDDEN, "head_dim": 8, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64},
    },
}


def tiny_gliclass(
    folder: Path, *, backbone: str = "deberta", seed: int = 0, max_tokens: int = POSITIONS, **options: Any
) -> Path:
    """Write a checkpoint into `folder`; `options` are GLiClassModelConfig's."""
    tokenizer = wordpiece_tokenizer()
    tokenizer.model_max_length = max_tokens
    tokenizer.add_special_tokens({"additional_special_tokens": MARKERS})
    label, separator, example = tokenizer.convert_tokens_to_ids(MARKERS)
    config = package().GLiClassModelConfig(
        encoder_config={**(BACKBONES | GENERATIVE)[backbone], "vocab_size": len(tokenizer)},
        encoder_model=str(folder),
        class_token_index=label,
        text_token_index=separator,
        example_token_index=example,
        sep_token_index=separator,
        **{"hidden_size": 32, "scorer_num_heads": 2, "prompt_first": True, **options},
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        model = package().GLiClassModel(config)
        draw_weights(model)
        model.save_pretrained(folder)
        # Shared tensors too: without them, gliclass draws random embeddings for T5's decoder.
        save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
        tokenizer.save_pretrained(folder)
    return folder


@cache
def reference(folder: Path) -> Any:
    """gliclass's own pipeline of a checkpoint."""
    from transformers import AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = package().GLiClassModel.from_pretrained(folder)
    return package().ZeroShotClassificationPipeline(
        model, AutoTokenizer.from_pretrained(folder), device="cpu", progress_bar=False
    )


def expected(folder: Path, text: str, classification: Classification) -> list[float]:
    """gliclass's score of each label, of one call with one text."""
    labels = list(classification.labels.values())
    kind = "multi-label" if classification.multi_label else "single-label"
    (scores,) = reference(folder)(
        [text],
        labels,
        threshold=0.0,
        classification_type=kind,
        prompt=classification.description,
        return_hierarchical=True,
    )
    return [scores[label] for label in labels]
