"""Other servers' wire formats, one file each; they translate to and from the gateway's own types and know no other.

A file in this package is served as it is: it needs `endpoints(options)`, and no registration. Its name is the format's
in the setting `compat`. A route that several formats have is an endpoint of `gateway/shared_routes.py`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.options import GatewayOptions


def compat_endpoints(options: GatewayOptions) -> list[Endpoint]:
    """The endpoints of every format that is on, by the format's name."""
    endpoints: dict[int, Endpoint] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if "all" in options.compat or name in options.compat:
            format_endpoints = import_module(f"{__name__}.{name}").endpoints(options)
            endpoints |= {id(endpoint): endpoint for endpoint in format_endpoints}  # shared ones count once
    return list(endpoints.values())
