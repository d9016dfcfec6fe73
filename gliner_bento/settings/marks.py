"""Marks of settings: what a setting may do besides its value. A field has them in its `Annotated` type.

A setting without a mark is the server's, applies with Ray too, and can be set for each of several models if it is a
field of the model, its scheduler or its adapters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_settings import BaseSettings

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class OfAllModels:
    """A model cannot override it: it is the process's, or used before the request's model is known."""

    note = "The same for all models."


@dataclass(frozen=True, slots=True)
class PerModel:
    """Each of several models may have its own, though it is a field of the gateway: a limit of its requests."""

    note = "Each model may have its own."


@dataclass(frozen=True, slots=True)
class OfOperator:
    """A request that adds a model must not set it: it would let the server read or write more than was allowed."""

    note = "Not in requests that add a model."


@dataclass(frozen=True, slots=True)
class FlagOfCommands:
    """A flag of the commands that load a model in their own process (extract, bulk); others come from the environment
    and the configuration file."""

    note = "Also a flag of the commands that load a model."


@dataclass(frozen=True, slots=True)
class NoEffectWithRay:
    """Setting it is refused with Ray, for a reason. proxied: only behind Ray's proxy."""

    reason: str
    proxied: bool = False

    @property
    def note(self) -> str:
        """For the reference."""
        where = "behind Ray's proxy" if self.proxied else "with Ray"
        return f"Not {where}: {self.reason}."


@dataclass(frozen=True, slots=True)
class ForOneCaller:
    """Its value where the only client is this process itself: without the limits that protect a server from clients."""

    value: Any
    note = ""


MODELS_STAY = NoEffectWithRay("the models do not change while the server runs (docs/several-models.md)")
DAY_S = 86_400.0

_MARKS = (OfAllModels, PerModel, OfOperator, FlagOfCommands, NoEffectWithRay, ForOneCaller)


def marked(settings: type[BaseSettings], kind: type[M]) -> dict[str, M]:
    """The settings that have a mark, by name, each with its mark."""
    return {
        name: mark for name, field in settings.model_fields.items() for mark in field.metadata if isinstance(mark, kind)
    }


def notes(metadata: list[Any]) -> list[str]:
    """Sentences on what a field's marks mean, for the reference."""
    return [mark.note for mark in metadata if isinstance(mark, _MARKS) and mark.note]
