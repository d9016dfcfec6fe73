"""The maximum lengths of a model: gliner's `max_len` in words, and the tokenizers' and encoders' in tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, PreTrainedModel

from gliner_bento.engine.checkpoint.find import BACKBONES, ModelError
from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Span
from gliner_bento.engine.text.subwords import ModelLimits

# Limits a sequence to this many tokens per word of `max_len` if neither the tokenizer nor the encoder has a limit.
# Without it, one "word" of a megabyte could exhaust the memory: attention costs the square of the length.
_TOKENS_PER_WORD = 8
# Tables of absolute positions, as transformers' backbones name them.
_POSITION_TABLES = ("position_embeddings", "embed_positions", "wpe")


def limits_of(model: Any, *, separate_labels: bool) -> ModelLimits:
    """The limits of gliner's model. separate_labels: whether it has a separate encoder for labels."""
    words: int = model.config.max_len
    processor = model.data_processor
    encoders = [(_encoder(model, "bert_layer", "model_name"), processor.transformer_tokenizer)]
    if separate_labels:
        encoders.append((_encoder(model, "labels_encoder", "labels_encoder"), processor.labels_tokenizer))
    limits = []
    for encoder, tokenizer in encoders:
        check_vocabulary(encoder, tokenizer)
        # gliner2 does not truncate at the tokenizer's length.
        truncating_tokenizer = None if isinstance(model, GLiNER2Span) else tokenizer
        limits.append(token_limit(encoder, truncating_tokenizer) or words * _TOKENS_PER_WORD)
    return ModelLimits(words, tokens=limits[0], label_tokens=limits[-1])


def _encoder(model: Any, attribute: str, backbone: str) -> nn.Module:
    """An encoder of a model. For an ONNX checkpoint, it is built from the configuration, without weights.
    attribute: the encoder's name in gliner's modules. backbone: its key in `BACKBONES`."""
    if isinstance(model, GLiNER2Span):
        encoder: nn.Module = model.model.encoder
        return encoder
    if isinstance(model.model, nn.Module):
        encoder = getattr(model.model.token_rep_layer, attribute)
        return encoder
    with torch.device("meta"):
        empty: nn.Module = AutoModel.from_config(getattr(model.config, BACKBONES[backbone].config_key))
    return empty


def check_vocabulary(encoder: nn.Module, tokenizer: Any) -> None:
    """Raises ModelError if the vocabulary is missing: transformers then makes a tokenizer of special tokens only."""
    backbones = (module for module in encoder.modules() if isinstance(module, PreTrainedModel))
    embeddings = next((backbone.get_input_embeddings().num_embeddings for backbone in backbones), 0)
    if len(tokenizer) < embeddings // 2:
        raise ModelError(
            f"the tokenizer has {len(tokenizer)} tokens, its encoder {embeddings}: the vocabulary is missing "
            "(tokenizer.json, spm.model, vocab.txt or the like)"
        )


def token_limit(encoder: nn.Module, tokenizer: Any | None) -> int | None:
    """Maximum tokens of one sequence, special tokens included; None if there is no limit.

    tokenizer: None if sequences are not truncated at its limit. gliner truncates silently at the tokenizer's
    `model_max_length`, which is about 10**30 for a tokenizer without a limit. An encoder with a table of absolute
    positions fails beyond the table's end. RoBERTa counts positions from `padding_idx + 1`, BART from `offset`. Raises
    ModelError if the tokenizer's limit is no number, or negative.
    """
    length = tokenizer.model_max_length if tokenizer else math.inf
    if not isinstance(length, int | float) or not length >= 0:
        raise ModelError(
            f"model_max_length in tokenizer_config.json is {length!r}; it must be a whole number, 0 or more"
        )
    limits = [int(length)] if length < 1_000_000 else []
    for name, module in encoder.named_modules():
        if name.endswith(_POSITION_TABLES) and isinstance(module, nn.Embedding):
            offset = getattr(module, "offset", 0) if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - offset)
    return min(limits, default=None)
