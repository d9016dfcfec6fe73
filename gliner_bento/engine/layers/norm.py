"""LayerNorm over packed rows."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F


class Norm:
    """An `nn.LayerNorm` without the overhead of a module call."""

    def __init__(self, module: Any) -> None:
        self._shape = tuple(module.normalized_shape)
        self._weight, self._eps = module.weight.detach(), module.eps
        self._bias = None if module.bias is None else module.bias.detach()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize over the last axis."""
        return F.layer_norm(x, self._shape, self._weight, self._bias, self._eps)
