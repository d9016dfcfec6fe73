"""Names of the settings: flags, environment variables, gliner.serve's names. Knows no other property of a setting."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gliner_bento.settings.configuration import SettingsError, resolve_aliases
from gliner_bento.settings.gliner_serve import ALIASES

ENV_PREFIX = "GLINER_"

FORWARDED_ALLOW_IPS = "FORWARDED_ALLOW_IPS"
"""uvicorn's environment variable for the setting `forwarded_allow_ips`."""

DISABLE_COMPILE = f"{ENV_PREFIX}DISABLE_COMPILE"
"""A variable of gliner.serve's container: true turns `enable_compilation` off; false, its default, has no effect."""


def env_name(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def flag_name(name: str) -> str:
    """The command line flag of a setting."""
    return "--" + name.replace("_", "-")


def aliases_of(name: str) -> list[str]:
    """gliner.serve's other names of a setting."""
    return [alias for alias, ours in ALIASES.items() if ours == name]


def origin(name: str, flags: Mapping[str, Any]) -> str | None:
    """The flag or environment variable that sets a value; None if the file or the default does."""
    names = [name, *aliases_of(name)]
    environment = {key.upper() for key, value in os.environ.items() if value}
    by_flag = [flag_name(key) for key in names if key in flags]
    by_environment = [env_name(key) for key in names if env_name(key) in environment]
    if name == "enable_compilation" and _compilation_is_disabled():
        by_environment.append(DISABLE_COMPILE)
    return next(iter(by_flag + by_environment), None)


def aliased_environment() -> dict[str, Any]:
    """Values from the environment for settings that have an alias, by the settings' own names."""
    environment = {key.upper(): value for key, value in os.environ.items() if value}
    given = {name: environment.get(env_name(name)) for name in (*ALIASES, *ALIASES.values())}
    if _compilation_is_disabled():
        # The variable counts as an alias of `enable_compilation` with the value false; a different value is refused.
        given |= {"enable_compilation": environment.get(env_name("enable_compilation")), "disable_compile": "false"}
    if not environment.get(env_name("forwarded_allow_ips")):
        given["forwarded_allow_ips"] = environment.get(FORWARDED_ALLOW_IPS)
    aliases = ALIASES | {"disable_compile": "enable_compilation"}
    return resolve_aliases({name: value for name, value in given.items() if value}, aliases, env_name)


def _compilation_is_disabled() -> bool:
    """Whether DISABLE_COMPILE is true. Raises `SettingsError` if its value is neither true nor false."""
    environment = {key.upper(): value for key, value in os.environ.items() if value}
    value = environment.get(DISABLE_COMPILE, "false").lower()
    if value not in ("true", "false"):
        raise SettingsError(f"{DISABLE_COMPILE}: must be true or false (got {value!r})")
    return value == "true"
