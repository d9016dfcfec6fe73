"""ModernBERT: rotary positions, pre-norm layers, local attention in most of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from gliner_bento.engine.encoders.post_norm import ACTIVATIONS
from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.norm import Norm
from gliner_bento.engine.layers.packing import Attend, Block, Layout, softmax_attention

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines (T, 1, 1, head size / 2) of each token's rotary angles."""


class PackedModernBert:
    """A packed encoder (see `packed`)."""

    def __init__(self, model: Any, layers: LayerFactory) -> None:
        self._words = model.embeddings.tok_embeddings.weight.detach()
        self._norm, self._final_norm = Norm(model.embeddings.norm), Norm(model.final_norm)
        self._layers = [(layer.attention_type, GatedLayer(layer, layers, model.config)) for layer in model.layers]
        # Recomputed in float32, because the model's frequencies lost precision if it was cast to a smaller dtype.
        rotary = type(model.rotary_emb)(model.config)
        self._frequencies: dict[str, tuple[torch.Tensor, float]] = {
            kind: (
                getattr(rotary, f"{kind}_inv_freq").to(self._words.device),
                getattr(rotary, f"{kind}_attention_scaling"),
            )
            for kind in rotary.rope_type
        }

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether this class can run `model`. Frequencies that depend on a text's length are not supported."""
        return (
            type(model).__name__ == "ModernBertModel"
            and model.config.hidden_activation in ACTIVATIONS
            and not any("dynamic" in kind or kind == "longrope" for kind in model.rotary_emb.rope_type.values())
        )

    def __call__(self, token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        """(T,) -> (T, D)."""
        positions = layout.positions
        rotations = {kind: _rotation(positions, *frequencies) for kind, frequencies in self._frequencies.items()}
        x = self._norm(F.embedding(token_ids, self._words))
        for kind, layer in self._layers:
            x = layer(x, layout, rotations[kind])
        return self._final_norm(x)


class GatedLayer:
    """Attention and a gated feed-forward network, each with a norm before it and a residual after it."""

    def __init__(self, layer: Any, layers: LayerFactory, config: Any) -> None:
        # The first layer's input is already normalized.
        self._norm = None if isinstance(layer.attn_norm, nn.Identity) else Norm(layer.attn_norm)
        self._qkv = layers.encoder_linear(layer.attn.Wqkv)
        self._out = layers.encoder_linear(layer.attn.Wo, residual=True)
        self._heads = config.num_attention_heads
        self._attend: Attend = partial(attend_locally, config.sliding_window if layer.attn.sliding_window else None)
        self._mlp_norm = Norm(layer.mlp_norm)
        expand_and_gate, half = layer.mlp.Wi, layer.mlp.Wi.out_features // 2
        self._expand = layers.encoder_linear(
            WeightSlice(expand_and_gate, outputs=slice(half)), activation=ACTIVATIONS[config.hidden_activation]
        )
        self._gate = layers.encoder_linear(WeightSlice(expand_and_gate, outputs=slice(half, None)))
        self._reduce = layers.encoder_linear(layer.mlp.Wo, residual=True)

    def __call__(self, x: torch.Tensor, layout: Layout, rotation: Rotation) -> torch.Tensor:
        """(T, D) -> (T, D)."""
        normed = x if self._norm is None else self._norm(x)
        slot_rows = layout.slot_rows
        qkv = rotated(self._qkv(normed, slot_rows).view(len(x), 3, self._heads, -1), rotation)
        x = self._out.plus(layout.attend(self._attend, qkv), x, slot_rows)
        normed = self._mlp_norm(x)
        return self._reduce.plus(self._expand(normed, slot_rows) * self._gate(normed, slot_rows), x, slot_rows)


def _rotation(positions: torch.Tensor, frequencies: torch.Tensor, scale: float) -> Rotation:
    angles = (positions[:, None] * frequencies)[:, None, None]
    return angles.cos() * scale, angles.sin() * scale


def rotated(qkv: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate the queries and keys of `qkv` (T, 3, heads, head size) in place, computing in float32; returns `qkv`."""
    cos, sin = rotation
    first, second = qkv[:, :2].float().chunk(2, dim=-1)
    qkv[:, :2] = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return qkv


def attend_locally(reach: int | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: Block) -> torch.Tensor:
    """Softmax attention to tokens at most `reach` positions away (None: to all); see `packing.Attend`."""
    allowed, length = block.allowed, block.length
    if reach is not None and length > reach + 1:
        if reach not in block.cache:
            positions = torch.arange(length, device=q.device)
            near = (positions[:, None] - positions).abs() <= reach
            block.cache[reach] = near if allowed is None else allowed & near
        allowed = block.cache[reach]
    return softmax_attention(q, k, v, allowed)
