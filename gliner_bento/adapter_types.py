"""The types of adapters in requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from gliner_bento.tasks.fields import Name, Strict, check_fields

SAVE_AS_SAFETENSORS = (
    'save it as safetensors, with save_pretrained of PEFT 0.7 or later, or: python -c "import torch; '
    "from safetensors.torch import save_file; save_file(torch.load('adapter_model.bin', map_location='cpu', "
    "weights_only=True), 'adapter_model.safetensors')\""
)
"""What to do with an adapter's pickled weights, which are never read: unpickling may run code."""


class AdapterOptions(BaseModel):
    """Options of an adapter; absent fields change nothing. Not a subclass of `Strict`, whose check refuses the
    strings of a URL's query."""

    model_config = Strict.model_config

    pinned: bool | None = Field(default=None, description="Evicted from memory last. Default for a new adapter: false.")
    preload: bool = Field(default=True, description="Load it now instead of at its first request.")
    replace: bool = Field(
        default=False,
        description="Replace an installed adapter whose content differs. Default: the request fails (409 conflict).",
    )


class PutAdapterRequest(AdapterOptions):
    """Where to load an adapter from; without a source, only changes the options of an installed adapter."""

    _check_fields = model_validator(mode="before")(check_fields)

    source: Name | None = Field(
        default=None,
        description="A folder below the server's `adapter_root`, or `hub:owner/name` where the server allows it.",
        examples=["tenant-a"],
    )
    revision: Name | None = Field(default=None, description="Branch, tag or commit of the hub repository.")


# Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterInfo:
    """A LoRA adapter. `tier`, `uses` and `last_used` are those of the replica that answers; `last_used` is null if no
    text has used it since the server started."""

    id: Annotated[str, Field(examples=["tenant-a"])]
    source: Annotated[Literal["folder", "hub", "upload"], Field(description="Where it was installed from.")]
    rank: int
    targets: Annotated[Sequence[str], Field(description="Names of the model's layers that the adapter changes.")]
    bytes: Annotated[int, Field(description="Size on disk.")]
    tier: Annotated[Literal["device", "cpu", "disk"], Field(description="The fastest tier that holds it now.")]
    pinned: bool
    uses: Annotated[int, Field(description="Texts that used it since the server started.")]
    last_used: Annotated[str | None, Field(description="RFC 3339, UTC.", examples=["2026-01-31T12:00:00.000Z"])]


@dataclass(frozen=True, slots=True)
class AdapterList:
    """The answer of /v1/adapters."""

    adapters: Sequence[AdapterInfo]


@dataclass(frozen=True, slots=True)
class AdapterCacheStatus:
    """Which adapters a replica holds in which tier. `in_memory`: in CPU memory, including those on the device.
    `device_slots` has None for free slots."""

    in_memory: Sequence[str]
    on_disk: Sequence[str]
    device_slots: Sequence[str | None]
    disk_cache_dir: str
    max_disk_adapters: int
