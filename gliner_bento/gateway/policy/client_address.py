"""The address of a request's client: that of its connection or, behind a trusted proxy, the one in X-Forwarded-For.

Only this module decides it: uvicorn's own middleware trusts every program on the machine, and runs after early
refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


class ClientAddress:
    """Finds the client's address. forwarded_allow_ips: addresses and networks of trusted proxies; *: all are."""

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
    """The middleware is used for its list of proxies only."""
