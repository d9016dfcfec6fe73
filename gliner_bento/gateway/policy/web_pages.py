"""Which web pages may call a server without API keys, through the browser of somebody who can reach the server.

A browser sends the page's origin as `Origin`, and how that relates to this server as `Sec-Fetch-Site`. If the page's
owner points the page's own name at this server (DNS rebinding), `Host` is a name in public DNS.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from gliner_bento.errors import Forbidden
from gliner_bento.gateway.options import GatewayOptions

_NOT_IN_PUBLIC_DNS = (".localhost", ".local", ".internal", ".svc", ".home.arpa")
_MAX_HOST_CHARS = 300
"""A name in DNS has at most 253. What clients send is kept, so that nothing longer is."""
_NO_HOST = "invalid."
"""A name that no host has, and that counts as public."""


class WebPages:
    """The rules of one server. Only browsers send `Origin` and `Sec-Fetch-Site`."""

    def __init__(self, options: GatewayOptions) -> None:
        self._origins = set(options.cors_origins)
        self._own_hosts = {socket.gethostname().lower(), *(_host_in(origin) for origin in self._origins)}

    def check(self, headers: Mapping[str, str], *, allow_public_hosts: bool) -> None:
        """Raise `Forbidden` for a request from a page that may not call the server. allow_public_hosts: whether clients
        other than pages may call it by a name in public DNS."""
        origin, host_header = headers.get("origin"), headers.get("host", "")
        if "*" in self._origins or origin in self._origins:
            return
        host = _host_of(host_header)
        if headers.get("sec-fetch-site") == "cross-site" or (origin and not _is_own_page(origin, host)):
            raise Forbidden(f"a page of {(origin or 'another site')[:200]} may not call this server (cors_origins)")
        if host in self._own_hosts or not _is_public(host):
            return
        if not allow_public_hosts:
            rule = "a server without API keys may only be called by an IP address or a name of its machine"
            allow = "set api_keys or (not for the scope admin) allow_anonymous"
            raise Forbidden(f"host {host_header[:200]}: {rule}; to allow other names, {allow}")
        if origin and not origin.startswith("https:"):  # a certificate proves that the name is the server's
            raise Forbidden(f"a page of {origin[:200]} may not call this server (use cors_origins, API keys or https)")


def _is_own_page(origin: str, host: str) -> bool:
    """Whether a page comes from this server, or from a program on the visitor's own machine."""
    page_host = _host_in(origin)
    return bool(page_host) and (page_host in (host, "localhost") or _is_loopback(page_host))


def _host_of(header: str) -> str:
    """The name or the address in a Host header."""
    return _short_host_of(header) if len(header) <= _MAX_HOST_CHARS else _NO_HOST


@lru_cache(maxsize=64)  # clients choose it
def _short_host_of(header: str) -> str:
    return _host_in(f"//{header}")


def _host_in(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return _NO_HOST


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def _is_public(name: str) -> bool:
    """Whether a name may be in public DNS: it has a dot, and is neither an address nor in a private domain."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name and not name.endswith(_NOT_IN_PUBLIC_DNS)
    return False
