"""gliner's text encoder over packed texts, in its packed form or through transformers, and the pooling of words."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from gliner_bento.engine.encoders.packed import PackedEncoder, packed_encoder
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.kernels import Kernels
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.packing import Layout
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.engine.text.collate import PackedInputs

logger = logging.getLogger(__name__)

# Backbones of transformers whose hidden states do not depend on padding after a text. Others run text by text: some
# have convolutions or mix all tokens.
_PADDABLE = {
    *("BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "ElectraModel", "DistilBertModel"),
    *("AlbertModel", "MPNetModel", "DebertaModel", "DebertaV2Model", "FlashDebertaV2Model", "ModernBertModel"),
    *("T5EncoderModel", "LlamaModel"),
}
# Those that gliner replaces by bidirectional ones if the package llm2vec is installed.
_CAUSAL = {"LlamaModel", "MistralModel", "GemmaModel", "Qwen2Model"}


class WordPooling:
    """gliner's `subtoken_pooling`: one embedding per word, from its marked tokens."""

    def __init__(self, pooling: str) -> None:
        self._reduce = {"mean": "mean", "max": "amax"}.get(pooling)

    def __call__(self, tokens: torch.Tensor, inputs: PackedInputs) -> torch.Tensor:
        """(T, D) -> (W, D)."""
        marked = tokens[inputs.word_positions]
        if self._reduce is None:  # one token of each word is marked
            return marked
        words = tokens.new_zeros(sum(inputs.word_rows.counts), tokens.shape[1])
        index = inputs.word_numbers[:, None].expand_as(marked)
        return words.scatter_reduce(0, index, marked, self._reduce, include_self=False)


def text_encoder(
    token_rep_layer: Any, layers: LayerFactory, kernels: Kernels, *, pack: bool
) -> tuple[PackedEncoder, str, bool]:
    """gliner's text encoder over packed texts, its name, and whether it works without padding inside."""
    transformer, projection = token_rep_layer.bert_layer, getattr(token_rep_layer, "projection", None)
    kind = type(transformer.model).__name__
    warn_if_causal(transformer)
    packed = packed_encoder(transformer, projection, layers, kernels) if pack else None
    if packed is not None:
        return packed, f"packed {kind}", True
    encode = getattr(token_rep_layer, "encode_text", token_rep_layer)
    layers.adapt(transformer)
    if projection is not None:
        layers.adapt_child(token_rep_layer, "projection")
    if not is_paddable(transformer):
        return text_by_text(encode, layers.own_shapes), f"transformers' {kind} text by text", True
    return padded(encode), f"transformers' {kind}", False


def is_paddable(transformer: Any) -> bool:
    """Whether gliner's `Transformer` gives a text the same hidden states in a padded batch."""
    # The weights of fused layers are means over a text, padding included.
    return type(transformer.model).__name__ in _PADDABLE and not transformer.config.fuse_layers


def warn_if_causal(transformer: Any) -> None:
    """Log that gliner runs a language model in one direction where the checkpoint may need both."""
    if (kind := type(transformer.model).__name__) in _CAUSAL:
        logger.warning(
            "%s: attention is causal, as in gliner without the package llm2vec; a checkpoint that was trained with "
            "attention in both directions gives other scores",
            kind,
        )


def padded(encode: Callable[..., torch.Tensor]) -> PackedEncoder:
    """A packed encoder from one of padded texts, (ids, mask) -> (texts, longest, D); one call per adapter."""

    def run(token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        block = Layout.padded(TextRows(layout.lengths), token_ids.device)
        assert block.index is not None
        assert block.mask is not None
        encoded, first = [], 0
        for slot, texts in layout.by_adapter():
            part = slice(first, first + texts)
            longest = max(layout.lengths[part])
            index, mask = block.index[part, :longest], block.mask[part, :longest]
            with on_slot(slot):
                encoded.append(encode(token_ids[index], mask.long())[mask])
            first += texts
        return torch.cat(encoded)

    return run


def text_by_text(
    encode: Callable[..., torch.Tensor], own_shapes: Callable[[], AbstractContextManager[None]]
) -> PackedEncoder:
    """A packed encoder from one of padded texts; one call per text, without padding. own_shapes: `LayerFactory`'s."""

    def run(token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        encoded = []
        slots = layout.slots.of_texts if layout.slots else [None] * len(layout.lengths)
        for text, slot in zip(token_ids.split_with_sizes(list(layout.lengths)), slots, strict=True):
            with on_slot(slot), own_shapes():
                encoded.append(encode(text[None], torch.ones_like(text)[None])[0])
        return torch.cat(encoded)

    return run
