"""uvicorn's HTTP protocol with limits on connections: how many, the time and the size of headers, the pace of bodies.

ASGI begins after the headers, so no middleware can set these, or see what is not HTTP. A connection over a Unix socket
has no limits: its peers are processes of ours. What is refused gets the one error body, as everywhere. A request that
an overloaded server refuses does not become an ASGI task; what arrives of its body is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from typing import Any, ClassVar

from starlette.responses import Response
from uvicorn._types import ASGI3Application
from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gliner_bento.errors import GLiNERBentoError, HeadersTooLarge, MalformedRequest, NotReady, RequestTimeout
from gliner_bento.gateway import request_id
from gliner_bento.gateway.early_refusal import EarlyRefusal, Refusal
from gliner_bento.gateway.error_body import error_response
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.turns import Turns

logger = logging.getLogger("gliner_bento.gateway")

MAX_HEADER_BYTES = 2**16
PACE_BYTES = 2**16
"""A body has `body_timeout_s` for so many bytes, or for the rest of it."""

_OTHER_FILES = 256


def limit_connections(options: GatewayOptions, early: EarlyRefusal | None = None) -> None:
    """Set the limits of this process, and make this uvicorn's default protocol: BentoML has no option for it."""
    HttpProtocol.options = options
    HttpProtocol.early = early
    _allow_files(2 * options.max_connections + _OTHER_FILES)  # each request has a connection to the runner, too
    HTTP_PROTOCOLS["auto"] = f"{__name__}:{HttpProtocol.__name__}"


