"""Packed encoders: gliner's text encoders over rows without padding. One module per kind of backbone.

    token ids (T,) of all rows, side by side  ──▶  hidden states (T, D)

The same numbers as the backbone's own forward gives for each row alone, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gliner_bento.engine.encoder import bert, deberta, modernbert
from gliner_bento.engine.linear import Linear
from gliner_bento.engine.packing import Layout

PackedEncoder = Callable[[torch.Tensor, Layout], torch.Tensor]
"""(token ids (T,), layout) -> hidden states (T, D)."""

_KINDS = (deberta.PackedDeberta, bert.PackedBert, modernbert.PackedModernBert)


def packed_encoder(transformer: Any, projection: Any | None, *, int8: bool = False) -> PackedEncoder | None:
    """The packed form of gliner's `Transformer` with the projection behind it; None if its backbone has none."""
    encoder = None if transformer.config.fuse_layers else packed_backbone(transformer.model, int8=int8)
    if encoder is None or projection is None:
        return encoder
    return _projected(encoder, Linear.of(projection, int8=int8))


def packed_backbone(model: Any, *, int8: bool = False) -> PackedEncoder | None:
    """The packed form of transformers' model; None if it has none."""
    return next((kind(model, int8=int8) for kind in _KINDS if kind.can_be(model)), None)


def _projected(encoder: PackedEncoder, projection: Linear) -> PackedEncoder:
    return lambda token_ids, layout: projection(encoder(token_ids, layout))
