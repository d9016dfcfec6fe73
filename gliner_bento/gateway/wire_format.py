"""Makes the endpoints of another server's wire format, which share an error body and statuses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import COMMON_ERRORS, EndpointGroup
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.v1.extract import EXTRACT_ERRORS

ModelName = Annotated[str | None, Field(description="Name of the model, as /v1/models lists it. Default: the first.")]
"""The field with the model's name, which this server adds to formats that have no such field."""

POST_ERRORS = (400, 413, 415, *COMMON_ERRORS)
"""HTTP statuses of the errors that any route with a body may have."""


def extract_errors(without: Collection[int] = ()) -> tuple[int, ...]:
    """HTTP statuses of the errors of an extraction. without: statuses that the format does not use."""
    return tuple(status for status in EXTRACT_ERRORS if status not in without)


async def entity_types_of_relations(gateway: Gateway, context: Context) -> list[str] | None:
    """The entity types of a request that names only relations; None if the model needs no entity types."""
    return None if await has_gliner2(gateway, context) else list(gateway.options.fastino_labels)


async def has_gliner2(gateway: Gateway, context: Context) -> bool:
    """Whether the request's model is a GLiNER2 model."""
    return (await (await gateway.served(context)).info()).family.startswith("GLiNER2")


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat(EndpointGroup):
    """Makes a format's endpoints."""

    tag: str = "compat"
    note: str = "For existing clients of that server; new clients call the routes under /v1."
