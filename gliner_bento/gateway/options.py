"""The settings that the gateway uses, under the same names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from gliner_bento.tasks.base import Limits
from gliner_bento.tasks.extraction import LongText


@dataclass(frozen=True, slots=True)
class GatewayOptions(Limits):
    """docs/settings.md describes each setting."""

    redaction_key: SecretStr | None
    max_mapping_bytes: int
    mapping_lifetime_s: int
    redis_url: SecretStr | None
    max_body_bytes: int
    max_adapter_bytes: int
    max_model_bytes: int
    request_timeout_s: float
    max_queue_wait_s: float
    queue_wait_interval_s: float
    max_queued_tokens: int
    max_tenant_concurrency: int
    max_tenant_requests_per_s: float
    max_batch_size: int
    num_instances: int
    enable_lora: bool
    adapter_id_pattern: str
    compat_long_text: LongText
    compat: tuple[str, ...]
    nemo_prefix: str
    nemo_labels: tuple[str, ...]
    nemo_jailbreak_labels: tuple[str, ...]
    fastino_labels: tuple[str, ...]
    huggingface_labels: tuple[str, ...]
    tei_labels: tuple[str, ...]
    route_prefix: str
    tenant_header: str | None
    forwarded_allow_ips: tuple[str, ...]
    api_keys: str | None
    allow_anonymous: bool
    cors_origins: tuple[str, ...]
    enable_playground: bool
    enable_mcp: bool
    max_connections: int
    header_timeout_s: float
    body_timeout_s: float
    keep_alive_timeout_s: int
    handler: Path | None

    @property
    def body_limits(self) -> dict[str, int]:
        """Maximum sizes of bodies in bytes, by setting."""
        return {
            "max_body_bytes": self.max_body_bytes,
            "max_adapter_bytes": self.max_adapter_bytes,
            "max_model_bytes": self.max_model_bytes,
        }
