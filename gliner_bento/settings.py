"""Every setting, declared once: name, default, bounds and one line of help. Knows nothing of who uses them.

A setting has one name: `max_batch_size` is the flag `--max-batch-size`, the environment name `GLINER_MAX_BATCH_SIZE`
and the key `max_batch_size` under `gliner:` in configuration.yaml; the first of the three that is given wins. The
file's other section, `services:`, holds BentoML's own keys for each service. What gliner.serve calls otherwise may be
called so here too (`ALIASES`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from gliner_bento.configuration import (
    PROJECT_ROOT,
    Configuration,
    SettingsError,
    read_configuration,
    refuse_unknown,
    under_one_name,
)
from gliner_bento.setting_types import (
    AbsolutePath,
    BatchSizes,
    Count,
    CountOrAuto,
    Dtype,
    Model,
    Probability,
    Threads,
    ThreadsOrAuto,
    existing_folder,
    regular_expression,
)

__all__ = ["PROJECT_ROOT", "Settings", "SettingsError", "load_or_exit"]

ENV_PREFIX = "GLINER_"

ALIASES = {
    "enable_polylora": "enable_lora",
    "polylora_max_rank": "max_lora_rank",
    "polylora_max_gpu_adapters": "max_device_adapters",
    "polylora_max_cpu_adapters": "max_cpu_adapters",
    "polylora_disk_cache_dir": "disk_cache_dir",
    "polylora_max_disk_adapters": "max_disk_adapters",
    "polylora_adapter_id_pattern": "adapter_id_pattern",
}
"""gliner.serve's names for settings that have another name here: flags, environment names and keys of the file, too."""

# After so many requests or seconds BentoML's client between services closes its session, with the requests that are
# under way in it. With these it never does. They are keys of the service that is called.
_NEVER_RECONNECT = {"max_requests": 1_000_000_000, "max_age": 100_000_000.0}
# BentoML makes spans of every message, also where nobody collects them.
_EVERY_URL = ".*"
_TIMEOUT_MARGIN_S = 10.0
"""How much longer BentoML waits than we do, so that it is our deadline that ends a request."""

# Kubernetes puts these into every pod beside a Service that is called gliner or gliner-bento.
_SERVICE_LINK = re.compile(r"GLINER(_BENTO)?_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")

_MAX_CPU_LANES = 4
_AUTO_BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}


