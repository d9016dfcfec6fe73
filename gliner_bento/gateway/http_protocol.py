"""uvicorn's HTTP protocol, which answers what is not HTTP with the one error body in place of plain text.

The gateway's middleware sees no request that uvicorn could not parse.
"""

from __future__ import annotations

from typing import Any

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gliner_bento.errors import MalformedRequest
from gliner_bento.gateway import request_id
from gliner_bento.gateway.error_body import error_response


class HttpProtocol(HttpToolsProtocol):
    """A connection. Given to uvicorn as `--http gliner_bento.gateway.http_protocol:HttpProtocol`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ws_protocol_class = None  # there are no WebSockets: a request for one is a request without the upgrade

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that cannot be parsed, and close the connection."""
        answer_id = request_id.begin(None)
        response = error_response(MalformedRequest("the request is not valid HTTP"))
        headers = [*response.raw_headers, (b"x-request-id", answer_id.encode()), (b"connection", b"close")]
        lines = [b"HTTP/1.1 400 Bad Request", *(b"%s: %s" % header for header in headers), b""]
        self.transport.write(b"\r\n".join([*lines, bytes(response.body)]))
        self.transport.close()


def serve_http() -> None:
    """Make it uvicorn's default in this process, for BentoML, which has no option for it."""
    HTTP_PROTOCOLS["auto"] = f"{HttpProtocol.__module__}:{HttpProtocol.__name__}"
