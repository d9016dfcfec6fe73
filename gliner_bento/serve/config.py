"""GLiNERServeConfig: gliner.serve's fields, and what they are here."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from gliner_bento.serve.names import BY_FIELD, PORT, without_effect
from gliner_bento.settings import Settings
from gliner_bento.types import BASE_ADAPTER_ID

logger = logging.getLogger(__name__)

T = TypeVar("T")


def _default_of(setting: str) -> Any:
    return Settings.model_fields[setting].default


@dataclass
class GLiNERServeConfig:
    """The fields of gliner.serve's class. Defaults are this server's settings (docs/migrate/gliner-serve.md compares);
    a field that keeps its default leaves the setting to the environment and configuration.yaml."""

    model: str
    device: str = _default_of("device")
    dtype: str = _default_of("dtype")
    quantization: str | None = None
    max_model_len: int = _default_of("max_model_len")
    max_span_width: int = _default_of("max_span_width")
    max_labels: int = _default_of("max_labels")
    default_threshold: float = _default_of("default_threshold")
    default_relation_threshold: float = _default_of("default_relation_threshold")
    num_replicas: int = _default_of("num_instances")
    num_gpus_per_replica: float = 1.0
    num_cpus_per_replica: float = 1.0
    max_batch_size: int = _default_of("max_batch_size")
    batch_wait_timeout_ms: float = _default_of("batch_wait_timeout_ms")
    request_timeout_s: float = _default_of("request_timeout_s")
    max_ongoing_requests: int = 256
    queue_capacity: int = _default_of("queue_capacity")
    route_prefix: str = _default_of("route_prefix")
    tokenizer_threads: int = _default_of("tokenizer_threads")
    decoding_threads: int = _default_of("decoding_threads")
    enable_compilation: bool = _default_of("enable_compilation")
    enable_sequence_packing: bool = _default_of("enable_sequence_packing")
    enable_flashdeberta: bool = _default_of("enable_flashdeberta")
    precompiled_batch_sizes: list[int] = field(default_factory=lambda: list(_default_of("precompiled_batch_sizes")))
    target_memory_fraction: float = _default_of("target_memory_fraction")
    memory_overhead_factor: float = _default_of("memory_overhead_factor")
    calibration_min_seq_len: int = 64
    calibration_probe_batch_size: int = 2
    warmup_iterations: int = _default_of("warmup_iterations")
    http_port: int = PORT
    ray_address: str | None = None
    enable_polylora: bool = _default_of("enable_lora")
    polylora_adapter_weight_modules: list[str] | None = None
    polylora_max_rank: int = _default_of("max_lora_rank")
    polylora_max_gpu_adapters: int = _default_of("max_device_adapters")
    polylora_max_cpu_adapters: int | None = _default_of("max_cpu_adapters")
    polylora_disk_cache_dir: str | None = None
    polylora_max_disk_adapters: int | None = None
    polylora_base_adapter_id: str = BASE_ADAPTER_ID
    polylora_use_triton_kernels: bool = True
    polylora_adapter_id_pattern: str = _default_of("adapter_id_pattern")

    def __post_init__(self) -> None:
        """As in gliner.serve, the largest batch is among those that are warmed up."""
        self.precompiled_batch_sizes = sorted({*self.precompiled_batch_sizes, self.max_batch_size})

    def given(self) -> dict[str, Any]:
        """The fields that differ from the defaults."""
        default = type(self)(self.model)
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name == "model" or (value is not None and value != getattr(default, name))
        }

    def settings(self) -> dict[str, str]:
        """The settings of the fields that differ from the defaults. Raises `SettingsError` for a field that cannot be
        served; one that does nothing is logged."""
        given = self.given()
        for line in without_effect(given):
            logger.warning("%s", line)
        found = {name: BY_FIELD[name].setting for name in given}
        return {setting: _text_of(given[name]) for name, setting in found.items() if setting}


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
