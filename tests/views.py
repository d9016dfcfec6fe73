"""Options for tests: the settings' defaults, decided for one CPU core, but for what a test changes."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from gliner_bento.settings import Settings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

with pytest.MonkeyPatch.context() as _patch:  # tests of servers have settings in the environment
    for _name in [name for name in os.environ if name.startswith("GLINER_")]:
        _patch.delenv(_name)
    _SETTINGS = Settings().decided_for("cpu", cores=1)


def view(kind: type[T], **changes: Any) -> T:
    """`kind` with the settings' defaults, but for `changes`: to settings, or to constants among its fields."""
    settings = {name: value for name, value in changes.items() if name in Settings.model_fields}
    constants = {name: value for name, value in changes.items() if name not in settings}
    return replace(_SETTINGS.model_copy(update=settings).view(kind), **constants)
