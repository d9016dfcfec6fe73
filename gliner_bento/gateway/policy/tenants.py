"""The tenant that sends a request. Request ids, shares of the replica and limits are per tenant.

An API key names its tenant. On a server without keys, the tenant is the value of the header `tenant_header`, if that is
set and sent, else the client's address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gliner_bento.errors import MalformedRequest
from gliner_bento.privacy.lists import NO_LISTS, Lists
from gliner_bento.storage.api_keys import ALL_SCOPES, NAME_PATTERN, KeyScope

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:\-]")
_MAX_NAME_CHARS = 128


@dataclass(frozen=True, slots=True)
class Tenant:
    """One of the parties that share a server.

    crosses_tenants: whether the `priority` of its requests also counts against the requests of other tenants.
    weight: its share of the replica, relative to the other tenants' weights.
    max_concurrency, max_requests_per_s: replace the settings max_tenant_concurrency and max_tenant_requests_per_s;
        None: the settings apply.
    lists: add to those of the model and of requests.
    """

    name: str
    scopes: frozenset[KeyScope] = ALL_SCOPES
    crosses_tenants: bool = False
    weight: float = 1.0
    max_concurrency: int | None = None
    max_requests_per_s: float | None = None
    lists: Lists = NO_LISTS


OUTSIDE_HTTP = Tenant("local")


def named_in(headers: Mapping[str, str], tenant_header: str | None) -> Tenant | None:
    """The tenant that a header names, on a server without API keys. Raises `MalformedRequest` for an invalid name."""
    name = headers.get(tenant_header.lower()) if tenant_header else None
    if name and not re.fullmatch(NAME_PATTERN, name):
        raise MalformedRequest(f"the header {tenant_header} must match {NAME_PATTERN}")
    return Tenant(name) if name else None


def at_address(address: str) -> Tenant:
    """The tenant of a client's address."""
    return _named(address[:_MAX_NAME_CHARS])


@lru_cache(maxsize=1024)  # clients behind a proxy choose it: only short ones are kept
def _named(address: str) -> Tenant:
    return Tenant(_NOT_IN_NAMES.sub("_", address) or OUTSIDE_HTTP.name)
