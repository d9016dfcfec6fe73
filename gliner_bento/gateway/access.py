"""Who may call what: finds the tenant of a request before its body is read, from its API key if the server has keys.

Each `Endpoint` declares the scope that it needs. Probes, pages and the OpenAPI document are open. An unknown path needs
any valid key, so that a caller without a key does not learn which paths exist. On a server without keys, only clients
on its own machine have the scope `admin`, whoever else may call it.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope

from gliner_bento.errors import Forbidden, GLiNERBentoError, Unauthorized
from gliner_bento.gateway.endpoint import EndpointTable
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy import tenants
from gliner_bento.gateway.policy.client_address import ClientAddress, is_from_loopback, is_to_loopback
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.gateway.policy.web_pages import WebPages
from gliner_bento.storage.api_keys import ALL_SCOPES, ApiKey, ApiKeys, KeyScope

OPEN_PATHS_OF_BENTOML = ("/schema.json", "/static_content")
"""Routes of BentoML that need no key: the types of the API, and the static files of the index page."""

_BEARER = "bearer "


class Access:
    """The rules of one server. table: of all its endpoints."""

    def __init__(self, table: EndpointTable, options: GatewayOptions) -> None:
        self._table = table
        self._keys = ApiKeys(options.api_keys) if options.api_keys else None
        self._tenant_header = options.tenant_header
        self._allow_anonymous = options.allow_anonymous
        self._client_address = ClientAddress(options.forwarded_allow_ips)
        self._web_pages = WebPages(options)

    def admit(self, scope: Scope, headers: Mapping[str, str], path: str) -> tuple[Tenant, GLiNERBentoError | None]:
        """The tenant of a request, and why it may not call `path`; None if it may. The tenant of a refused request is
        its address, for the log. path: without the root path."""
        try:
            return self._tenant_of(scope, headers, path), None
        except GLiNERBentoError as error:  # kept without its traceback, which would make a reference cycle
            return self._at_address(scope), error.with_traceback(None)

    def _tenant_of(self, scope: Scope, headers: Mapping[str, str], path: str) -> Tenant:
        accepted = self._accepted_scopes(scope["method"], path)
        if self._keys is None:
            if accepted:
                self._check_without_keys(scope, headers, accepted)
            return tenants.named_in(headers, self._tenant_header) or self._at_address(scope)
        return _tenant(self._identify(headers), accepted) if accepted else self._at_address(scope)

    def _check_without_keys(self, scope: Scope, headers: Mapping[str, str], accepted: frozenset[KeyScope]) -> None:
        if not (self._allow_anonymous or is_to_loopback(scope)):
            raise Forbidden("this server has no API keys, so it answers on the loopback address only")
        needs_admin = accepted == {"admin"}
        if needs_admin and not is_from_loopback(scope, headers):
            raise Forbidden(
                "this server has no API keys, so only a client on its own machine, without a proxy between, may call "
                "this route; to call it from elsewhere, set api_keys"
            )
        self._web_pages.check(headers, allow_public_hosts=self._allow_anonymous and not needs_admin)

    def _at_address(self, scope: Scope) -> Tenant:
        return tenants.at_address(self._client_address.of(scope))

    def _accepted_scopes(self, method: str, path: str) -> frozenset[KeyScope]:
        """A key with any of these scopes may call the route; empty for an open route."""
        methods, _ = self._table.find(path)
        if not methods and path.startswith(OPEN_PATHS_OF_BENTOML):
            return frozenset()
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            return ALL_SCOPES
        return frozenset({endpoint.scope, "admin"}) if endpoint.scope else frozenset()

    def _identify(self, headers: Mapping[str, str]) -> ApiKey:
        authorization = headers.get("authorization", "")
        is_bearer = authorization[: len(_BEARER)].lower() == _BEARER
        key = authorization[len(_BEARER) :].strip() if is_bearer else headers.get("x-api-key")
        if not key:
            raise Unauthorized("an API key is needed: send it as Authorization: Bearer KEY, or as X-API-Key: KEY")
        entry = self._keys.find(key) if self._keys else None
        if entry is None:
            raise Unauthorized("the API key is not valid")
        return entry


def _tenant(key: ApiKey, accepted: frozenset[KeyScope]) -> Tenant:
    if not accepted & key.scopes:
        missing = min(accepted - {"admin"}, default="admin")  # the route's own scope; admin is accepted everywhere
        raise Forbidden(f"the API key lacks the scope {missing}")
    return Tenant(
        name=key.tenant or key.name,
        scopes=key.scopes,
        crosses_tenants=key.crosses_tenants,
        weight=key.weight,
        max_concurrency=key.max_concurrency,
        max_requests_per_s=key.max_requests_per_s,
        lists=key.lists,
    )
