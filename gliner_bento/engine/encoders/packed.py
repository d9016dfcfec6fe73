"""Packed encoders: transformers' backbones over packed texts, without padding.

    token ids (T,) of all texts  ──▶  hidden states (T, D)

Hidden states equal those of the backbone's own forward pass on each text, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gliner_bento.engine.encoders.bert import PackedBert
from gliner_bento.engine.encoders.deberta import PackedDeberta
from gliner_bento.engine.encoders.modernbert import PackedModernBert
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.kernels import EAGER, Kernels
from gliner_bento.engine.layers.linear import Linear
from gliner_bento.engine.layers.packing import BlockLayout, Layout

PackedEncoder = Callable[[torch.Tensor, Layout], torch.Tensor]
"""(token ids (T,), layout) -> hidden states (T, D)."""

# On a CPU, lengths are rounded up to multiples of this: bfloat16 attention caches a megabyte for every length it sees.
_LENGTH_MULTIPLE = {torch.bfloat16: 8}


def packed_encoder(
    transformer: Any, projection: Any | None, layers: LayerFactory, kernels: Kernels = EAGER
) -> PackedEncoder | None:
    """The packed form of gliner's `Transformer` with its projection; None if its backbone has none."""
    if transformer.config.fuse_layers:
        return None
    encoder = packed_backbone(transformer.model, layers, kernels)
    if encoder is not None and projection is not None:
        encoder = _projected(encoder, layers.encoder_linear(projection))
    weight = transformer.model.get_input_embeddings().weight
    if encoder is not None and not layers.padded:
        encoder = bucketed(encoder, _LENGTH_MULTIPLE.get(weight.dtype, 1))
    return encoder


def packed_backbone(model: Any, layers: LayerFactory, kernels: Kernels = EAGER) -> PackedEncoder | None:
    """The packed form of transformers' model; None if it has none."""
    if PackedDeberta.can_be(model):
        return PackedDeberta(model, layers, kernels)
    return next((kind(model, layers) for kind in (PackedBert, PackedModernBert) if kind.can_be(model)), None)


def bucketed(encoder: PackedEncoder, length_multiple: int) -> PackedEncoder:
    """The same encoder, in bucketed shapes (see `BlockLayout.bucketed`)."""

    def run(token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        filled = BlockLayout.bucketed(layout.lengths, length_multiple, layout.slots)
        assert filled.tokens is not None
        spread = token_ids.new_zeros(filled.size)
        spread[filled.tokens] = token_ids
        return encoder(spread, filled)[filled.tokens]

    return run


def _projected(encoder: PackedEncoder, projection: Linear) -> PackedEncoder:
    return lambda token_ids, layout: projection(encoder(token_ids, layout), layout.slot_rows)
