"""Who may call what: finds the tenant of a request before its body is read, from its API key if the server has keys.

Each `Endpoint` declares the scope that it needs. Probes, pages and the OpenAPI document are open. An unknown path needs
any valid key, so that a caller without one learns nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import cache

from starlette.datastructures import Headers
from starlette.routing import compile_path
from starlette.types import Scope

from gliner_bento.errors import Forbidden, Unauthorized
from gliner_bento.gateway.endpoint import Endpoint
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy import tenants
from gliner_bento.gateway.policy.client_address import ClientAddress
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.gateway.policy.web_pages import WebPages
from gliner_bento.storage.api_keys import ALL_SCOPES, ApiKey, ApiKeys, KeyScope

OPEN_PATHS_OF_BENTOML = ("/schema.json", "/static_content")
"""Routes of BentoML that need no key: the types of the API, and the static files of the index page."""

_BEARER = "bearer "


class Access:
    """The rules of one server. Raises `Unauthorized` and `Forbidden`."""

    def __init__(self, endpoints: Iterable[Endpoint], options: GatewayOptions) -> None:
        self._keys = ApiKeys(options.api_keys) if options.api_keys else None
        self._tenant_header = options.tenant_header
        self._allow_anonymous = options.allow_anonymous
        self._client_address = ClientAddress(options.forwarded_allow_ips)
        self._web_pages = WebPages(options)
        self._scopes: dict[str, dict[str, KeyScope | None]] = {}
        for endpoint in endpoints:
            self._scopes.setdefault(endpoint.path, {})[endpoint.method] = endpoint.scope
        self._patterns = [(compile_path(path)[0], path) for path in self._scopes if "{" in path]

    def admit(self, scope: Scope, headers: Headers, path: str) -> None:
        """Begin a request of its tenant, if that tenant may call `path` (below the root path)."""
        tenants.begin(self._at_address(scope, headers))  # so that the log has the address of a refused request
        tenants.begin(self.tenant_of(scope, headers, path))

    def tenant_of(self, scope: Scope, headers: Headers, path: str) -> Tenant:
        """The tenant of a request, if it may call `path` (below the root path)."""
        needed = self.needed(scope["method"], path)
        if self._keys is None:
            if needed and not (self._allow_anonymous or _is_local(scope)):
                raise Forbidden("this server has no API keys, so it answers on the loopback address only")
            if needed:
                self._web_pages.check(headers)
            return tenants.named_in(headers, self._tenant_header) or self._at_address(scope, headers)
        return _tenant(self._identify(headers), needed) if needed else self._at_address(scope, headers)

    def _at_address(self, scope: Scope, headers: Headers) -> Tenant:
        return tenants.at_address(self._client_address.of(scope, headers))

    def needed(self, method: str, path: str) -> frozenset[KeyScope]:
        """The scopes of which a key must have one to call this; empty for an open route."""
        methods = self._scopes.get(path)
        if methods is None:
            if path.startswith(OPEN_PATHS_OF_BENTOML):
                return frozenset()
            methods = next((self._scopes[known] for regex, known in self._patterns if regex.match(path)), {})
        name = "GET" if method == "HEAD" else method
        if name not in methods:
            return ALL_SCOPES
        scope = methods[name]
        return frozenset({scope, "admin"}) if scope else frozenset()

    def _identify(self, headers: Headers) -> ApiKey:
        sent = headers.get("authorization", "")
        key = sent[len(_BEARER) :].strip() if sent[: len(_BEARER)].lower() == _BEARER else headers.get("x-api-key")
        if not key:
            raise Unauthorized("an API key is needed: send it as Authorization: Bearer KEY, or as X-API-Key: KEY")
        entry = self._keys.find(key) if self._keys else None
        if entry is None:
            raise Unauthorized("the API key is not valid")
        return entry


def _tenant(key: ApiKey, needed: frozenset[KeyScope]) -> Tenant:
    if not needed & key.scopes:
        raise Forbidden(f"the API key lacks the scope {min(needed - {'admin'}, default='admin')}")
    return Tenant(
        key.tenant or key.name,
        key.scopes,
        key.crosses_tenants,
        key.weight,
        key.max_concurrency,
        key.max_requests_per_s,
    )


def _is_local(scope: Scope) -> bool:
    """Whether a request came in over the loopback address, a Unix socket, or from within the process."""
    server = scope.get("server")
    return not server or _is_loopback(server[0])


@cache
def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
