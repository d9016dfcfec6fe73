"""The roofline: the encoder's floating point operations per text over the measured speed of dense matrix products.

A multiply-add counts as two operations. Counted is only what no exact rewrite can avoid: the tokens of the text without
padding, and the relative positions within its reach; not the position projections, which are the same for every text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def encoder_flop(config: Mapping[str, Any], tokens: int) -> float:
    """Floating point operations of one forward of the encoder with this transformers config."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    projections = 4 * 2 * tokens * width * width
    feed_forward = 2 * 2 * tokens * width * inner
    attention = 2 * 2 * tokens * tokens * width
    relative = 0
    if config.get("relative_attention"):
        reach = min(2 * tokens, 2 * config.get("position_buckets", tokens))
        relative = 2 * tokens * reach * width * len(config.get("pos_att_type") or ())
    return float(config["num_hidden_layers"] * (projections + feed_forward + attention + relative))


def texts_per_s(config: Mapping[str, Any], tokens: Sequence[int], flop_per_s: float) -> float:
    """Upper bound of texts/s for texts with these numbers of tokens, if only the encoder ran."""
    return flop_per_s * len(tokens) / sum(encoder_flop(config, count) for count in tokens)
