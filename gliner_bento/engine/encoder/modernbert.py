"""ModernBERT: rotary positions, layers that normalize first, and a window of attention in most of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from gliner_bento.engine.encoder.layer import ACTIVATIONS, Norm
from gliner_bento.engine.linear import Linear
from gliner_bento.engine.packing import Attend, Layout

Turn = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines (T, 1, 1, width / 2): how far each token's queries and keys are turned."""


class PackedModernBert:
    """A packed encoder (see `encoder`)."""

    def __init__(self, model: Any, *, int8: bool = False) -> None:
        self._words = model.embeddings.tok_embeddings.weight.detach()
        self._norm, self._final_norm = Norm(model.embeddings.norm), Norm(model.final_norm)
        self._layers = [(layer.attention_type, GatedLayer(layer, model.config, int8)) for layer in model.layers]
        # Made anew: the model's own frequencies have lost digits where it was cast to a smaller type.
        rotary = type(model.rotary_emb)(model.config)
        self._frequencies: dict[str, tuple[torch.Tensor, float]] = {
            kind: (
                getattr(rotary, f"{kind}_inv_freq").to(self._words.device),
                getattr(rotary, f"{kind}_attention_scaling"),
            )
            for kind in rotary.rope_type
        }

    @staticmethod
    def can_be(model: Any) -> bool:
        """Whether this is the packed form of `model`. Frequencies that change with a row's length are not covered."""
        return (
            type(model).__name__ == "ModernBertModel"
            and model.config.hidden_activation in ACTIVATIONS
            and not any("dynamic" in kind or kind == "longrope" for kind in model.rotary_emb.rope_type.values())
        )

    def __call__(self, token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        """(T,) -> (T, D)."""
        positions = layout.positions(token_ids.device)
        turns = {kind: _turn(positions, *frequencies) for kind, frequencies in self._frequencies.items()}
        x = self._norm(F.embedding(token_ids, self._words))
        for kind, layer in self._layers:
            x = layer(x, layout, turns[kind])
        return self._final_norm(x)


class GatedLayer:
    """Attention and a gated feed-forward network, each of the normalized input and added to it."""

    def __init__(self, layer: Any, config: Any, int8: bool) -> None:
        # The first layer's input is normalized already.
        self._norm = None if isinstance(layer.attn_norm, nn.Identity) else Norm(layer.attn_norm)
        self._qkv, self._out = Linear.of(layer.attn.Wqkv, int8=int8), Linear.of(layer.attn.Wo, int8=int8)
        self._heads = config.num_attention_heads
        self._attend: Attend = partial(attend_near, config.sliding_window if layer.attn.sliding_window else None)
        self._mlp_norm = Norm(layer.mlp_norm)
        weight, bias = layer.mlp.Wi.weight, layer.mlp.Wi.bias
        (value, gate), (value_bias, gate_bias) = weight.chunk(2), (None, None) if bias is None else bias.chunk(2)
        self._expand = Linear(value, value_bias, activation=ACTIVATIONS[config.hidden_activation], int8=int8)
        self._gate = Linear(gate, gate_bias, int8=int8)
        self._reduce = Linear.of(layer.mlp.Wo, int8=int8)

    def __call__(self, x: torch.Tensor, layout: Layout, turn: Turn) -> torch.Tensor:
        """(T, D) -> (T, D)."""
        normed = x if self._norm is None else self._norm(x)
        qkv = turned(self._qkv(normed).view(len(x), 3, self._heads, -1), turn)
        x = self._out.plus(layout.attend(self._attend, qkv), x)
        normed = self._mlp_norm(x)
        return self._reduce.plus(self._expand(normed) * self._gate(normed), x)


def _turn(positions: torch.Tensor, frequencies: torch.Tensor, scale: float) -> Turn:
    angles = (positions[:, None] * frequencies)[:, None, None]
    return angles.cos() * scale, angles.sin() * scale


def turned(qkv: torch.Tensor, turn: Turn) -> torch.Tensor:
    """`qkv` (T, 3, heads, width), its queries and keys turned in place, in float32."""
    cos, sin = turn
    first, second = qkv[:, :2].float().chunk(2, dim=-1)
    qkv[:, :2] = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return qkv


def attend_near(
    reach: int | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Softmax attention to tokens at most `reach` away (None: to all); see `packing.Attend`."""
    allowed = None if mask is None else mask[:, None, None, :]
    length = q.shape[1]
    if reach is not None and length > reach + 1:
        places = torch.arange(length, device=q.device)
        near = (places[:, None] - places).abs() <= reach
        allowed = near if allowed is None else allowed & near
    contexts = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=allowed
    )
    return contexts.transpose(1, 2)
