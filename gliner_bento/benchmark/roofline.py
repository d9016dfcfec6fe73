"""What the hardware allows: the encoder's arithmetic per text, against the dense matrix product that was measured.

Counts multiply-adds as two operations, and only what no exact rewrite can leave out: the text's own tokens, without
padding; the relative positions that it reaches; no position projections, which are the same for every text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def encoder_flop(config: Mapping[str, Any], tokens: int) -> float:
    """Floating point operations of one forward of the encoder that `config` (transformers') describes."""
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
    """How many such texts a second the encoder could read at most, doing nothing else."""
    return flop_per_s * len(tokens) / sum(encoder_flop(config, count) for count in tokens)
