"""Other servers' wire formats, one file each; they translate to and from the gateway's own types and know no other.

A file in this package is served as it is: it needs `endpoints(options)`, and no registration.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.options import GatewayOptions


def compat_endpoints(options: GatewayOptions) -> Iterator[Endpoint]:
    """The endpoints of every module in this package, by the module's name."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        yield from import_module(f"{__name__}.{module.name}").endpoints(options)
