"""The settings that the gateway uses, under the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import SecretStr

from gliner_bento.tasks.base import Limits

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class GatewayOptions(Limits):
    """docs/settings.md describes each setting. formats: settings of wire formats, by name."""

    allow_list: str | None
    deny_list: str | None
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
    compat: tuple[str, ...]
    formats: Mapping[str, Any]
    fastino_labels: tuple[str, ...]
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

    def of_format(self, options: type[T]) -> T:
        """The settings that one wire format uses: the fields of its dataclass `options`."""
        return options(**{field.name: self.formats[field.name] for field in fields(options)})

    def with_own(self, own: Mapping[str, Any]) -> GatewayOptions:
        """The options with a model's own settings, of which those of other packages are ignored."""
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
        changes: dict[str, Any] = {field.name: values[field.name] for field in fields(self) if field.name in values}
        changes["formats"] = {name: values.get(name, value) for name, value in self.formats.items()}
        return replace(self, **changes)
