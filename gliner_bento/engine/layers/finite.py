"""Detects numbers that are not finite, before a later layer hides them."""

from __future__ import annotations

import torch

from gliner_bento.errors import ScoresNotFinite


def check_finite(x: torch.Tensor) -> None:
    """Raises `ScoresNotFinite` if a number in `x` is NaN or infinite. One pass over `x`."""
    if not bool(x.sum(dtype=torch.float32).isfinite()):
        raise ScoresNotFinite
