"""The address of a request's client: its connection's address or, behind a trusted proxy, the one in X-Forwarded-For.

uvicorn's own middleware is not used for this: by default, it trusts every program on the machine, and it runs after
`EarlyRefusal`, which needs the address too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


class ClientAddress:
    """Finds the client's address. forwarded_allow_ips: addresses and networks of trusted proxies; *: any proxy."""

    def __init__(self, forwarded_allow_ips: Sequence[str]) -> None:
        self._trusted = ProxyHeadersMiddleware(_no_app, list(forwarded_allow_ips)).trusted_hosts

    def of(self, scope: Scope, headers: Headers) -> str:
        """The address; empty for a Unix socket."""
        peer = scope["client"][0] if scope.get("client") else ""
        if peer not in self._trusted:
            return peer
        forwarded = ", ".join(headers.getlist("x-forwarded-for"))
        return self._trusted.get_trusted_client_address(forwarded)[0] or peer


async def _no_app(*_: Any) -> None:
    """Never called: the middleware is used for its list of proxies only."""