class Settings(BaseSettings):
    """The settings of a server. `Settings.load()` makes one; `decided_for` decides what is automatic."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", validate_default=True
    )

    config: Annotated[Path, AfterValidator(Path.resolve)] | None = Field(
        None, description="Configuration file; unset: configuration.yaml beside service.py."
    )

    model: Model = Field(
        "models/demo",
        description="GLiNER checkpoint: a folder (relative to the working directory or to service.py) or a hub id.",
    )
    device: str = Field(
        "auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="Where it runs; auto: cuda if present."
    )
    dtype: Dtype = Field(
        "auto",
        description="Precision (fp32, fp16, bf16 for short); auto: bfloat16 where the hardware has it, else float32.",
    )
    runtime: Literal["torch", "onnxruntime"] = Field(
        "torch",
        description="What computes; onnxruntime: the ONNX graph of a checkpoint that ships one and finds entities, "
        "without weights for torch (needs the extra onnx).",
    )
    onnx_model_file: str = Field(
        "model.onnx",
        pattern=r"^\w[\w.-]*(/\w[\w.-]*)*\.onnx$",
        description="With runtime onnxruntime: the graph's file in the checkpoint's folder.",
    )
    quantization: Literal["none", "int8"] = Field(
        "none",
        description="int8: linear layers of the encoder in 8 bits (CPU, dynamic); smaller, and less exact.",
    )
    enable_sequence_packing: bool = Field(
        True,
        description="Texts of a batch side by side, without padding, where the backbone has a packed form "
        "(BERT, RoBERTa, DeBERTa, ModernBERT); false: padded rows through transformers' own code.",
    )
    enable_compilation: bool = Field(
        False,
        description="Fuse what torch runs in several passes, with torch.compile (on a CPU: needs a C++ compiler, "
        "adds about half a minute to the start; for long texts in bfloat16, short ones gain nothing).",
    )
    label_cache_size: Annotated[int, Field(ge=0)] = Field(
        4096, description="Labels whose embeddings a bi-encoder keeps; the least recently used make room."
    )
    enable_flashdeberta: bool = Field(
        False, description="Run a DeBERTa backbone with the package flashdeberta (CUDA); an error where it cannot."
    )

    window_words: CountOrAuto = Field(
        0,
        description="Words of the windows that a long text is read in, where a request names none; 0: as many as the "
        "model reads at once. Fewer where their tokens and the labels do not fit.",
    )
    window_overlap_words: CountOrAuto = Field(
        32,
        description="Words that a window shares with the one before, at most, where a request names none; never more "
        "than a quarter of the window.",
    )
    max_labels_per_pass: CountOrAuto = Field(
        0,
        description="Labels, and relations, that the model is asked for at once; more of them take several passes; "
        "0: as many as the checkpoint was trained with (max_types). A bi-encoder takes all at once.",
    )
    compat_long_text: Literal["window", "truncate"] = Field(
        "window",
        description="What the routes below route_prefix do with a long text; truncate: cut it, as gliner.serve does.",
    )

    max_batch_size: Count = Field(32, description="Items in a batch.")
    max_batch_tokens: CountOrAuto = Field(
        0,
        description="What a batch may cost, in tokens of short texts, prompts included; long texts, spans and labels "
        "cost more than their tokens, and where the model pads, every item costs as much as the dearest; "
        "0: 1024 on CPU, 16384 on CUDA.",
    )
    batch_wait_timeout_ms: float = Field(
        0.0,
        ge=0,
        le=10_000,
        description="How long after its arrival a text may be kept, where a lane is free, for others that are being "
        "tokenised to join its batch.",
    )
    batch_lookahead: Count = Field(
        128, description="Waiting items, from the oldest, that are looked at for items that fit the batch."
    )
    target_memory_fraction: float = Field(
        0.8,
        gt=0,
        le=1,
        description="On CUDA: share of the memory that is free beside the weights that batches may take; "
        "max_batch_tokens is lowered to what it holds.",
    )
    memory_overhead_factor: float = Field(
        1.3, ge=1, le=10, description="On CUDA: memory that a batch is taken to need, for each byte that was measured."
    )
    queue_capacity: Count = Field(4096, description="Items that may wait; one more is refused (429).")
    request_timeout_s: float = Field(30.0, gt=0, le=86_400, description="Seconds until a request ends with 504.")
    inference_lanes: ThreadsOrAuto = Field(
        0, description="Threads that run batches on the shared weights; 0: one per core on CPU, at most 4; 1 on CUDA."
    )
    torch_threads: ThreadsOrAuto = Field(
        0, description="Threads that one lane computes with, and lends the others while it is idle; 0: cores / lanes."
    )
    tokenizer_threads: Threads = Field(1, description="Threads that tokenise.")
    precompiled_batch_sizes: BatchSizes = Field(
        (1, 2, 4, 8, 16, 32),
        description="Batch sizes that run before the server is ready, comma-separated; none beyond queue_capacity.",
    )
    warmup_iterations: Annotated[int, Field(ge=0, le=1000)] = Field(
        1, description="How often each of them runs; 0: the server is ready when it has answered one item."
    )
    decoding_threads: int = Field(
        1, ge=0, le=256, description="Threads that decode while the lanes go on; 0: each lane decodes its own batches."
    )

    enable_lora: bool = Field(False, description="Serve LoRA adapters: a request's adapter_id says which.")
    max_lora_rank: Count = Field(64, description="Highest rank of an adapter; a higher one is refused (422).")
    max_device_adapters: Count = Field(
        8, description="Adapters on the model's device at once; a batch waits for those of its texts."
    )
    max_cpu_adapters: Count = Field(
        128, description="Adapters in the computer's memory, ready to be copied to the device."
    )
    disk_cache_dir: AbsolutePath = Field(
        Path("~/.cache/gliner-bento/adapters"),
        description="Where adapters that were put are kept; ~/.cache is $XDG_CACHE_HOME where that is set.",
    )
    max_disk_adapters: Count = Field(
        1024,
        description="Adapters in disk_cache_dir; one from the hub makes room for another, else that is refused (507).",
    )
    adapter_root: Annotated[AbsolutePath, AfterValidator(existing_folder)] | None = Field(
        None, description="Folder of the operator's own adapters: its folder NAME is served as NAME."
    )
    adapter_id_pattern: Annotated[str, AfterValidator(regular_expression)] = Field(
        r"^[A-Za-z0-9_.-]{1,128}$", description="Regular expression that an adapter's id has to match."
    )
    max_adapter_bytes: Count = Field(
        256 * 2**20, description="Bytes of an adapter's archive, and of what it unpacks to; more are refused (413)."
    )
    allow_adapter_hub: bool = Field(
        False, description="PUT /v1/adapters may name repositories of the Hugging Face hub."
    )
    adapter_loading_threads: Threads = Field(2, description="Threads that load adapters while batches run.")

    default_threshold: Probability = Field(0.5, description="Threshold for entities where a request names none.")
    default_relation_threshold: Probability = Field(
        0.5, description="Threshold for relations where a request names none."
    )
    max_labels: Count = Field(1000, description="Labels of an item, and as many relations; more are refused (422).")
    max_text_chars: Count = Field(2_000_000, description="Characters of a text; more are refused (413).")
    max_batch_items: Count = Field(256, description="Texts of one /v1/extract/batch; more are refused (413).")
    max_body_bytes: Count = Field(32 * 2**20, description="Bytes of a request's body; more are refused (413).")
    route_prefix: str = Field(
        "/gliner",
        pattern=r"^(/[A-Za-z0-9._~-]+)+$",
        description="Where the routes that gliner.serve's clients call are.",
    )

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None, file: Path | None = None) -> Settings:
        """Flags over environment over file over defaults; raises `SettingsError`.

        file: instead of the flag or environment name for `config`, which is what names the file otherwise.
        """
        given = dict(flags or {}) | ({"config": file} if file else {})
        known = [*cls.model_fields, *ALIASES]
        refuse_unknown(given, known, "unknown setting")
        refuse_unknown(
            (name for name in os.environ if name.upper().startswith(ENV_PREFIX) and not _SERVICE_LINK.fullmatch(name)),
            map(env_name, known),
            "unknown environment name",
            str.upper,
        )
        try:
            return cls(**under_one_name(given, ALIASES, flag_name))
        except ValidationError as error:
            raise SettingsError("; ".join(_one_line(fault, given) for fault in error.errors())) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Where values come from, the strongest first."""
        file = (env_settings() | init_settings()).get("config")
        section = _read(Path(file) if file else None).gliner
        aliased = InitSettingsSource(settings_cls, init_kwargs=_aliased_environment())
        return init_settings, aliased, env_settings, InitSettingsSource(settings_cls, init_kwargs=section)

    def decided_for(self, device: str, cores: int | None = None) -> Settings:
        """These settings with every automatic count (0) decided, for a model on `device` ("cpu", "cuda:0")."""
        kind = "cuda" if device.startswith("cuda") else "cpu"
        cores = cores or usable_cores()
        lanes = self.inference_lanes or (1 if kind == "cuda" else min(cores, _MAX_CPU_LANES))
        return self.model_copy(
            update={
                "max_batch_tokens": self.max_batch_tokens or _AUTO_BATCH_TOKENS[kind],
                "inference_lanes": lanes,
                "torch_threads": self.torch_threads or max(1, cores // lanes),
            }
        )

    def configuration(self) -> Configuration:
        """The content of the configuration file."""
        return _read(self.config)

    def bentoml_options(self, service: str) -> dict[str, Any]:
        """Arguments for `@bentoml.service` of `service`: the file's `services` section over what we rely on."""
        relied_on: dict[str, Any] = {"traffic": {"timeout": self.request_timeout_s + _TIMEOUT_MARGIN_S}}
        if service == "GLiNERRunner":
            relied_on["runner_connection"] = _NEVER_RECONNECT
            relied_on["logging"] = {"access": {"enabled": False}}  # the gateway logs each request already
        given = self.configuration().services.get(service, {})
        if "tracing" not in given and not _may_trace():
            relied_on["tracing"] = {"excluded_urls": _EVERY_URL}
        return {
            key: {**relied_on.get(key, {}), **value} if isinstance(value, Mapping) else value
            for key, value in (relied_on | given).items()
        }


def _may_trace() -> bool:
    """Whether BentoML's own configuration, where tracing may be asked for, is there."""
    return any(os.environ.get(name) for name in ("BENTOML_CONFIG", "BENTOML_CONFIG_OPTIONS"))


def env_name(name: str) -> str:
    """The environment name of a setting."""
    return ENV_PREFIX + name.upper()


def flag_name(name: str) -> str:
    """The command line flag of a setting."""
    return "--" + name.replace("_", "-")


def aliases_of(name: str) -> list[str]:
    """gliner.serve's other names of a setting."""
    return [alias for alias, ours in ALIASES.items() if ours == name]


def origin(name: str, flags: Mapping[str, Any]) -> str | None:
    """The flag or environment name that gives a setting its value; None where the file or the default does."""
    names = [name, *aliases_of(name)]
    environment = {key.upper() for key, value in os.environ.items() if value}
    by_flag = [flag_name(one) for one in names if one in flags]
    by_environment = [env_name(one) for one in names if env_name(one) in environment]
    return next(iter(by_flag + by_environment), None)


def usable_cores(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may keep busy: its affinity, or a container's limit if that is lower."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota_us, period_us = map(int, quota_file.read_text().split())
    except (OSError, ValueError):  # no such limit: "max 100000"
        return allowed
    return max(1, min(allowed, quota_us // period_us))


def load_or_exit() -> Settings:
    """`Settings.load()`; a wrong setting ends the process with one line and exit code 2."""
    try:
        return Settings.load()
    except SettingsError as error:
        sys.stderr.write(f"gliner-bento: {error}\n")
        raise SystemExit(2) from None


def _read(file: Path | None) -> Configuration:
    content = read_configuration(file, {*Settings.model_fields, *ALIASES} - {"config"})
    return Configuration(under_one_name(content.gliner, ALIASES), content.services)


def _aliased_environment() -> dict[str, Any]:
    """What the environment says of the settings that have an alias, under either name."""
    environment = {key.upper(): value for key, value in os.environ.items() if value}
    spelled = {name: environment.get(env_name(name)) for name in (*ALIASES, *ALIASES.values())}
    return under_one_name({name: value for name, value in spelled.items() if value}, ALIASES, env_name)


def _one_line(fault: Any, flags: Mapping[str, Any]) -> str:
    name = str(fault["loc"][0])
    message = fault["msg"].removeprefix("Value error, ")
    return f"{name}: {message} (got {fault['input']!r} from {origin(name, flags) or 'the configuration file'})"
