"""gliner's text encoder for packed texts, as a packed encoder or through transformers, and the pooling of words."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from gliner_bento.engine.encoders.inputs import Inputs
from gliner_bento.engine.encoders.packed import TextEncoder, packed_encoder
from gliner_bento.engine.layers.factory import LayerFactory, OwnShapes
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.packing import PaddedLayout
from gliner_bento.engine.layers.rows import TextRows

logger = logging.getLogger(__name__)

# Backbones of transformers whose hidden states do not depend on padding after a text. All other backbones run text by
# text, because some of them have convolutions or mix all tokens.
_PADDABLE = {
    *("BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "ElectraModel", "DistilBertModel"),
    *("AlbertModel", "MPNetModel", "DebertaModel", "DebertaV2Model", "FlashDebertaV2Model", "ModernBertModel"),
    *("T5EncoderModel", "LlamaModel"),
}
# Backbones that gliner replaces by bidirectional ones if the package llm2vec is installed.
_CAUSAL = {"LlamaModel", "MistralModel", "GemmaModel", "Qwen2Model"}


class WordPooling:
    """gliner's `subtoken_pooling`: one embedding per word, from its marked tokens (see `Inputs`)."""

    def __init__(self, pooling: str) -> None:
        self._reduce = {"mean": "mean", "max": "amax"}.get(pooling)

    def __call__(self, tokens: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """(T, D) -> (W, D)."""
        if self._reduce is None:  # one token of each word is marked
            return tokens[inputs.word_positions]
        marked = tokens if inputs.marked is None else tokens[inputs.marked]
        words = tokens.new_zeros(inputs.rows.words.size + 1, tokens.shape[1])  # the last row is for unpooled tokens
        index = inputs.word_numbers[:, None].expand_as(marked)
        return words.scatter_reduce(0, index, marked, self._reduce, include_self=False)[:-1]


def text_encoder(token_rep_layer: Any, layers: LayerFactory, *, pack: bool) -> tuple[TextEncoder, str, bool]:
    """gliner's text encoder for packed texts, its name, and whether it never pads texts internally."""
    transformer, projection = token_rep_layer.bert_layer, getattr(token_rep_layer, "projection", None)
    kind = type(transformer.model).__name__
    warn_if_causal(transformer)
    packed = packed_encoder(transformer, projection, layers) if pack else None
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
    # Fusing weighs layers by means over all positions of a text, padding included.
    return type(transformer.model).__name__ in _PADDABLE and not transformer.config.fuse_layers


def warn_if_causal(transformer: Any) -> None:
    """Log a warning if attention is causal although the checkpoint may need both directions."""
    if (kind := type(transformer.model).__name__) in _CAUSAL:
        logger.warning(
            "%s: attention is causal, as in gliner without the package llm2vec; a checkpoint that was trained with "
            "bidirectional attention gets different scores",
            kind,
        )


def padded(encode: Callable[..., torch.Tensor]) -> TextEncoder:
    """A `TextEncoder` that pads texts, with one call per adapter. encode: (ids, mask) -> (texts, longest, D)."""

    def run(token_ids: torch.Tensor, rows: TextRows, layout: PaddedLayout | None) -> torch.Tensor:
        layout = layout or PaddedLayout.of(rows, token_ids.device)
        return layout.packed(by_adapter(encode, token_ids, rows, layout))

    return run


def by_adapter(
    encode: Callable[..., torch.Tensor], token_ids: torch.Tensor, rows: TextRows, layout: PaddedLayout
) -> torch.Tensor:
    """Encode padded texts, one call per adapter. encode: (ids, mask) -> (texts, ...)."""
    ids, mask = layout.padded(token_ids), layout.mask.long()
    encoded, first = [], 0
    for slot, count in rows.by_adapter():
        end = first + count
        # The last call also gets the empty texts that fill up a bucket.
        part = slice(first, end if end < len(rows.counts) else None)
        with on_slot(slot):
            encoded.append(encode(ids[part], mask[part]))
        first = end
    return encoded[0] if len(encoded) == 1 else torch.cat(encoded)


def text_by_text(encode: Callable[..., torch.Tensor], own_shapes: OwnShapes) -> TextEncoder:
    """A `TextEncoder` that calls `encode` once per text, without padding. encode: see `padded`."""

    def run(token_ids: torch.Tensor, rows: TextRows, _: PaddedLayout | None) -> torch.Tensor:
        encoded = []
        for index, text in enumerate(rows.split(token_ids[: rows.size])):
            with on_slot(rows.slot(index)), own_shapes():
                encoded.append(encode(text[None], torch.ones_like(text)[None])[0])
        # In padded batches, token ids continue after the last text.
        encoded.append(encoded[0].new_zeros(len(token_ids) - rows.size, encoded[0].shape[1]))
        return torch.cat(encoded)

    return run
