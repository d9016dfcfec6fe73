"""The settings of a server: one class with all fields. It reads and checks them, and replaces automatic values.

A setting has one name: `max_batch_size` is the flag `--max-batch-size`, the environment variable
`GLINER_MAX_BATCH_SIZE` and the key `max_batch_size` under `gliner:` in configuration.yaml, in this order of precedence.
The file's other section, `services:`, holds BentoML's own keys for each service. `ALIASES` are gliner.serve's names.

The options of the scheduler, the engine, the adapters and the gateway are views of the settings (`Settings.view`):
dataclasses with fields of the same names and without defaults.
"""

from __future__ import annotations

import math
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
    resolve_aliases,
)
from gliner_bento.settings.cores import usable_cores
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.formats import FormatFields
from gliner_bento.settings.gateway import GatewayFields
from gliner_bento.settings.gliner_serve import ALIASES
from gliner_bento.settings.marks import FlagOfCommands
from gliner_bento.settings.model import ModelFields
from gliner_bento.settings.models import ModelTableFields, checked_own, split_models
from gliner_bento.settings.names import DISABLE_COMPILE, ENV_PREFIX, aliased_environment, env_name, flag_name, origin
from gliner_bento.settings.process import ProcessFields
from gliner_bento.settings.scheduling import SchedulingFields

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_SERVICE_LINK = re.compile(
    rf"{ENV_PREFIX}(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)|{ENV_PREFIX}PORT"
)
"""Environment variables that Kubernetes sets in a pod for each Service of its namespace, here for names such as gliner,
gliner-bento and gliner-api."""
_CLIENT_KEYS = (f"{ENV_PREFIX}CLIENT_API_KEY", f"{ENV_PREFIX}CLIENT_REDACT_KEY")
"""Environment variables of clients, and of the command `redact`."""

_SECRET = ("allow_list", "api_keys", "deny_list", "redaction_key", "redis_url", "token")
"""Errors do not show their values, and `Settings.shown` only paths. The lists may have personal data."""

_MAX_CPU_LANES = 4
_AUTO_BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}


