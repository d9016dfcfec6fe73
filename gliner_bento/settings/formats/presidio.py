"""Presidio's analyzer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import EntityTypes, NamedLabels, Probability
from gliner_bento.settings.marks import PerModel


class Fields(BaseSettings):
    """Presidio's analyzer."""

    presidio_labels: Annotated[NamedLabels, PerModel()] = Field(
        (),
        description="Entity types of /analyze that the model is asked for, and the labels that it reads for them, as "
        "NAME=label; in the file also as an object. They add to Presidio's types, or replace those types' labels; a "
        "type that is left to recognizers otherwise is then found by both (docs/migrate/presidio.md).",
    )
    presidio_entities: Annotated[EntityTypes, PerModel()] = Field(
        (),
        description="Entity types that /analyze looks for when a request names none. Unset: those that Presidio looks "
        "for in English, and organizations.",
    )
    presidio_min_score: Annotated[Probability, PerModel()] = Field(
        0.3, description="Lowest score of an entity from /analyze; a request's score_threshold can raise it."
    )
