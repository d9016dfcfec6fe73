"""Settings of other servers' wire formats. A module has those of the module of `gateway.compat` with the same name.

A module needs no registration: its class `Fields` is found. A setting of several formats is the gateway's.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from pydantic import create_model
from pydantic_settings import BaseSettings

FIELDS: dict[str, type[BaseSettings]] = {
    module.name: import_module(f"{__name__}.{module.name}").Fields for module in pkgutil.iter_modules(__path__)
}
"""The settings of each format that has any, by the format's name."""

if TYPE_CHECKING:

    class FormatFields(BaseSettings):
        """Wire formats of other servers."""

else:
    FormatFields = create_model(
        "FormatFields", __base__=tuple(FIELDS.values()), __doc__="Wire formats of other servers."
    )
