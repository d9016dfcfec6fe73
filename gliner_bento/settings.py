"""Every setting, declared once: name, default, bounds and one line of help. Knows none of its consumers.

A setting has one name: `max_batch_size` is the flag `--max-batch-size`, the environment variable
`GLINER_MAX_BATCH_SIZE` and the key `max_batch_size` under `gliner:` in configuration.yaml, in this order of precedence.
The file's other section, `services:`, holds BentoML's own keys for each service. `ALIASES` are gliner.serve's names.

The options of the scheduler, the engine, the adapters and the gateway are views of the settings (`Settings.view`):
dataclasses with fields of the same names and without defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from gliner_bento.configuration import (
    PROJECT_ROOT,
    Configuration,
    SettingsError,
    read_configuration,
    refuse_unknown,
    under_one_name,
)
from gliner_bento.cores import usable_cores
from gliner_bento.exits import exit_with
from gliner_bento.setting_names import ALIASES, ENV_PREFIX, aliased_environment, env_name, flag_name, origin
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

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["PROJECT_ROOT", "Settings", "SettingsError", "load_or_exit"]

T = TypeVar("T", bound="DataclassInstance")

# Kubernetes sets these variables in every pod of a namespace that has a Service named gliner or gliner-bento.
_SERVICE_LINK = re.compile(r"GLINER(_BENTO)?_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")

_MAX_CPU_LANES = 4
_AUTO_BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}


class Settings(BaseSettings):
    """The settings of a server. `load` reads them, `decided_for` decides automatic values, `view` selects a part."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", validate_default=True
    )

    config: Annotated[Path, AfterValidator(Path.resolve)] | None = Field(
        None, description="Path of the configuration file; unset: configuration.yaml next to service.py."
    )

    model: Model = Field(
        "models/demo",
        description="GLiNER checkpoint: a local folder (relative to the working directory or to service.py) or a "
        "Hugging Face hub id.",
    )
    revision: str | None = Field(
        None, description="Branch, tag or commit of a model on the Hugging Face hub; unset: its main branch."
    )
    token: SecretStr | None = Field(
        None,
        description="Access token for private and gated models on the Hugging Face hub, never shown; unset: HF_TOKEN, "
        "or the token of `hf auth login`.",
    )
    cache_dir: AbsolutePath | None = Field(
        None, description="Folder of downloads from the Hugging Face hub; unset: huggingface_hub's (HF_HOME)."
    )
    convert: bool = Field(
        True,
        description="Convert the weights of a pytorch_model.bin to safetensors once, so that later starts are faster; "
        "--no-convert: read the file at every start.",
    )
    conversion_cache_dir: AbsolutePath = Field(
        Path("~/.cache/gliner-bento/weights"),
        description="Folder of converted weights, safe to delete; $XDG_CACHE_HOME replaces ~/.cache if it is set.",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="Device that the model runs on; auto: CUDA if available, else CPU.",
    )
    dtype: Dtype = Field(
        "auto",
        description="Data type of the model (short names: fp32, fp16, bf16); auto: bfloat16 if the hardware and "
        "the model support it, else float32.",
    )
    runtime: Literal["torch", "onnxruntime"] = Field(
        "torch",
        description="Inference runtime; onnxruntime: run the ONNX graph that the checkpoint ships (entities only, "
        "no torch weights needed; requires the extra onnx).",
    )
    onnx_model_file: str = Field(
        "model.onnx",
        pattern=r"^\w[\w.-]*(/\w[\w.-]*)*\.onnx$",
        description="File name of the ONNX graph in the checkpoint folder, for runtime onnxruntime.",
    )
    quantization: Literal["none", "int8"] = Field(
        "none",
        description="Quantization of the encoder; int8: dynamic int8 linear layers, CPU only, less memory at "
        "lower accuracy.",
    )
    enable_sequence_packing: bool = Field(
        True,
        description="Pack the texts of a batch without padding if the backbone supports it (BERT, RoBERTa, "
        "DeBERTa, ModernBERT); false: padded batches through transformers' own code.",
    )
    enable_compilation: bool = Field(
        False,
        description="Fuse operations with torch.compile. On CPU: requires a C++ compiler, adds about 30 s to the "
        "start, and speeds up long texts in bfloat16 only.",
    )
    self_test: bool = Field(
        True,
        description="Compare the model's scores of three short texts with those of gliner's own code at start. If they "
        "differ, an error is logged and gliner's own forward pass serves; if that differs too, the start fails.",
    )
    label_cache_size: Annotated[int, Field(ge=0)] = Field(
        4096, description="Maximum number of label embeddings that a bi-encoder caches (LRU); 0: no cache."
    )
    enable_flashdeberta: bool = Field(
        False,
        description="Run DeBERTa backbones with the package flashdeberta (CUDA only); startup fails if it is not "
        "available.",
    )

    window_words: CountOrAuto = Field(
        0,
        description="Default size of the windows of a long text, in words; 0: the model's maximum sequence "
        "length. A window is smaller if its tokens and the labels would not fit.",
    )
    window_overlap_words: CountOrAuto = Field(
        32,
        description="Default maximum overlap of consecutive windows, in words; limited to a quarter of the window.",
    )
    max_labels_per_pass: CountOrAuto = Field(
        0,
        description="Maximum number of entity labels, and of relation labels, per pass; more labels take several "
        "passes; 0: the number that the checkpoint was trained with (max_types). A bi-encoder takes "
        "all labels in one pass.",
    )
    compat_long_text: Literal["window", "truncate"] = Field(
        "window",
        description="How the routes below route_prefix process long texts; window: in windows; truncate: cut, as "
        "gliner.serve does.",
    )

    max_batch_size: Count = Field(32, description="Maximum number of items in a batch.")
    max_batch_tokens: CountOrAuto = Field(
        0,
        description="Maximum cost of a batch, in tokens, prompts included. Items with long texts or many labels "
        "cost more than their tokens; in a padded batch every item costs as much as the most expensive "
        "one; 0: 1024 on CPU, 16384 on CUDA.",
    )
    batch_wait_timeout_ms: float = Field(
        0.0,
        ge=0,
        le=10_000,
        description="Maximum time to hold a partial batch while other items are being tokenized, in ms after the "
        "arrival of its oldest item; 0: no wait.",
    )
    batch_lookahead: Count = Field(
        128, description="Maximum number of waiting items, oldest first, that are considered for a batch."
    )
    target_memory_fraction: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Fraction of the GPU memory that is free after loading the model to be used by batches (CUDA "
        "only); max_batch_tokens is lowered to fit.",
    )
    memory_overhead_factor: float = Field(
        1.3, ge=1, le=10, description="Safety factor on the measured memory of a batch (CUDA only)."
    )
    queue_capacity: Count = Field(
        4096, description="Maximum number of waiting items; requests beyond it are refused (429)."
    )
    max_queue_wait_s: float = Field(
        1.5,
        gt=0,
        le=86_400,
        description="Estimated wait in the queue, in seconds, beyond which requests are refused (429 with "
        "Retry-After), unless it is a burst. Raise it where throughput matters more than latency.",
    )
    request_timeout_s: float = Field(
        30.0, gt=0, le=86_400, description="Deadline of a request, in seconds after its arrival; then it fails (504)."
    )
    inference_lanes: ThreadsOrAuto = Field(
        0,
        description="Number of lanes: threads that run batches on the shared weights; 0: one per core, at most 4, "
        "on CPU; 1 on CUDA.",
    )
    torch_threads: ThreadsOrAuto = Field(
        0,
        description="Number of torch threads per lane; the first lane also uses those of idle lanes; 0: cores / "
        "inference_lanes.",
    )
    tokenizer_threads: Threads = Field(1, description="Number of tokenizer threads.")
    precompiled_batch_sizes: BatchSizes = Field(
        (1, 2, 4, 8, 16, 32),
        description="Batch sizes to warm up before the server is ready; sizes above queue_capacity are skipped.",
    )
    warmup_iterations: Annotated[int, Field(ge=0, le=1000)] = Field(
        1, description="Number of warm-up runs per batch size; 0: a single item only."
    )
    decoding_threads: int = Field(
        1,
        ge=0,
        le=256,
        description="Number of threads that decode while the lanes run the next batches; 0: each lane decodes its "
        "own batches.",
    )

    enable_lora: bool = Field(False, description="Enable LoRA adapters; a request selects one with adapter_id.")
    max_lora_rank: Count = Field(64, description="Maximum rank of an adapter; a higher rank is refused (422).")
    max_device_adapters: Count = Field(
        8,
        description="Maximum number of adapters on the model's device; a batch waits until its adapters are "
        "loaded there.",
    )
    max_cpu_adapters: Count = Field(
        128, description="Maximum number of adapters in CPU memory, ready to be copied to the device."
    )
    disk_cache_dir: AbsolutePath = Field(
        Path("~/.cache/gliner-bento/adapters"),
        description="Folder where adapters added with PUT are stored, per base model; $XDG_CACHE_HOME replaces "
        "~/.cache if it is set.",
    )
    max_disk_adapters: Count = Field(
        1024,
        description="Maximum number of adapters of one base model in disk_cache_dir; if it is full, an adapter from "
        "the hub is evicted, or the PUT is refused (507) if there is none.",
    )
    adapter_root: Annotated[AbsolutePath, AfterValidator(existing_folder)] | None = Field(
        None,
        description="Folder of the operator's own adapters, never written to; its subfolder NAME is served as "
        "adapter NAME.",
    )
    adapter_id_pattern: Annotated[str, AfterValidator(regular_expression)] = Field(
        r"^[A-Za-z0-9_.-]{1,128}$", description="Regular expression that adapter ids must match."
    )
    max_adapter_bytes: Count = Field(
        256 * 2**20,
        description="Maximum size of an adapter archive, and of its unpacked files, in bytes; larger ones are "
        "refused (413).",
    )
    allow_adapter_hub: bool = Field(
        False, description="Allow PUT /v1/adapters to download adapters from the Hugging Face hub."
    )
    adapter_loading_threads: Threads = Field(2, description="Number of threads that load adapters while batches run.")

    max_restarts: Annotated[int, Field(ge=0)] = Field(
        5,
        description="Maximum number of restarts of a service's processes within restart_window_s; when another one "
        "dies, the server ends (exit code 1).",
    )
    restart_window_s: float = Field(
        600.0, gt=0, le=86_400, description="Time in which restarts are counted for max_restarts, in seconds."
    )

    default_threshold: Probability = Field(0.5, description="Default threshold for entities.")
    default_relation_threshold: Probability = Field(0.5, description="Default threshold for relations.")
    max_labels: Count = Field(
        1000, description="Maximum number of entity labels, and of relation labels, of an item; more are refused (422)."
    )
    max_text_chars: Count = Field(
        2_000_000, description="Maximum length of a text, in characters; longer texts are refused (413)."
    )
    max_batch_items: Count = Field(
        256, description="Maximum number of texts in one request to /v1/extract/batch; more are refused (413)."
    )
    max_body_bytes: Count = Field(
        32 * 2**20, description="Maximum size of a request body, in bytes; larger bodies are refused (413)."
    )
    route_prefix: str = Field(
        "/gliner",
        pattern=r"^(/[A-Za-z0-9._~-]+)+$",
        description="Path prefix of the routes for clients of gliner.serve.",
    )

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None, file: Path | None = None) -> Settings:
        """Flags over environment over file over defaults. Raises `SettingsError`.

        file: overrides the flag and the environment variable of `config`.
        """
        given = dict(flags or {}) | ({"config": file} if file else {})
        known = [*cls.model_fields, *ALIASES]
        refuse_unknown(given, known, "unknown setting")
        refuse_unknown(
            (name for name in os.environ if name.upper().startswith(ENV_PREFIX) and not _SERVICE_LINK.fullmatch(name)),
            map(env_name, known),
            "unknown environment variable",
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
        """Sources of values, in order of precedence."""
        file = (env_settings() | init_settings()).get("config")
        section = _read(Path(file) if file else None).gliner
        aliased = InitSettingsSource(settings_cls, init_kwargs=aliased_environment())
        return init_settings, aliased, env_settings, InitSettingsSource(settings_cls, init_kwargs=section)

    def decided_for(self, device: str, cores: int | None = None) -> Settings:
        """The settings with the automatic values (0) that depend on `device` ("cpu", "cuda:0") and cores replaced."""
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

    def view(self, kind: type[T]) -> T:
        """The settings of one consumer: every field of the dataclass `kind` gets the setting of the same name.

        A field with a default is a constant of the consumer and keeps it. Raises TypeError for any other field that is
        no setting.
        """
        names = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]
        if unknown := sorted(set(names).difference(type(self).model_fields)):
            raise TypeError(f"{kind.__name__}: no such setting: {', '.join(unknown)}")
        return kind(**{name: getattr(self, name) for name in names})

    def configuration(self) -> Configuration:
        """The content of the configuration file."""
        return _read(self.config)


def load_or_exit() -> Settings:
    """`Settings.load()`; an invalid setting ends the process with one line and exit code 1."""
    try:
        return Settings.load()
    except SettingsError as error:
        exit_with(str(error))


def _read(file: Path | None) -> Configuration:
    content = read_configuration(file, {*Settings.model_fields, *ALIASES} - {"config"})
    return Configuration(under_one_name(content.gliner, ALIASES), content.services)


def _one_line(fault: Any, flags: Mapping[str, Any]) -> str:
    name = str(fault["loc"][0])
    message = fault["msg"].removeprefix("Value error, ")
    value = "a secret" if name == "token" else repr(fault["input"])
    return f"{name}: {message} (got {value} from {origin(name, flags) or 'the configuration file'})"
