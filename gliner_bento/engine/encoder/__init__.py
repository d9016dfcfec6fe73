"""Packed encoders: gliner's text encoders over rows without padding. One module per kind of backbone.

    token ids (T,) of all rows, side by side  ──▶  hidden states (T, D)

The same numbers as the backbone's own forward gives for each row alone, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gliner_bento.engine.adaptable import Layers
from gliner_bento.engine.encoder.bert import PackedBert
from gliner_bento.engine.encoder.deberta import PackedDeberta
from gliner_bento.engine.encoder.modernbert import PackedModernBert
from gliner_bento.engine.kernels import EAGER, Kernels
from gliner_bento.engine.linear import Linear
from gliner_bento.engine.packing import Layout

PackedEncoder = Callable[[torch.Tensor, Layout], torch.Tensor]
"""(token ids (T,), layout) -> hidden states (T, D)."""

# What rows are rounded up to on a CPU: attention in bfloat16 keeps a megabyte for each other length that it meets.
_ROW_MULTIPLE = {torch.bfloat16: 8}


def packed_encoder(
    transformer: Any, projection: Any | None, layers: Layers, kernels: Kernels = EAGER
) -> PackedEncoder | None:
    """The packed form of gliner's `Transformer` with the projection behind it; None if its backbone has none."""
    if transformer.config.fuse_layers:
        return None
    encoder = packed_backbone(transformer.model, layers, kernels)
    if encoder is not None and projection is not None:
        encoder = _projected(encoder, layers.encoder(projection))
    weight = transformer.model.get_input_embeddings().weight
    if encoder is not None and weight.device.type == "cpu":
        encoder = rounded(encoder, _ROW_MULTIPLE.get(weight.dtype, 1))
    return encoder


def packed_backbone(model: Any, layers: Layers, kernels: Kernels = EAGER) -> PackedEncoder | None:
    """The packed form of transformers' model; None if it has none."""
    if PackedDeberta.can_be(model):
        return PackedDeberta(model, layers, kernels)
    return next((kind(model, layers) for kind in (PackedBert, PackedModernBert) if kind.can_be(model)), None)


def rounded(encoder: PackedEncoder, row_multiple: int) -> PackedEncoder:
    """On a CPU: the same encoder, which meets few shapes (see `Layout.rounded`)."""

    def run(token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        around = Layout.rounded(layout.lengths, row_multiple, layout.slots)
        assert around.tokens is not None
        spread = token_ids.new_zeros(around.size)
        spread[around.tokens] = token_ids
        return encoder(spread, around)[around.tokens]

    return run


def _projected(encoder: PackedEncoder, projection: Linear) -> PackedEncoder:
    return lambda token_ids, layout: projection(encoder(token_ids, layout), layout.owners)
