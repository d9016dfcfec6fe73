"""Routes and error bodies that several other servers have in common: one response serves the clients of all.

A format's `endpoints` returns those that its clients call; they are served if at least one such format is enabled.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gliner_bento.errors import ErrorDetail, NotReady
from gliner_bento.gateway.endpoint import json_response
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.wire_format import WireFormat


@dataclass(frozen=True, slots=True)
class MessageError:
    """An error body with one sentence, as in gliner.serve, Presidio and vllm-factory's dispatcher."""

    error: str

    @classmethod
    def of(cls, detail: ErrorDetail, _status: int) -> MessageError:
        """The body of an error."""
        return cls(detail.message)


@dataclass(frozen=True, slots=True)
class DetailError:
    """FastAPI's error body with one sentence, as in NeMo's and Fastino's servers."""

    detail: str

    @classmethod
    def of(cls, detail: ErrorDetail, _status: int) -> DetailError:
        """The body of an error."""
        return cls(detail.message)


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of `GET /health`."""

    status: Literal["UP"] = "UP"


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model in the list of OpenAI's API, with the fields that NeMo and Xinference add."""

    id: str
    model_name: str
    revision: Annotated[str | None, Field(description="The fingerprint of the weights.")]
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "gliner-bento"
    model_type: str = "token-classification"


@dataclass(frozen=True, slots=True)
class ListedModels:
    """The answer of `GET /v1/models`."""

    data: list[ListedModel]
    object: Literal["list"] = "list"


def now_s() -> int:
    """The time of day, for `created` in answers."""
    return int(time.time())


async def _health(gateway: Gateway, _: Request) -> Response:
    if not await gateway.ready():
        raise NotReady("no healthy backends")
    return json_response(Health())


async def list_models(gateway: Gateway, _: Request) -> Response:
    """The served model as OpenAI's API lists it."""
    model = await gateway.model_info()
    return json_response(ListedModels([ListedModel(model.model, model.model, model.fingerprint)]))


HEALTH = WireFormat(error=MessageError).get(
    "/health",
    _health,
    "health",
    "Whether the server answers requests, for clients of other servers",
    description="200 if requests are admitted, else 503, as /readyz; with a body that other servers' clients read.",
    scope=None,
    answer=Health,
    errors=(503,),
)
MODELS = WireFormat().get(
    "/v1/models",
    list_models,
    "list_models",
    "The served model as OpenAI's API lists it",
    description="A list with one model, for clients that choose a model from a list. /v1/model has more.",
    answer=ListedModels,
)
