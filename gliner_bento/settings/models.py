"""Several models in one server, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_settings import BaseSettings, NoDecode

from gliner_bento.settings.adapters import AdapterFields
from gliner_bento.settings.configuration import SettingsError, suggestion
from gliner_bento.settings.field_types import AbsolutePath, CountOrAuto, Probability, decoded, existing_folder
from gliner_bento.settings.formats import FormatFields
from gliner_bento.settings.gateway import GatewayFields
from gliner_bento.settings.marks import MODELS_STAY, OfAllModels, PerModel, marked
from gliner_bento.settings.model import ModelFields
from gliner_bento.settings.scheduling import SchedulingFields

MODEL_PROPERTIES = ("pinned", "required", "default")
"""Keys in `model_settings` that are not settings, but say how the server treats the model."""


class ModelTableFields(BaseSettings):
    """Several models in one server."""

    model_settings: Annotated[dict[str, dict[str, Any]], NoDecode, BeforeValidator(decoded)] = Field(
        {},
        description="Each model's own settings, by its name in models, as JSON; in the file also within models: "
        "{pii: {model: CHECKPOINT, dtype: float32}}. Besides settings: pinned (never evicted), required (the server "
        "does not start without it), default (it answers requests that name no model).",
    )
    model_root: Annotated[Annotated[AbsolutePath, AfterValidator(existing_folder)] | None, MODELS_STAY] = Field(
        None,
        description="Folder of checkpoints that POST /v1/models may add. Unset: no folder may be added.",
    )
    allow_model_hub: Annotated[bool, MODELS_STAY] = Field(
        False, description="Allow POST /v1/models to download models from the Hugging Face hub."
    )
    max_model_bytes: Annotated[CountOrAuto, MODELS_STAY] = Field(
        0,
        description="Maximum size of a model's archive that POST /v1/models may upload, and of its unpacked files, in "
        "bytes; larger ones are refused (413). The files are kept in the temporary folder ($TMPDIR) until the model is "
        "deleted or the server ends. 0: no archive may be uploaded.",
    )
    max_loaded_models: Annotated[CountOrAuto, MODELS_STAY] = Field(
        0,
        description="Maximum number of models in memory. To load another, the least recently used model that is idle, "
        "not pinned and not the default is evicted; if there is none, loading fails (507). 0: no limit.",
    )
    model_memory_fraction: Annotated[Probability, MODELS_STAY] = Field(
        0.8,
        description="Fraction of the device's memory (on CPU: of the memory that the process may use) that the weights "
        "of all models may take. To load another model, models are evicted as for max_loaded_models; a model that "
        "would not fit even then is refused (507), usually before any is evicted.",
    )
    evicted_models: Annotated[Literal["wait", "refuse"], MODELS_STAY] = Field(
        "wait",
        description="What happens to a request for an evicted model. The model is loaded in either case; wait: the "
        "request waits until it is loaded, within its deadline; refuse: the request fails (503 with Retry-After).",
    )
    model_idle_unload_s: Annotated[float, MODELS_STAY] = Field(
        0.0,
        ge=0,
        le=86_400 * 365,
        description="Evict a model that is neither pinned nor the default after this time without requests; 0: never.",
    )
    probe_models: Annotated[bool, MODELS_STAY] = Field(
        True,
        description="Load a model that is added to a running server in a separate process first, so that a model that "
        "crashes its process does not end the server. This takes twice as long, and briefly twice the memory.",
    )
    max_load_failures: Annotated[int, Field(ge=1), MODELS_STAY] = Field(
        3, description="Number of failures after which a model is not loaded again until it is deleted and added again."
    )


@cache
def _own_validators() -> dict[str, TypeAdapter[Any]]:
    """A validator for each setting that a model may have of its own, by the setting's name."""
    known = {
        name: field
        for kind in (SchedulingFields, ModelFields, AdapterFields)
        for name, field in kind.model_fields.items()
        if name not in marked(kind, OfAllModels)
    }
    known |= {
        name: kind.model_fields[name] for kind in (GatewayFields, FormatFields) for name in marked(kind, PerModel)
    }
    annotated: Any = Annotated  # `Annotated` needs metadata; fields without any get `name`
    types = {name: annotated[tuple([field.annotation, *field.metadata, name])] for name, field in known.items()}
    return {name: TypeAdapter(kind) for name, kind in types.items()}


def checked_own(given: Mapping[str, Any]) -> dict[str, Any]:
    """A model's own settings, validated and parsed. Raises ValueError, which names the setting."""
    checked = {}
    for name, value in given.items():
        if name in MODEL_PROPERTIES:
            checked[name] = TypeAdapter(bool).validate_python(value, strict=True)
        elif name not in _own_validators():
            raise ValueError(f"{name}: cannot be set for one model{suggestion(name, _own_validators())}")
        else:
            try:
                checked[name] = _own_validators()[name].validate_python(value)
            except ValidationError as error:
                message = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"{name}: {message}") from None
    return checked


def split_models(values: dict[str, Any]) -> dict[str, Any]:
    """Move models' own settings, which a file may have in `models`, to `model_settings`. Raises `SettingsError`."""
    models = values.get("models")
    if not isinstance(models, Mapping) or not any(isinstance(model, Mapping) for model in models.values()):
        return values
    own = {name: {**model} for name, model in models.items() if isinstance(model, Mapping)}
    if incomplete := [name for name, settings in own.items() if "model" not in settings]:
        raise SettingsError(f"models: {incomplete[0]}: model: name its checkpoint")
    checkpoints = {name: own[name].pop("model") if name in own else model for name, model in models.items()}
    return {**values, "models": checkpoints, "model_settings": {**own, **(values.get("model_settings") or {})}}
