"""gliner's two-layer projections, over packed rows."""

from __future__ import annotations

import torch
from torch import nn

from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.rows import SlotRows


class Projection:
    """gliner's `create_projection_layer`: two linear layers with a ReLU between."""

    def __init__(self, projection: nn.Sequential, layers: LayerFactory) -> None:
        first, last = linear_layers(projection)
        self._first = layers.linear(first, activation="relu")
        self._last = layers.linear(last)

    def __call__(self, x: torch.Tensor, slot_rows: SlotRows | None) -> torch.Tensor:
        """(N, in) -> (N, out)."""
        return self._last(self._first(x, slot_rows), slot_rows)


def linear_layers(projection: nn.Sequential) -> tuple[nn.Linear, nn.Linear]:
    """The two linear layers of a projection."""
    first, last = (layer for layer in projection if isinstance(layer, nn.Linear))
    return first, last
