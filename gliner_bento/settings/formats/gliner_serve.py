"""gliner.serve."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import PathPrefix
from gliner_bento.settings.marks import OfAllModels


class Fields(BaseSettings):
    """gliner.serve."""

    route_prefix: PathPrefix = Field("/gliner", description="Path prefix of the routes for clients of gliner.serve.")
    compat_long_text: Annotated[Literal["window", "truncate"], OfAllModels()] = Field(
        "window",
        description="How the routes below route_prefix process long texts; window: in windows; truncate: cut, as "
        "gliner.serve does.",
    )
