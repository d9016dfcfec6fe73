"""A transformer layer that normalizes after each half (BERT's and DeBERTa's), over packed rows."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from gliner_bento.engine.linear import Activation, Linear
from gliner_bento.engine.packing import Attend, Layout

ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu", "relu": "relu"}


def has_known_activation(config: Any) -> bool:
    """Whether `PostNormLayer` computes the backbone's activation."""
    return config.hidden_act in ACTIVATIONS


class PostNormLayer:
    """Attention and a feed-forward network, each followed by its residual and LayerNorm.

    layer: the backbone's module, with `attention.output`, `intermediate` and `output` as BERT names them.
    qkv: queries, keys and values side by side, each of `heads` heads.
    """

    def __init__(self, layer: Any, qkv: Linear, heads: int, attend: Attend, hidden_act: str, int8: bool) -> None:
        self._qkv = qkv
        self._heads = heads
        self._attend = attend
        self._out = Linear.of(layer.attention.output.dense, int8=int8)
        self._out_norm = Norm(layer.attention.output.LayerNorm)
        self._expand = Linear.of(layer.intermediate.dense, activation=ACTIVATIONS[hidden_act], int8=int8)
        self._reduce = Linear.of(layer.output.dense, int8=int8)
        self._reduce_norm = Norm(layer.output.LayerNorm)

    def __call__(self, x: torch.Tensor, layout: Layout) -> torch.Tensor:
        """(T, D) -> (T, D)."""
        contexts = layout.attend(self._attend, self._qkv(x).view(len(x), 3, self._heads, -1))
        x = self._out_norm(self._out.plus(contexts, x))
        return self._reduce_norm(self._reduce.plus(self._expand(x), x))


class Norm:
    """LayerNorm without a module's call around it."""

    def __init__(self, module: Any) -> None:
        self._shape = tuple(module.normalized_shape)
        self._weight, self._eps = module.weight.detach(), module.eps
        self._bias = None if module.bias is None else module.bias.detach()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Over the last axis."""
        return F.layer_norm(x, self._shape, self._weight, self._bias, self._eps)