class Settings(
    ProcessFields, FormatFields, GatewayFields, AdapterFields, SchedulingFields, ModelTableFields, ModelFields
):
    """The settings of a server. `load` reads them, `decided_for` replaces automatic values, `view` selects a part."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", validate_default=True
    )

    config: Annotated[Annotated[Path, AfterValidator(Path.resolve)] | None, FlagOfCommands()] = Field(
        None, description="Path of the configuration file; unset: configuration.yaml next to service.py."
    )

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None, file: Path | None = None) -> Settings:
        """Load flags, environment variables and the file, in this order of precedence. Raises `SettingsError`.

        file: overrides the flag and the environment variable of `config`.
        """
        given = dict(flags or {}) | ({"config": file} if file else {})
        known = [*cls.model_fields, *ALIASES]
        refuse_unknown(given, known, "unknown setting")
        if {"model", "models"} <= given.keys():
            raise SettingsError("model: leave it out, or give it a name as the others have: --model NAME=CHECKPOINT")
        refuse_unknown(
            (name for name, value in os.environ.items() if _may_be_setting(name.upper(), value)),
            [*map(env_name, known), DISABLE_COMPILE],
            "unknown environment variable",
            str.upper,
        )
        try:
            return cls(**resolve_aliases(given, ALIASES, flag_name))
        except ValidationError as error:
            raise SettingsError("; ".join(_message(fault, given) for fault in error.errors())) from None

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
        from_environment, _, _ = env_settings.get_field_value(settings_cls.model_fields["config"], "config")
        file = ({"config": from_environment} | init_settings())["config"]
        section = _read(Path(file) if file else None).gliner
        aliased = InitSettingsSource(settings_cls, init_kwargs=aliased_environment())
        return init_settings, aliased, env_settings, InitSettingsSource(settings_cls, init_kwargs=section)

    @model_validator(mode="after")
    def _check_models(self) -> Settings:
        """Check and parse `model_settings`: only models in `models` have settings of their own."""
        names = [model.partition("=")[0] for model in self.models]
        for name, own in self.model_settings.items():
            if name not in names:
                raise ValueError(f"model_settings: no model {name} in models")
            try:
                own.update(checked_own(own))
            except ValueError as error:
                raise ValueError(f"models: {name}: {error}") from None
        if sum(bool(own.get("default")) for own in self.model_settings.values()) > 1:
            raise ValueError("models: only one can be the default")
        return self

    def with_own(self, name: str, model: str, own: Mapping[str, Any]) -> Settings:
        """The settings of one of several models. model: its checkpoint. own: its own settings, see `checked_own`."""
        overrides = {key: value for key, value in own.items() if key in type(self).model_fields}
        only_model = {"model": model, "models": (f"{name}={model}",), "model_settings": {name: {**own}}}
        return self.model_copy(update=overrides | only_model)

    def decided_for(self, device: str, cores: int | None = None) -> Settings:
        """The settings of one instance: automatic values (0) are replaced, cores and memory divided among instances.

        device: "cpu" or "cuda:0". cores: number for all instances together; default: all that this process may use.
        Raises `SettingsError` if there are more instances than cores.
        """
        device_type = "cuda" if device.startswith("cuda") else "cpu"
        cores = cores or usable_cores()
        if device_type == "cpu" and self.num_instances > cores:
            raise SettingsError(
                f"num_instances: {self.num_instances} instances need as many cores, and this process may use {cores}; "
                "lower num_instances"
            )
        instance_cores = max(1, cores // self.num_instances)
        lanes = self.inference_lanes or (1 if device_type == "cuda" else min(instance_cores, _MAX_CPU_LANES))
        return self.model_copy(
            update={
                "max_batch_tokens": self.max_batch_tokens or _AUTO_BATCH_TOKENS[device_type],
                "inference_lanes": lanes,
                "torch_threads": self.torch_threads or max(1, instance_cores // lanes),
                "target_memory_fraction": self.target_memory_fraction / self.instances_per_device,
            }
        )

    @property
    def instances_per_device(self) -> int:
        """Maximum number of instances that share a device."""
        return math.ceil(self.num_instances / max(1, len(self.cuda_devices)))

    @property
    def formats(self) -> dict[str, Any]:
        """The settings of wire formats, by name."""
        return {name: getattr(self, name) for name in FormatFields.model_fields}

    def view(self, options: type[T]) -> T:
        """The settings that a package uses: every field of its dataclass `options` gets the setting of the same name.

        A field with a default keeps it, because it is a constant and no setting. Raises TypeError for any other field
        without a setting.
        """
        names = [
            field.name for field in fields(options) if field.default is MISSING and field.default_factory is MISSING
        ]
        if unknown := sorted(set(names).difference(type(self).model_fields, {"formats"})):
            raise TypeError(f"{options.__name__}: no such setting: {', '.join(unknown)}")
        return options(**{name: getattr(self, name) for name in names})

    def shown(self, name: str) -> str | None:
        """A setting's value as it may be shown; None: it is unset. Of secrets and of lists, only a path is shown."""
        value = getattr(self, name)
        if value is None:
            return None
        text = text_of(value)
        is_hidden = name in _SECRET and (not os.path.isabs(text) or "\n" in text)
        return "**********" if is_hidden else text

    def configuration(self) -> Configuration:
        """The content of the configuration file."""
        return _read(self.config)


def _read(file: Path | None) -> Configuration:
    content = read_configuration(file, {*Settings.model_fields, *ALIASES} - {"config"})
    return Configuration(split_models(resolve_aliases(content.gliner, ALIASES)), content.services)


def _message(fault: Any, flags: Mapping[str, Any]) -> str:
    message = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return str(message)
    name = str(fault["loc"][0])
    value = "a secret" if name in _SECRET else repr(fault["input"])
    return f"{name}: {message} (got {value} from {origin(name, flags) or 'the configuration file'})"


def _may_be_setting(name: str, value: str) -> bool:
    """Whether an environment variable is a setting, or may be a misspelt one. A URL in a variable like GLINER_API_PORT
    is a service link."""
    is_link = _SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and "://" in value)
    return name.startswith(ENV_PREFIX) and name not in _CLIENT_KEYS and not is_link
