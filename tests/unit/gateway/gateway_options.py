"""Options of a gateway, small enough for tests to exceed them."""

from __future__ import annotations

from gliner_bento.gateway.options import GatewayOptions

OPTIONS = GatewayOptions(
    default_threshold=0.4,
    default_relation_threshold=0.6,
    max_labels=5,
    max_text_chars=100,
    max_batch_items=3,
    max_entities=1000,
    max_relations=200,
    max_body_bytes=1000,
    max_adapter_bytes=3 * 2**20,
    request_timeout_s=30.0,
    max_queue_wait_s=1.5,
    max_queued_tokens=0,
    max_tenant_concurrency=0,
    max_tenant_requests_per_s=0.0,
    max_batch_size=32,
    enable_lora=True,
    adapter_id_pattern=r"[a-z0-9_-]{1,9}",
    compat_long_text="window",
    compat=("all",),
    nemo_prefix="/nemo",
    nemo_labels=("first_name", "email"),
    fastino_labels=("person", "place"),
    presidio_labels=(),
    presidio_entities=("PERSON", "EMAIL_ADDRESS"),
    presidio_min_score=0.3,
    route_prefix="/gliner",
    tenant_header=None,
    api_keys=None,
    allow_anonymous=False,
    cors_origins=(),
    enable_playground=True,
    enable_mcp=False,
    max_connections=1000,
    header_timeout_s=10.0,
    body_timeout_s=30.0,
    keep_alive_timeout_s=5,
)
