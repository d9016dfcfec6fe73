"""Wire formats of other servers, one module each. A module translates between its format and the gateway's own types.

A module of this package needs no registration: it defines `endpoints(options)`, and the setting `compat` enables it by
its name. Settings of its own are declared in `settings/formats` and are the fields of its class `Options`. A route that
several formats have in common is defined in `gateway/shared_routes.py`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.options import GatewayOptions


def compat_endpoints(options: GatewayOptions) -> list[Endpoint]:
    """The endpoints of all enabled formats, in the order of the formats' names."""
    endpoints: dict[int, Endpoint] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if "all" in options.compat or name in options.compat:
            format_endpoints = import_module(f"{__name__}.{name}").endpoints(options)
            endpoints |= {id(endpoint): endpoint for endpoint in format_endpoints}  # by id: shared endpoints once
    return list(endpoints.values())
