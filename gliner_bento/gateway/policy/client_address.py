"""The address of a request's client: its connection's address or, behind a trusted proxy, the one in X-Forwarded-For;
and whether the client runs on this machine.

uvicorn's own middleware is not used for this: by default, it trusts every program on the machine, and it runs after
`EarlyRefusal`, which needs the address too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_FORWARDING_HEADERS = frozenset(
    {
        "cf-connecting-ip",
        "client-ip",
        "fastly-client-ip",
        "forwarded",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-original-forwarded-for",
        "x-real-ip",
    }
)
"""Headers by which proxies report their clients, besides all that begin with `x-forwarded`."""


class ClientAddress:
    """Finds the client's address. forwarded_allow_ips: addresses and networks of trusted proxies; *: any proxy."""

    def __init__(self, forwarded_allow_ips: Sequence[str]) -> None:
        self._trusted = ProxyHeadersMiddleware(_no_app, list(forwarded_allow_ips)).trusted_hosts

    def of(self, scope: Scope) -> str:
        """The address; empty for a Unix socket."""
        peer = scope["client"][0] if scope.get("client") else ""
        if peer not in self._trusted:
            return peer
        forwarded = ", ".join(Headers(scope=scope).getlist("x-forwarded-for"))
        return self._trusted.get_trusted_client_address(forwarded)[0] or peer


def is_to_loopback(scope: Scope) -> bool:
    """Whether a request was sent to the loopback address or a Unix socket, or comes from within the process."""
    server = scope.get("server")
    return not server or _is_loopback(server[0])


def is_from_loopback(scope: Scope, headers: Iterable[str]) -> bool:
    """Whether the client runs on this machine, as far as a request shows it: its connection comes from the loopback
    address, a Unix socket or this process, and no proxy has forwarded it. No header makes a client local. HTTP/1.0
    counts as forwarded: nginx sends it by default, without any of the headers.
    """
    peer = scope.get("client")
    # A connection that its client has reset has no address any more, although its request may still be read.
    is_local = _is_loopback(peer[0]) if peer else is_to_loopback(scope) and not _is_address(scope.get("server"))
    forwarded = any(name in _FORWARDING_HEADERS or name.startswith("x-forwarded") for name in headers)
    return is_local and not forwarded and scope.get("http_version") != "1.0"


def _is_address(server: Sequence[Any] | None) -> bool:
    """Whether a server's address is an IP address, not the path of a Unix socket."""
    return server is not None and _parsed(server[0]) is not None


@lru_cache(maxsize=1024)
def _is_loopback(host: str) -> bool:
    """True also for the path of a Unix socket, and for a name given within the process."""
    address = _parsed(host)
    return address is None or address.is_loopback


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address; None if `host` is none. An IPv4 address that is mapped to IPv6 is returned as IPv4."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


async def _no_app(*_: Any) -> None:
    """Never called: the middleware is used for its list of proxies only."""