def _allow_files(number: int) -> None:
    """Raise the process's limit on open files to `number`, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class HttpProtocol(HttpToolsProtocol):
    """One connection. `idle`: those without a request under way, the longest first; they make room for new ones."""

    options: ClassVar[GatewayOptions | None] = None
    early: ClassVar[EarlyRefusal | None] = None
    turns: ClassVar[Turns] = Turns()
    idle: ClassVar[dict[HttpProtocol, None]] = {}

    _limits: GatewayOptions | None = None
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _reads_body = False
    _bytes = 0  # of headers, or of a body since its timer was set
    _dropped = 0  # bytes of a body whose request has been answered
    _held: tuple[RequestResponseCycle, ASGI3Application] | None = None  # until its body is complete

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.app, ProxyHeadersMiddleware):  # see `ClientAddress`
            self.app = self.app.app
        self.ws_protocol_class = None  # there are no WebSockets: a request for one is a request without the upgrade

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        if self.client is None or self.options is None:
            return
        self._limits = self.options
        self.timeout_keep_alive = self._limits.keep_alive_timeout_s
        self._await_headers()
        if len(self.connections) > self._limits.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self.idle.pop(self, None)
        self._unset_timer()
        if self._write_timer:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request has arrived."""
        awaited_headers = self in self.idle  # else `data` may be the end of a body
        super().data_received(data)
        if self._limits is None or self.transport.is_closing():
            return
        self._bytes += len(data)
        if self._reads_body:
            if self._timer is None or self._bytes >= PACE_BYTES:
                self._set_timer(self._limits.body_timeout_s)
        elif awaited_headers and self in self.idle:
            if self._bytes > MAX_HEADER_BYTES:
                self._refuse(HeadersTooLarge(f"the headers have more than {MAX_HEADER_BYTES} bytes"))
            elif self._timer is None:
                self._set_timer(self._limits.header_timeout_s, self._bytes)

    def on_headers_complete(self) -> None:
        """A request begins."""
        self.idle.pop(self, None)
        self._unset_timer()
        self._reads_body = True
        self._dropped = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Part of a request's body has arrived."""
        super().on_body(body)
        if self._limits and self.cycle.response_complete:
            self._dropped += len(body)
            if self._dropped > max(self._limits.max_body_bytes, self._limits.max_adapter_bytes):
                self.transport.close()

    def on_message_complete(self) -> None:
        """A request has been received."""
        self._reads_body = False
        self._unset_timer()
        super().on_message_complete()
        held, self._held = self._held, None
        if held:
            self._start_in_turn(*held)
        elif self._limits and self.cycle.response_complete:  # it was refused before its body was read
            self._await_next()

    def on_response_complete(self) -> None:
        """A response has been sent."""
        super().on_response_complete()
        if self._limits and self.cycle.response_complete and not self._reads_body and not self.transport.is_closing():
            self._bytes = 0
            self.idle[self] = None

    def pause_writing(self) -> None:
        """The client reads slower than the server writes."""
        super().pause_writing()
        if self._limits:
            self._write_timer = self.loop.call_later(self._limits.body_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._write_timer:
            self._write_timer.cancel()
            self._write_timer = None

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(MalformedRequest("the request is not valid HTTP"))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Refuse a request, or have the app answer it; one extraction per iteration of the event loop."""
        scope: Any = cycle.scope
        if not (self._limits and self.early and self.early.may_refuse(scope)):
            super()._start_asgi_task(cycle, app)
        elif cycle.more_body and not cycle.waiting_for_100_continue and self.early.reads_body(scope):
            if not self._refused(cycle):
                self._held = cycle, app
        else:
            self._start_in_turn(cycle, app)

    def _start_in_turn(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        assert self.early
        scope: Any = cycle.scope
        if not self._refused(cycle):
            start = super()._start_asgi_task
            if self.turns.free:
                self.turns.take(lambda: start(cycle, app))
            else:
                expected = self.early.expect(scope)
                self.turns.take(lambda: self._start_or_refuse(cycle, app, expected))

    def _start_or_refuse(
        self, cycle: RequestResponseCycle, app: ASGI3Application, expected: Callable[[], None]
    ) -> None:
        """What was admitted meanwhile may have cost more than was expected."""
        expected()
        if not self._refused(cycle):
            super()._start_asgi_task(cycle, app)

    def _refused(self, cycle: RequestResponseCycle) -> bool:
        """Refuse a request if the server is overloaded. If other requests wait for its response, the app refuses it: to
        continue with the next one from here would be a recursion of any depth. If the check itself fails, the app
        answers: the parser would report the exception as bad HTTP."""
        assert self.early
        scope: Any = cycle.scope
        possible = cycle is self.cycle and not cycle.disconnected and not self.flow.write_paused
        try:
            body = bytes(cycle.body) if not cycle.more_body and self.early.reads_body(scope) else None
            refusal = self.early.refuse(scope, body) if possible else None
        except Exception:
            logger.exception("%s %s could not be refused early", scope["method"], scope["path"])
            refusal = None
        if refusal:
            self._send_refusal(cycle, refusal)
        return refusal is not None

    def _send_refusal(self, cycle: RequestResponseCycle, refusal: Refusal) -> None:
        if cycle.waiting_for_100_continue:  # the client may send its body or not
            cycle.keep_alive = False
        defaults = b"".join(b"%s: %s\r\n" % header for header in cycle.default_headers)
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[refusal.status] + defaults + refusal.headers + end + refusal.body)
        cycle.response_started = cycle.response_complete = True
        if not self._reads_body:
            self._await_next()
        self.on_response_complete()

    def _await_next(self) -> None:
        """A request has been refused, and received: the next one may come."""
        assert self._limits
        if not self.cycle.keep_alive:
            self.transport.close()
        elif not self.transport.is_closing():
            self._bytes = 0
            self.idle[self] = None
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    def _await_headers(self) -> None:
        assert self._limits
        self.idle[self] = None
        self._set_timer(self._limits.header_timeout_s)

    def _make_room(self) -> None:
        """Close the connection that has been idle longest; this one, if all others have a request."""
        longest = next(iter(self.idle))
        if longest is self:
            self._refuse(NotReady("too many connections; try again later"))
        else:
            del self.idle[longest]
            longest.transport.close()

    def _too_slow(self) -> None:
        assert self._limits
        if self._reads_body and self.flow.read_paused:  # the server reads slower than the client writes
            self._set_timer(self._limits.body_timeout_s)
        else:
            self._refuse(RequestTimeout("the request did not arrive in time"))

    def _set_timer(self, timeout_s: float, received: int = 0) -> None:
        self._unset_timer()
        self._bytes = received
        self._timer = self.loop.call_later(timeout_s, self._too_slow)

    def _unset_timer(self) -> None:
        self._bytes = 0
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, error: GLiNERBentoError) -> None:
        """Answer with an error, unless a response is under way, and close the connection."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or (cycle.response_complete and cycle.keep_alive) or not cycle.response_started:
            request_id.begin(None)
            response = error_response(error)
            response.headers["X-Request-ID"] = request_id.current()
            response.headers["Connection"] = "close"
            self.transport.write(_serialized(response))
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def _serialized(response: Response) -> bytes:
    headers = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return STATUS_LINE[response.status_code] + headers + b"\r\n" + bytes(response.body)
