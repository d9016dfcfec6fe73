"""The fingerprint of a model: the same for the same weights, in any file, dtype, device and machine."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

SAMPLED_VALUES = 2**15
_HEX_DIGITS = 16


def fingerprint_of(model: nn.Module) -> str:
    """16 hexadecimal digits, from each weight's name and shape and the signs of up to `SAMPLED_VALUES` of its values.

    No conversion between floating-point types changes signs: a float32 file loaded in bfloat16 or float16 has the
    fingerprint that it has in float32. Even a short training changes some signs. The sample is spread evenly over each
    weight, so that the cost depends on the number of weights, not on their size.

    Tied weights count under each of their names, so that it does not matter whether a file holds them once or twice.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters(remove_duplicate=False), key=lambda named: named[0]):
        digest.update(f"{name} {list(weight.shape)}\n".encode())
        digest.update(_sampled_signs(weight.detach().flatten()).cpu().numpy().tobytes())
    return digest.hexdigest()[:_HEX_DIGITS]


def _sampled_signs(values: torch.Tensor) -> torch.Tensor:
    """(at most SAMPLED_VALUES) booleans: True for a negative value."""
    step = (values.numel() + SAMPLED_VALUES - 1) // SAMPLED_VALUES
    return torch.signbit(values[:: step | 1])  # made odd, because an even step would visit few columns of a matrix
