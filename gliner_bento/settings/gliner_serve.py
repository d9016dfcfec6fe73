"""The options of gliner.serve (0.2.29), in the order of `GLiNERServeConfig`, each with our setting for it. The only
logic is the checks of options without a setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gliner_bento.settings.configuration import SettingsError
from gliner_bento.tasks.base import BASE_ADAPTER_ID

PORT = 8000
"""gliner.serve's port."""

NO_EFFECT = "no effect"
"""The note of an option that has no effect here; its check says why."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option. setting: our setting for it, if there is one. note: what differs here.

    field: name in GLiNERServeConfig. flag: empty if it is made from `field`; None if the option has no flag.
    default: the flag's default. field_default: the field's default, if it differs. variable: environment variable of
        gliner.serve's container.
    parse: converts the flag's value, for an option without a setting. check: returns why a value has no effect here;
        raises ValueError for a value that cannot be served.
    """

    field: str
    default: Any
    setting: str | None
    note: str = ""
    flag: str | None = ""
    variable: str | None = None
    field_default: Any = "as the flag"
    parse: Callable[[str], Any] | None = None
    check: Callable[[Any], str] | None = None

    @property
    def flag_name(self) -> str | None:
        """The flag, with its dashes."""
        if self.flag is None:
            return None
        return self.flag or "--" + self.field.replace("_", "-")


def _gpus(value: float) -> str:
    if not 0 <= value <= 1:
        raise ValueError("a replica uses one GPU; set num_replicas to use several")
    return "a replica uses the GPU of its device, and shares that GPU's memory with the other replicas on it"


def _base_adapter(value: str) -> str:
    if value != BASE_ADAPTER_ID:
        raise ValueError(f"the id of the base model is {BASE_ADAPTER_ID}")
    return "the base model always has this id"


def _always(reason: str) -> Callable[[Any], str]:
    return lambda _: reason


def _names(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]


_DEVICE_NOTE = "default `auto`: CUDA if there is a GPU"
_MEMORY_NOTE = "measured at start, from batches of this server's own shapes"

