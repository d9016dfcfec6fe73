"""Options of a gateway: the settings' defaults, but small enough for tests to exceed them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import SecretStr
from views import view

from gliner_bento.gateway.options import GatewayOptions

OPTIONS = view(
    GatewayOptions,
    default_threshold=0.4,
    default_relation_threshold=0.6,
    max_labels=5,
    max_text_chars=100,
    max_batch_items=3,
    max_entities=1000,
    max_relations=200,
    phone_regions=("US", "GB", "DE"),
    presidio_entities=("PERSON", "EMAIL_ADDRESS"),
    redaction_key=SecretStr("a-key-of-the-tests-with-40-characters-xx"),
    max_mapping_bytes=5000,
    mapping_lifetime_s=3600,
    max_body_bytes=1000,
    max_adapter_bytes=3 * 2**20,
    max_queue_wait_s=0.0,
    queue_wait_interval_s=0.0,
    max_queued_tokens=0,
    enable_lora=True,
    adapter_id_pattern=r"[a-z0-9_-]{1,9}",
    nemo_labels=("first_name", "email"),
    fastino_labels=("person", "place"),
    huggingface_labels=("person", "city"),
    max_connections=1000,
)


def changed(options: GatewayOptions = OPTIONS, **changes: Any) -> GatewayOptions:
    """`options` but for `changes`, also to settings of wire formats."""
    of_formats = {name: changes.pop(name) for name in options.formats if name in changes}
    return replace(options, formats={**options.formats, **of_formats}, **changes)
