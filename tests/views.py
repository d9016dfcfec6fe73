"""Options of the scheduler, the engine and the adapters for tests: the settings' defaults, decided for one CPU core."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from gliner_bento.settings import Settings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_SETTINGS = Settings().decided_for("cpu", cores=1)


def view(kind: type[T], **changes: Any) -> T:
    """`kind` with the settings' defaults, but for `changes` to its fields."""
    return replace(_SETTINGS.view(kind), **changes)