OPTIONS = (
    Option("model", "required", "model", "has a default, the bundled model", variable="GLINER_MODEL"),
    Option("device", "cuda", "device", _DEVICE_NOTE, variable="GLINER_DEVICE"),
    Option(
        "dtype",
        "bfloat16",
        "dtype",
        "default `auto`: bfloat16 where the hardware computes it, else float32",
        variable="GLINER_DTYPE",
    ),
    Option("quantization", None, "quantization", "CPU only", variable="GLINER_QUANTIZATION"),
    Option(
        "max_model_len",
        2048,
        "max_model_len",
        "default: the checkpoint's; longer texts are split into windows, not truncated",
    ),
    Option("max_span_width", 12, "max_span_width", "default: the checkpoint's"),
    Option("max_labels", -1, "max_labels", "more labels are refused (400) instead of dropped"),
    Option("default_threshold", 0.5, "default_threshold"),
    Option("default_relation_threshold", 0.5, "default_relation_threshold"),
    Option("num_replicas", 1, "num_instances", variable="GLINER_NUM_REPLICAS"),
    Option(
        "num_gpus_per_replica",
        1.0,
        None,
        "at most 1: a replica uses one GPU; no other effect",
        parse=float,
        check=_gpus,
    ),
    Option(
        "num_cpus_per_replica",
        1.0,
        None,
        NO_EFFECT,
        parse=float,
        check=_always("the machine's cores are divided among the replicas"),
    ),
    Option("max_batch_size", 32, "max_batch_size", variable="GLINER_MAX_BATCH_SIZE"),
    Option(
        "batch_wait_timeout_ms",
        10.0,
        "batch_wait_timeout_ms",
        "default 0: requests that arrive during a batch make the next one",
        variable="GLINER_BATCH_WAIT_MS",
        field_default=5.0,
    ),
    Option("request_timeout_s", 30.0, "request_timeout_s"),
    Option(
        "max_ongoing_requests",
        256,
        None,
        NO_EFFECT,
        parse=int,
        check=_always("all requests that wait are in one queue: queue_capacity"),
    ),
    Option("queue_capacity", 4096, "queue_capacity", "more are refused with 429 instead of 503"),
    Option("route_prefix", "/gliner", "route_prefix", variable="GLINER_ROUTE_PREFIX"),
    Option("tokenizer_threads", 4, "tokenizer_threads"),
    Option("decoding_threads", 4, "decoding_threads"),
    Option(
        "enable_compilation",
        False,
        "enable_compilation",
        "default off: on a CPU it needs a C++ compiler and seldom helps",
        flag="--no-compile",
        variable="GLINER_DISABLE_COMPILE",
        field_default=True,
    ),
    Option("enable_sequence_packing", False, "enable_sequence_packing", "default on", variable="GLINER_ENABLE_PACKING"),
    Option("enable_flashdeberta", False, "enable_flashdeberta", variable="GLINER_ENABLE_FLASHDEBERTA"),
    Option("precompiled_batch_sizes", "1,2,4,8,16,32", "precompiled_batch_sizes", field_default=[1, 2, 4, 8, 16, 32]),
    Option(
        "target_memory_fraction",
        0.9,
        "target_memory_fraction",
        "of the memory that is free after loading",
        variable="GLINER_MEMORY_FRACTION",
        field_default=0.8,
    ),
    Option("memory_overhead_factor", 1.3, "memory_overhead_factor"),
    Option("calibration_min_seq_len", 64, None, NO_EFFECT, flag=None, check=_always(_MEMORY_NOTE)),
    Option("calibration_probe_batch_size", 2, None, NO_EFFECT, flag=None, check=_always(_MEMORY_NOTE)),
    Option("warmup_iterations", 3, "warmup_iterations"),
    Option("http_port", PORT, None, "the flag's default is 3000; `python -m gliner_bento.serve`: 8000", flag="--port"),
    Option("ray_address", None, None, "needs `--backend ray`; sets RAY_ADDRESS", parse=str),
    Option("enable_polylora", False, "enable_lora", "every layer may be adapted, in every kind of model"),
    Option(
        "polylora_adapter_weight_modules",
        None,
        None,
        NO_EFFECT,
        parse=_names,
        check=_always("each adapter's own target_modules are used"),
    ),
    Option("polylora_max_rank", 16, "max_lora_rank"),
    Option("polylora_max_gpu_adapters", 8, "max_device_adapters", "on a CPU too"),
    Option("polylora_max_cpu_adapters", 128, "max_cpu_adapters"),
    Option("polylora_disk_cache_dir", None, "disk_cache_dir", "has a default; uploaded adapters, in PEFT's format"),
    Option("polylora_max_disk_adapters", None, "max_disk_adapters"),
    Option(
        "polylora_base_adapter_id",
        BASE_ADAPTER_ID,
        None,
        f"only `{BASE_ADAPTER_ID}`",
        parse=str,
        check=_base_adapter,
    ),
    Option(
        "polylora_use_triton_kernels",
        True,
        None,
        NO_EFFECT,
        check=_always("adapters are applied by this server's own code"),
    ),
    Option("polylora_adapter_id_pattern", r"^[A-Za-z0-9_.-]{1,128}$", "adapter_id_pattern"),
)

ALIASES = {
    name: option.setting
    for option in OPTIONS
    for name in (option.field, (option.variable or "").lower().removeprefix("gliner_"))
    if option.setting and name not in ("", option.setting, "disable_compile")  # disable_compile means the opposite
}
"""Our settings, by their other names in gliner.serve. Each name is a flag, a variable and a key of the file."""

BY_FIELD = {option.field: option for option in OPTIONS}
CHECKED = [option for option in OPTIONS if option.check]
"""Options whose values are checked, and have no other effect."""


def without_effect(given: Mapping[str, Any]) -> list[str]:
    """One line per given option that has no effect here, with the reason. Raises `SettingsError` for a value that
    cannot be served."""
    lines = []
    for name, value in given.items():
        option = BY_FIELD[name]
        if option.check:
            try:
                lines.append(f"{name} has no effect: {option.check(value)}")
            except ValueError as error:
                raise SettingsError(f"{name}: {error} (got {value!r})") from None
    return lines
