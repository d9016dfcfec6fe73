"""The types of served models in requests and answers: rows of the table of models, and what changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from gliner_bento.tasks.fields import Elements, Name, Strict

MODEL_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"

ModelState = Literal["loading", "ready", "evicted", "unloading", "unloaded", "failed"]
ModelAction = Literal["load", "unload", "pin", "unpin"]

STATE_HELP = (
    "ready: it serves. evicted: the server has unloaded it to free memory, or because it was idle; its next request "
    "loads it. unloaded: it is not loaded until a client asks for it (load). loading, unloading: under way. "
    "failed: it could not be loaded, see reason."
)

UPLOADED = "upload:"
"""The source of a model that was sent as an archive."""


class AddModelRequest(Strict):
    """A model to serve from now on, until it is deleted or the server ends."""

    name: Annotated[str, StringConstraints(pattern=MODEL_NAME)] = Field(
        description="The model's name in requests.", examples=["pii"]
    )
    source: Name = Field(
        description="A folder below the server's `model_root`, or `hub:owner/name` where the server allows it.",
        examples=["gliner-pii"],
    )
    settings: Elements[dict[str, str | int | float | bool | None]] = Field(
        default_factory=dict,
        description="The model's own settings, such as dtype, device or enable_lora; all others are the server's.",
        examples=[{"dtype": "bfloat16"}],
    )

    @field_validator("settings", mode="before")
    @classmethod
    def _fit_messages(cls, settings: Any) -> Any:
        """Raises ValueError for integers that messages between processes cannot hold."""
        for name, value in settings.items() if isinstance(settings, dict) else ():
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError(f"{str(name)[:100]}: must be an integer of 64 bits")
        return settings

    pinned: bool = Field(default=False, description="Never evict the model.")
    load: bool = Field(default=True, description="Load the model now; false: not until a client asks for it (load).")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A row of the table of models, as the process that holds the models reports it.

    name: None for the model that the setting `model` sets. reason: why it is not ready. bytes: size of its
    weights. limits: the model's own settings, of which the gateway applies the fields of `Limits`.
    """

    name: str | None
    state: ModelState
    reason: str | None = None
    pinned: bool = False
    required: bool = False
    bytes: int | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model in the list of OpenAI's API, with the fields that NeMo and Xinference add. id: its name in requests."""

    id: str
    model_name: str
    revision: Annotated[
        str | None, Field(description="Fingerprint of the weights; null until the model's replica has answered.")
    ]
    object: Literal["model"] = "model"
    created: Annotated[int, Field(description="Unix time at which this server began to list it, in seconds.")] = 0
    owned_by: str = "gliner-bento"
    model_type: str = "token-classification"
    state: Annotated[ModelState, Field(description=STATE_HELP)] = "ready"
    reason: Annotated[str | None, Field(description="Why it does not serve.")] = None
    default: Annotated[bool, Field(description="It answers requests that name no model.")] = False
    pinned: Annotated[bool, Field(description="It is never evicted.")] = False
    bytes: Annotated[int | None, Field(description="Size of the model's weights; null: not known.")] = None


@dataclass(frozen=True, slots=True)
class ListedModels:
    """The answer of `GET /v1/models`."""

    data: list[ListedModel]
    object: Literal["list"] = "list"


def short_name(name: str) -> str:
    """The last part of a hub id."""
    return name.rstrip("/").rpartition("/")[2]
