"""GLiNERServeConfig: gliner.serve's fields, and our settings for them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any

from gliner_bento.settings import Settings
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.gliner_serve import BY_FIELD, OPTIONS, Option, without_effect

logger = logging.getLogger(__name__)


def _field(option: Option) -> Any:
    """The field of an option, as `make_dataclass` takes it. Its default is that of our setting; or gliner.serve's, if
    there is no setting or gliner.serve's default is None."""
    default = option.default
    if option.setting and default is not None:
        default = Settings.model_fields[option.setting].default
    if isinstance(default, tuple):
        return option.field, list, field(default_factory=lambda: list(default))
    if option.field == "model":
        return option.field, str
    kind: Any = Any if default is None else type(default)
    return option.field, kind, field(default=default)


_Fields: Any = make_dataclass("_Fields", map(_field, OPTIONS))


@dataclass
class GLiNERServeConfig(_Fields):  # type: ignore[misc]
    """The fields of gliner.serve's class. The defaults are this server's (docs/migrate/gliner-serve.md compares);
    a field that keeps its default leaves the setting to the environment and configuration.yaml."""

    def __post_init__(self) -> None:
        """Add `max_batch_size` to the batch sizes that are warmed up, as gliner.serve does."""
        self.precompiled_batch_sizes: list[int] = sorted({*self.precompiled_batch_sizes, self.max_batch_size})

    def given(self) -> dict[str, Any]:
        """The fields that differ from the defaults."""
        default = type(self)(self.model)
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name == "model" or (value is not None and value != getattr(default, name))
        }

    def settings(self) -> dict[str, str]:
        """The settings of the fields that differ from the defaults. Raises `SettingsError` for a field that cannot be
        served; logs a field that has no effect."""
        given = self.given()
        for line in without_effect(given):
            logger.warning("%s", line)
        return {
            setting: text_of(tuple(value) if isinstance(value, list) else value)
            for name, value in given.items()
            if (setting := BY_FIELD[name].setting)
        }
