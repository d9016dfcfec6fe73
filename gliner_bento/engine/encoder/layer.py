"""A transformer layer that normalizes after each half (BERT's and DeBERTa's), over packed rows."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from gliner_bento.engine.adaptable import Layers
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

    def __init__(self, layer: Any, layers: Layers, qkv: Linear, heads: int, attend: Attend, hidden_act: str) -> None:
        self._qkv = qkv
        self._heads = heads
        self._attend = attend
        self._out = layers.encoder(layer.attention.output.dense)
        self._out_norm = Norm(layer.attention.output.LayerNorm)
        self._expand = layers.encoder(layer.intermediate.dense, activation=ACTIVATIONS[hidden_act])
        self._reduce = layers.encoder(layer.output.dense)
        self._reduce_norm = Norm(layer.output.LayerNorm)

    def __call__(self, x: torch.Tensor, layout: Layout) -> torch.Tensor:
        """(T, D) -> (T, D)."""
        owners = layout.owners
        contexts = layout.attend(self._attend, self._qkv(x, owners).view(len(x), 3, self._heads, -1))
        x = self._out_norm(self._out.plus(contexts, x, owners))
        return self._reduce_norm(self._reduce.plus(self._expand(x, owners), x, owners))


class Norm:
    """LayerNorm without a module's call around it."""

    def __init__(self, module: Any) -> None:
        self._shape = tuple(module.normalized_shape)
        self._weight, self._eps = module.weight.detach(), module.eps
        self._bias = None if module.bias is None else module.bias.detach()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Over the last axis."""
        return F.layer_norm(x, self._shape, self._weight, self._bias, self._eps)
