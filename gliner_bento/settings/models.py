"""Several models in one server, and what they share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_settings import BaseSettings, NoDecode

from gliner_bento.settings.adapters import AdapterFields
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.settings.field_types import AbsolutePath, CountOrAuto, Probability, existing_folder
from gliner_bento.settings.model import ModelFields
from gliner_bento.settings.scheduling import SchedulingFields
from gliner_bento.tasks.base import Limits

ROW = ("pinned", "required", "default")
"""Keys of a model's own settings that are not settings but properties of its row in the table."""

_SHARED = frozenset(
    {"model", "models", "inference_lanes", "request_timeout_s", "hang_timeout_s", "compat_long_text"}
    | {"adapter_id_pattern", "max_adapter_bytes", "conversion_cache_dir", "disk_cache_dir"}
)
"""Settings of the whole process, or of the gateway before it knows the model."""


def _decoded(value: object) -> object:
    """A flag's or a variable's value."""
    return json.loads(value) if isinstance(value, str) else value


class ModelTableFields(BaseSettings):
    """Several models in one server."""

    model_settings: Annotated[dict[str, dict[str, Any]], NoDecode, BeforeValidator(_decoded)] = Field(
        {},
        description="Settings of a model of its own, by its name in models, as JSON; in the file also under models: "
        "{pii: {model: CHECKPOINT, dtype: float32}}. Besides settings: pinned (never evicted), required (the server "
        "does not start without it), default (it answers requests that name no model).",
    )
    model_root: Annotated[AbsolutePath, AfterValidator(existing_folder)] | None = Field(
        None,
        description="Folder of checkpoints that POST /v1/models may name by their folders; unset: no folder.",
    )
    allow_model_hub: bool = Field(
        False, description="Allow POST /v1/models to download models from the Hugging Face hub."
    )
    max_model_bytes: CountOrAuto = Field(
        0,
        description="Maximum size of a model's archive that POST /v1/models may upload, and of its unpacked files, in "
        "bytes; larger ones are refused (413). They are kept in the temporary folder ($TMPDIR) until the model is "
        "deleted or the server ends. 0: no archive may be uploaded.",
    )
    max_loaded_models: CountOrAuto = Field(
        0,
        description="Maximum number of models in memory. To load a further one, the least recently used one is evicted "
        "that is idle, not pinned and not the default; without one, loading fails (507). 0: no limit.",
    )
    model_memory_fraction: Probability = Field(
        0.8,
        description="Fraction of the memory of the device, or on CPU of the memory that the process may use, for the "
        "weights of all models; to load a further one, others are evicted as for max_loaded_models, or it is refused "
        "(507) before anything is disturbed.",
    )
    evicted_models: Literal["wait", "refuse"] = Field(
        "wait",
        description="What a request for an evicted model does, while the model is loaded for it; wait: for the end of "
        "loading, within its deadline; refuse: it fails (503 with Retry-After).",
    )
    model_idle_unload_s: float = Field(
        0.0,
        ge=0,
        le=86_400 * 365,
        description="Evict a model that is neither pinned nor the default after this time without requests; 0: never.",
    )
    probe_models: bool = Field(
        True,
        description="Load a model that is added while the server runs in a process of its own first, so that one that "
        "crashes the process does not end the server. It takes twice as long, and for a moment twice the memory.",
    )
    max_load_failures: Annotated[int, Field(ge=1)] = Field(
        3, description="Number of failures after which a model is not loaded again until it is deleted and added again."
    )


@cache
def _own() -> dict[str, TypeAdapter[Any]]:
    """A validator for each setting that a model may have of its own, by its name."""
    known = {
        name: field
        for kind in (SchedulingFields, ModelFields, AdapterFields)
        for name, field in kind.model_fields.items()
        if name not in _SHARED
    }
    from gliner_bento.settings.gateway import GatewayFields  # noqa: PLC0415  # only its limits

    known |= {limit.name: GatewayFields.model_fields[limit.name] for limit in fields(Limits)}
    annotated: Any = Annotated
    types = {name: annotated[tuple([field.annotation, *field.metadata, name])] for name, field in known.items()}
    return {name: TypeAdapter(kind) for name, kind in types.items()}


def checked_own(given: Mapping[str, Any]) -> dict[str, Any]:
    """A model's own settings, with valid values. Raises ValueError, which names the setting."""
    checked = {}
    for name, value in given.items():
        if name in ROW:
            checked[name] = TypeAdapter(bool).validate_python(value, strict=True)
        elif name not in _own():
            raise ValueError(f"{name}: cannot be set for one model")
        else:
            try:
                checked[name] = _own()[name].validate_python(value)
            except ValidationError as error:
                message = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"{name}: {message}") from None
    return checked


def split_models(values: dict[str, Any]) -> dict[str, Any]:
    """A file's `models` without objects: a model's own settings move to `model_settings`. Raises `SettingsError`."""
    models = values.get("models")
    if not isinstance(models, Mapping) or not any(isinstance(one, Mapping) for one in models.values()):
        return values
    own = {name: {**one} for name, one in models.items() if isinstance(one, Mapping)}
    if without := [name for name, one in own.items() if "model" not in one]:
        raise SettingsError(f"models: {without[0]}: model: name its checkpoint")
    paths = {name: own[name].pop("model") if name in own else one for name, one in models.items()}
    return {**values, "models": paths, "model_settings": {**own, **(values.get("model_settings") or {})}}
