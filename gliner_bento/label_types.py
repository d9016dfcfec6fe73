"""How a request names entity and relation types: a list of names, or a map from each name to what it means."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Discriminator, Field, StringConstraints, Tag
from typing_extensions import TypedDict

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")]
Score = Annotated[float, Field(ge=0, le=1)]
Names = list[Name] | dict[Name, Name]

STRICT = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
_DESCRIPTION = Field(description="What the model reads. Default: the name.")


class LabelOptions(TypedDict, total=False):
    """An entity type."""

    __pydantic_config__ = STRICT  # type: ignore[misc]

    description: Annotated[Name | None, _DESCRIPTION]
    threshold: Annotated[Score | None, Field(description="Lowest score. Default: the request's threshold.")]


class RelationOptions(TypedDict, total=False):
    """A relation type."""

    __pydantic_config__ = STRICT  # type: ignore[misc]

    description: Annotated[Name | None, _DESCRIPTION]
    threshold: Annotated[Score | None, Field(description="Lowest score. Default: the request's relation_threshold.")]
    head: Annotated[list[Name] | None, Field(min_length=1, description="Labels that a head may have. Default: any.")]
    tail: Annotated[list[Name] | None, Field(min_length=1, description="Labels that a tail may have. Default: any.")]


_BY_TYPE = Discriminator(lambda value: "str" if isinstance(value, str) else "dict[options]")
_LabelValue = Annotated[Annotated[Name, Tag("str")] | Annotated[LabelOptions, Tag("dict[options]")], _BY_TYPE]
_RelationValue = Annotated[Annotated[Name, Tag("str")] | Annotated[RelationOptions, Tag("dict[options]")], _BY_TYPE]
Labels = Annotated[list[Name] | dict[Name, _LabelValue], Field(min_length=1)]
Relations = list[Name] | dict[Name, _RelationValue]
