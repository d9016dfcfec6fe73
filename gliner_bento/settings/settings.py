"""The settings of a server: one class of all fields, which reads and checks them, and decides automatic values.

A setting has one name: `max_batch_size` is the flag `--max-batch-size`, the environment variable
`GLINER_MAX_BATCH_SIZE` and the key `max_batch_size` under `gliner:` in configuration.yaml, in this order of precedence.
The file's other section, `services:`, holds BentoML's own keys for each service. `ALIASES` are gliner.serve's names.

The options of the scheduler, the engine, the adapters and the gateway are views of the settings (`Settings.view`):
dataclasses with fields of the same names and without defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from gliner_bento.settings.adapters import AdapterFields
from gliner_bento.settings.configuration import (
    Configuration,
    SettingsError,
    read_configuration,
    refuse_unknown,
    under_one_name,
)
from gliner_bento.settings.cores import usable_cores
from gliner_bento.settings.gateway import GatewayFields
from gliner_bento.settings.gliner_serve import ALIASES
from gliner_bento.settings.model import ModelFields
from gliner_bento.settings.models import ModelTableFields, checked_own, split_models
from gliner_bento.settings.names import (
    DISABLE_COMPILE,
    ENV_PREFIX,
    aliased_environment,
    env_name,
    flag_name,
    origin,
)
from gliner_bento.settings.process import ProcessFields
from gliner_bento.settings.scheduling import SchedulingFields

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

# Kubernetes sets these variables in every pod of a namespace that has a Service named gliner or gliner-bento.
# The clients read CLIENT_API_KEY.
_NO_SETTING = re.compile(
    r"GLINER(_BENTO)?_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?|CLIENT_(API|REDACT)_KEY)"
)

_MAX_CPU_LANES = 4
_AUTO_BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}


class Settings(ProcessFields, GatewayFields, AdapterFields, SchedulingFields, ModelTableFields, ModelFields):
    """The settings of a server. `load` reads them, `decided_for` decides automatic values, `view` selects a part."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", validate_default=True
    )

    config: Annotated[Path, AfterValidator(Path.resolve)] | None = Field(
        None, description="Path of the configuration file; unset: configuration.yaml next to service.py."
    )

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None, file: Path | None = None) -> Settings:
        """Flags over environment over file over defaults. Raises `SettingsError`.

        file: overrides the flag and the environment variable of `config`.
        """
        given = dict(flags or {}) | ({"config": file} if file else {})
        known = [*cls.model_fields, *ALIASES]
        refuse_unknown(given, known, "unknown setting")
        if {"model", "models"} <= given.keys():
            raise SettingsError("model: leave it out, or give it a name as the others have: --model NAME=CHECKPOINT")
        refuse_unknown(
            (name for name in os.environ if name.upper().startswith(ENV_PREFIX) and not _NO_SETTING.fullmatch(name)),
            [*map(env_name, known), DISABLE_COMPILE],
            "unknown environment variable",
            str.upper,
        )
        try:
            return cls(**under_one_name(given, ALIASES, flag_name))
        except ValidationError as error:
            raise SettingsError("; ".join(_one_line(fault, given) for fault in error.errors())) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Sources of values, in order of precedence."""
        file = (env_settings() | init_settings()).get("config")
        section = _read(Path(file) if file else None).gliner
        aliased = InitSettingsSource(settings_cls, init_kwargs=aliased_environment())
        return init_settings, aliased, env_settings, InitSettingsSource(settings_cls, init_kwargs=section)

    @model_validator(mode="after")
    def _check_models(self) -> Settings:
        """The models' own settings are valid, and are those of models that there are."""
        names = [one.partition("=")[0] for one in self.models]
        for name, own in self.model_settings.items():
            if name not in names:
                raise ValueError(f"model_settings: no model {name} in models")
            try:
                own.update(checked_own(own))
            except ValueError as error:
                raise ValueError(f"models: {name}: {error}") from None
        if len([own for own in self.model_settings.values() if own.get("default")]) > 1:
            raise ValueError("models: only one can be the default")
        return self

    def with_own(self, name: str, model: str, own: Mapping[str, Any]) -> Settings:
        """The settings of one of several models. own: see `checked_own`."""
        settings = {key: value for key, value in own.items() if key in type(self).model_fields}
        row = {"model": model, "models": (f"{name}={model}",), "model_settings": {name: {**own}}}
        return self.model_copy(update=settings | row)

    def decided_for(self, device: str, cores: int | None = None) -> Settings:
        """The settings of one instance: replaces automatic values (0), which depend on `device` ("cpu", "cuda:0") and
        cores; divides cores and memory among the instances.

        Raises `SettingsError` if there are more instances than cores.
        """
        kind = "cuda" if device.startswith("cuda") else "cpu"
        cores = cores or usable_cores()
        if kind == "cpu" and self.num_instances > cores:
            raise SettingsError(
                f"num_instances: {self.num_instances} instances need as many cores, and this process may use {cores}; "
                "lower num_instances"
            )
        cores = max(1, cores // self.num_instances)
        lanes = self.inference_lanes or (1 if kind == "cuda" else min(cores, _MAX_CPU_LANES))
        return self.model_copy(
            update={
                "max_batch_tokens": self.max_batch_tokens or _AUTO_BATCH_TOKENS[kind],
                "inference_lanes": lanes,
                "torch_threads": self.torch_threads or max(1, cores // lanes),
                "target_memory_fraction": self.target_memory_fraction / self.instances_per_device,
            }
        )

    @property
    def instances_per_device(self) -> int:
        """How many instances share a device, at most."""
        return -(-self.num_instances // max(1, len(self.cuda_devices)))

    def view(self, kind: type[T]) -> T:
        """The settings that a package uses: every field of its dataclass `kind` gets the setting of the same name.

        A field with a default keeps it: it is a constant, not a setting. Raises TypeError for any other field without a
        setting.
        """
        names = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]
        if unknown := sorted(set(names).difference(type(self).model_fields)):
            raise TypeError(f"{kind.__name__}: no such setting: {', '.join(unknown)}")
        return kind(**{name: getattr(self, name) for name in names})

    def configuration(self) -> Configuration:
        """The content of the configuration file."""
        return _read(self.config)


def _read(file: Path | None) -> Configuration:
    content = read_configuration(file, {*Settings.model_fields, *ALIASES} - {"config"})
    return Configuration(split_models(under_one_name(content.gliner, ALIASES)), content.services)


def _one_line(fault: Any, flags: Mapping[str, Any]) -> str:
    message = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return str(message)
    name = str(fault["loc"][0])
    value = "a secret" if name in ("token", "api_keys") else repr(fault["input"])
    return f"{name}: {message} (got {value} from {origin(name, flags) or 'the configuration file'})"
