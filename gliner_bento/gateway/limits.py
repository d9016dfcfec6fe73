"""The settings of the gateway, under their own names: a view of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from gliner_bento.types import LongText


@dataclass(frozen=True, slots=True)
class Limits:
    """See docs/settings.md for each."""

    default_threshold: float
    default_relation_threshold: float
    max_labels: int
    max_text_chars: int
    max_batch_items: int
    request_timeout_s: float
    enable_lora: bool
    adapter_id_pattern: str
    compat_long_text: LongText
