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
from gliner_bento.engine.layers.linear import Linear
from gliner_bento.engine.layers.packing import BlockLayout, Layout, PaddedLayout
from gliner_bento.engine.layers.rows import TextRows

TextEncoder = Callable[[torch.Tensor, TextRows, "PaddedLayout | None"], torch.Tensor]
"""(token ids (T,), number of tokens of each text, layout of a padded batch or None) -> hidden states (T, D)."""
PackedBackbone = Callable[[torch.Tensor, Layout], torch.Tensor]
"""(token ids (T,), layout) -> hidden states (T, D)."""

# On a CPU, lengths are rounded up to multiples of this, because bfloat16 attention caches a megabyte per length.
_LENGTH_MULTIPLE = {torch.bfloat16: 8}


def packed_encoder(transformer: Any, projection: Any | None, layers: LayerFactory) -> TextEncoder | None:
    """The packed form of gliner's `Transformer` with `projection`; None if the backbone has no packed form."""
    return None if transformer.config.fuse_layers else packed_model(transformer.model, layers, projection)


def packed_model(model: Any, layers: LayerFactory, projection: Any | None = None) -> TextEncoder | None:
    """The packed form of a transformers model, followed by `projection`; None if the model has no packed form."""
    encoder = packed_backbone(model, layers)
    if encoder is None:
        return None
    if projection is not None:
        encoder = _projected(encoder, layers.encoder_linear(projection))
    dtype = model.get_input_embeddings().weight.dtype
    return in_padding(encoder) if layers.padded else in_blocks(encoder, _LENGTH_MULTIPLE.get(dtype, 1))


def packed_backbone(model: Any, layers: LayerFactory) -> PackedBackbone | None:
    """The packed form of a transformers model; None if there is none."""
    classes = (PackedDeberta, PackedBert, PackedModernBert)
    return next((packed(model, layers) for packed in classes if packed.supports(model)), None)


def in_blocks(encoder: PackedBackbone, length_multiple: int) -> TextEncoder:
    """Run the backbone on a CPU, in bucketed shapes (see `BlockLayout`)."""

    def run(token_ids: torch.Tensor, rows: TextRows, _: PaddedLayout | None) -> torch.Tensor:
        layout = BlockLayout.of(rows, length_multiple)
        bucketed_ids = token_ids.new_zeros(layout.size)
        bucketed_ids[layout.is_token] = token_ids
        return encoder(bucketed_ids, layout)[layout.is_token]

    return run


def in_padding(encoder: PackedBackbone) -> TextEncoder:
    """Run the backbone with padded attention."""

    def run(token_ids: torch.Tensor, rows: TextRows, layout: PaddedLayout | None) -> torch.Tensor:
        return encoder(token_ids, layout or PaddedLayout.of(rows, token_ids.device))

    return run


def _projected(encoder: PackedBackbone, projection: Linear) -> PackedBackbone:
    return lambda token_ids, layout: projection(encoder(token_ids, layout), layout.slot_rows)
