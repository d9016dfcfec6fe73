"""What an operator allows: the settings that the gateway goes by, under their own names."""

from __future__ import annotations

from dataclasses import dataclass

from gliner_bento.types import LongText


@dataclass(frozen=True, slots=True)
class Limits:
    """What an operator allows; the settings of the same names."""

    default_threshold: float
    default_relation_threshold: float
    max_labels: int
    max_text_chars: int
    max_batch_items: int
    request_timeout_s: float
    enable_lora: bool
    adapter_id_pattern: str
    compat_long_text: LongText
