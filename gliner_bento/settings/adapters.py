"""LoRA adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import AbsolutePath, Count, Threads, existing_folder, regular_expression
from gliner_bento.settings.marks import FlagOfCommands, OfAllModels, OfOperator


class AdapterFields(BaseSettings):
    """LoRA adapters."""

    enable_lora: Annotated[bool, FlagOfCommands()] = Field(
        False, description="Enable LoRA adapters; a request selects one with adapter_id."
    )
    max_lora_rank: Count = Field(64, description="Maximum rank of an adapter; a higher rank is refused (422).")
    max_device_adapters: int = Field(
        8,
        ge=1,
        le=4096,  # each has a slot, which takes memory from the start
        description="Maximum number of adapters on the model's device; a batch waits until its adapters are "
        "loaded there.",
    )
    max_cpu_adapters: Count = Field(
        128, description="Maximum number of adapters in CPU memory, ready to be copied to the device."
    )
    disk_cache_dir: Annotated[AbsolutePath, OfAllModels(), FlagOfCommands()] = Field(
        Path("~/.cache/gliner-bento/adapters"),
        description="Folder where adapters added with PUT are stored, per base model; $XDG_CACHE_HOME replaces "
        "~/.cache if it is set.",
    )
    max_disk_adapters: Count = Field(
        1024,
        description="Maximum number of adapters of one base model in disk_cache_dir; if the folder is full, an "
        "unpinned adapter from the hub is evicted; if there is none, the PUT is refused (507).",
    )
    adapter_root: Annotated[Annotated[AbsolutePath, AfterValidator(existing_folder)] | None, OfOperator()] = Field(
        None,
        description="Folder of the operator's own adapters, never written to; its subfolder NAME is served as "
        "adapter NAME.",
    )
    adapter_id_pattern: Annotated[str, AfterValidator(regular_expression), OfAllModels()] = Field(
        r"^[A-Za-z0-9_.-]{1,128}$", description="Regular expression that adapter ids must match."
    )
    max_adapter_bytes: Annotated[Count, OfAllModels()] = Field(
        256 * 2**20,
        description="Maximum size of an adapter archive, and of its unpacked files, in bytes; larger ones are "
        "refused (413).",
    )
    allow_adapter_hub: Annotated[bool, OfOperator()] = Field(
        False, description="Allow PUT /v1/adapters to download adapters from the Hugging Face hub."
    )
    adapter_loading_threads: Threads = Field(2, description="Number of threads that load adapters while batches run.")
