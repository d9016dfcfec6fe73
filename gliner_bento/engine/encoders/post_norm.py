"""The post-norm transformer layer of BERT and DeBERTa, over packed texts."""

from __future__ import annotations

from typing import Any

import torch

from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.linear import Activation, Linear, feed_forward
from gliner_bento.engine.layers.norm import Norm
from gliner_bento.engine.layers.packing import Attend, Layout

ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu", "relu": "relu"}


def has_known_activation(config: Any) -> bool:
    """Whether `PostNormLayer` supports the backbone's activation."""
    return config.hidden_act in ACTIVATIONS


class PostNormLayer:
    """Attention and a feed-forward network, each followed by its residual and LayerNorm.

    layer: the backbone's module, with BERT's attributes `attention.output`, `intermediate` and `output`.
    qkv: projects to queries, keys and values, stacked; each has `heads` heads.
    """

    def __init__(
        self, layer: Any, layers: LayerFactory, qkv: Linear, heads: int, attend: Attend, hidden_act: str
    ) -> None:
        self._qkv = qkv
        self._heads = heads
        self._attend = attend
        self._out = layers.encoder_linear(layer.attention.output.dense, residual=True)
        self._out_norm = Norm(layer.attention.output.LayerNorm)
        self._expand = layers.encoder_linear(layer.intermediate.dense, activation=ACTIVATIONS[hidden_act])
        self._reduce = layers.encoder_linear(layer.output.dense, residual=True)
        self._reduce_norm = Norm(layer.output.LayerNorm)

    def __call__(self, x: torch.Tensor, layout: Layout) -> torch.Tensor:
        """(T, D) -> (T, D)."""
        slot_rows = layout.slot_rows
        contexts = layout.attend(self._attend, self._qkv(x, slot_rows).view(len(x), 3, self._heads, -1))
        x = self._out_norm(self._out.plus(contexts, x, slot_rows))
        return self._reduce_norm(feed_forward(x, self._expand, self._reduce, slot_rows))
