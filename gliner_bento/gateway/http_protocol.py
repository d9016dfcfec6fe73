"""uvicorn's HTTP protocol with limits on connections: their number, the time and size of requests, the pace of bodies.

ASGI begins after the headers, so no middleware can set these limits, or answer input that is not HTTP. Connections
over a Unix socket have no limits, because they come from this server's own processes. Refusals have the usual error
body.

A client may close its direction after its request (shutdown) and still gets its response; see `eof_received`.

A connection handles one request at a time: the next request is parsed after the response. `MAX_HEADER_BYTES` limits all
of a request except its body: the request line, headers, trailers, and the sizes and extensions of chunks.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Message, Scope, Send
from uvicorn.config import HTTP_PROTOCOLS, Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gliner_bento.errors import GLiNERBentoError, HeadersTooLarge, MalformedRequest, NotReady, RequestTimeout
from gliner_bento.fairness.constants import MAX_HEADER_BYTES, PACE_BYTES
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.edge import ENDED, reads_lines
from gliner_bento.gateway.error_body import error_response
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.refuse_early import EarlyRefusal, EarlyRequest, Refusal
from gliner_bento.http.disconnect import LEFT

_HEADER_OVERHEAD = 32
"""Bytes added to the size of each header for the memory that it takes, as in HTTP/2."""

_CHUNK_OVERHEAD = 16
"""Bytes per chunk, for its size and line ends, that `MAX_HEADER_BYTES` does not limit: a body may have many chunks."""

_PARSED_BYTES = 2**10
"""Bytes that are parsed at a time. Requests that end in these bytes are answered before the next bytes are parsed."""

_FIRST_PROBE_S, _LAST_PROBE_S = 0.2, 5.0
"""Time until the first probe of a client that sends no more, and the maximum time between two probes."""

_LATE_S = 0.2
"""Time after which a connection ends that is made after the signal to end. uvicorn asks only those to end that exist
when it stops listening, within 0.1 s of the signal."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_OTHER_FILES = 256
_CLOSE = (b"connection", b"close")
_NOTHING = memoryview(b"")


@dataclass
class ProtocolLimits:
    """Limits of one server. direct: the app for requests that `early` has checked; by default uvicorn's app, which
    also gets all other requests. incomplete: connections that await a request or the rest of a request; the first has
    been without progress for longest, and is closed if there are too many connections. is_ending: see `end`."""

    options: GatewayOptions
    early: EarlyRefusal | None = None
    direct: ASGIApp | None = None
    incomplete: dict[HttpProtocol, None] = field(default_factory=dict)
    is_ending: bool = False

    def __post_init__(self) -> None:
        self.largest_body_bytes = max(self.options.body_limits.values())
        _allow_files(2 * self.options.max_connections + _OTHER_FILES)  # 2: a request also connects to the runner

    def end(self) -> None:
        """The process has been asked to end: new connections are not kept. May be called in a signal handler."""
        self.is_ending = True

    def fail(self) -> None:
        """Refuse the requests that have not arrived, because the time to end is over. Called from any thread."""
        for connection in list(self.incomplete):
            connection.loop.call_soon_threadsafe(connection.refuse_unfinished)

    @property
    def protocol(self) -> Callable[..., HttpProtocol]:
        """The factory of connections for uvicorn: the argument `http` of `uvicorn.Config`."""
        return partial(HttpProtocol, limits=self)


STATE = "gliner_bento.limits"
"""The key under which the state of an app's lifespan has the limits. `uvicorn --http` takes a class, so they cannot be
arguments."""


def limit_connections(
    options: GatewayOptions, early: EarlyRefusal | None = None, direct: ASGIApp | None = None
) -> ProtocolLimits:
    """Set uvicorn's default protocol to one with these limits, because BentoML has no option for the protocol."""
    limits = ProtocolLimits(options, early, direct)
    HTTP_PROTOCOLS["auto"] = limits.protocol  # type: ignore[assignment]  # uvicorn also takes a factory here
    return limits


def _allow_files(number: int) -> None:
    """Raise the process's limit on open files to `number`, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class RequestPart(Enum):
    """The part of a request that the parser awaits: its beginning, the rest of its headers, or the rest of its body."""

    START, HEADERS, BODY = range(3)


class HttpProtocol(HttpToolsProtocol):
    """One connection. limits: by default, those in the state of the app's lifespan, under STATE."""

    _limits: ProtocolLimits | None = None  # of this connection; None: no limits apply
    _early: EarlyRefusal | None = None
    _awaits = RequestPart.START
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unparsed = _NOTHING
    _framing_bytes = 0  # received so far of the awaited part, without the body
    _body_bytes = 0  # received so far of the body
    _due_bytes = 0  # value of `_body_bytes` to reach before the timer ends
    _undecided: EarlyRequest | None = None  # an extraction that may be refused once its small body has arrived
    _refusal: Refusal | None = None  # to be written once the body has arrived
    _probe_timer: asyncio.TimerHandle | None = None  # set once the client sends no more
    _answering: RequestResponseCycle | None = None  # the last request to start; `cycle` is the last one to arrive
    _written: RequestResponseCycle | None = None  # its response has been written, but `_end_cycle` has not ended it

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> None:
        self._server_limits: ProtocolLimits | None = more.pop("limits", None) or app_state.get(STATE)
        super().__init__(config, server_state, app_state, **more)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._context = copy_context()
        self._left: asyncio.Future[None] = self.loop.create_future()
        self._ended: list[GLiNERBentoError] = []
        if isinstance(self.app, ProxyHeadersMiddleware):  # `ClientAddress` replaces this middleware
            self.app = self.app.app
        limits = self._server_limits
        if self.client is None or limits is None:
            return
        self._limits, self._early = limits, limits.early
        transport.set_write_buffer_limits(high=1)  # the time is limited in which any byte waits to be sent
        self._watch(limits)
        if limits.is_ending:
            self.loop.call_later(_LATE_S, self.shutdown)
        if len(self.connections) > limits.options.max_connections:
            self._make_room(limits)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._left.set_result(None)
        self._unwatch()
        for timer in (self._write_timer, self._probe_timer):
            if timer:
                timer.cancel()
        if self._answering and not self._answering.response_complete:  # uvicorn does this for `cycle` alone
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request has arrived."""
        self._unset_keepalive_if_required()
        self._unparsed = memoryview(bytes(self._unparsed) + data)
        self._parse()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more: it has closed the connection, or only its direction. Returns whether the connection
        stays open: if a request awaits its response, which a client that has left does not receive (see `_probe`)."""
        is_tls = self.transport.get_extra_info("sslcontext") is not None  # there, no direction can be closed alone
        if self._limits is None or is_tls or not self._is_answering():
            return False
        self._probe_later(_FIRST_PROBE_S)
        return True

    def _probe_later(self, delay_s: float) -> None:
        self._probe_timer = self.loop.call_later(delay_s, self._probe, delay_s)

    def _probe(self, delay_s: float) -> None:
        """Write an interim response to a client that sends no more and awaits its response. If it has left, its system
        answers with a reset, which fails the next write and ends the request. HTTP/1.0 has no interim responses."""
        cycle = self._answering
        if cycle and cycle.scope["http_version"] == "1.0" and not cycle.response_started:
            self.transport.close()
        elif not self.transport.is_closing():
            if cycle and not cycle.response_started:
                self.transport.write(_CONTINUE)
            self._probe_later(min(2 * delay_s, _LAST_PROBE_S))

    def on_message_begin(self) -> None:
        """A request begins."""
        self._expect(RequestPart.HEADERS)
        super().on_message_begin()
        scope = cast(Scope, self.scope)
        scope[LEFT], scope[ENDED] = self._left, self._ended

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has arrived, or a trailer, which is ignored."""
        self._framing_bytes += _HEADER_OVERHEAD
        if self._awaits is RequestPart.HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers have arrived. A request with an Upgrade header is parsed again without it (see `_parse`)."""
        hosts = [name for name, _ in self.headers].count(b"host")
        if self._limits and (hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0")):
            raise MalformedRequest(f"{hosts} Host headers; HTTP/1.1 requires one")
        if not self.parser.should_upgrade():
            self._expect(RequestPart.BODY)
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise MalformedRequest("CONNECT: this server is not a proxy")

    def on_chunk_header(self) -> None:
        """The size of a chunk has arrived."""
        self._framing_bytes = max(0, self._framing_bytes - _CHUNK_OVERHEAD)

    def on_body(self, body: bytes) -> None:
        """Part of a request's body has arrived."""
        self._framing_bytes -= len(body)
        self._body_bytes += len(body)
        if not self._refusal:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has been received."""
        if self._awaits is RequestPart.BODY:  # else the request has an Upgrade header, and is parsed again
            super().on_message_complete()
            if not self.pipeline:
                self.flow.resume_reading()  # paused by a large body: that the client leaves must be read
        self._expect(RequestPart.START)
        if self._early and self._undecided:
            self._decide(self._early, self.cycle, self._undecided)
        elif self._refusal:
            self._write(self.cycle, self._refusal.status, self._refusal.headers, self._refusal.body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        if self._early and (request := self._early.arrive(cast(Scope, cycle.scope))):
            self._decide(self._early, cycle, request)
        else:
            super()._start_asgi_task(cycle, app)

    def _decide(self, early: EarlyRefusal, cycle: RequestResponseCycle, request: EarlyRequest) -> None:
        """Refuse an extraction, wait for its small body, or let the app answer. Refusals start no asyncio task."""
        if not cycle.more_body:
            request.read(bytes(cycle.body))
        refusal = early.try_refuse(request)
        self._undecided = request if cycle.more_body and request.reads_body and not refusal else None
        if refusal:
            self._refuse_early(cycle, refusal)
        elif not self._undecided:
            app = (self._limits and self._limits.direct) or self.app

            async def serve(scope: Any, receive: Any, send: Any) -> None:
                if refusal := await early.await_turn(request):
                    self._refuse_early(cycle, refusal)
                else:
                    await app(scope, receive, self._in_one_piece(cycle, send))

            super()._start_asgi_task(cycle, serve)

    def _refuse_early(self, cycle: RequestResponseCycle, refusal: Refusal) -> None:
        """Answer a request, and drop its body. A connection that is not kept alive is closed only after the body has
        arrived: a body that arrives on a closed connection resets it, and the client loses the response. A client that
        waits for `100 Continue` may or may not send its body, so its connection is closed."""
        cycle.response_started = cycle.disconnected = True
        if cycle.more_body and not cycle.keep_alive and not cycle.waiting_for_100_continue:
            self._refusal = refusal
        else:
            self._write(cycle, refusal.status, refusal.headers, refusal.body)

    def _in_one_piece(self, cycle: RequestResponseCycle, send: Send) -> Send:
        """A `send` that writes a response of known length with one system call; uvicorn needs two."""
        start: Message | None = None

        async def send_whole(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and b"content-length" in dict(message["headers"]):
                start = message
                return
            if start and not (message.get("more_body") or self.flow.write_paused or cycle.disconnected):
                self._write(cycle, start["status"], start["headers"], message.get("body", b""))
                return
            if start:
                held, start = start, None
                await send(held)
            await send(message)

        return send_whole

    def _write(
        self, cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Write a response. The cycle ignores further messages of the app; `_end_cycle`, a callback, ends it."""
        cycle.response_started = cycle.disconnected = True
        if self.transport.is_closing():
            return
        keep_alive = cycle.keep_alive and not cycle.waiting_for_100_continue
        headers = [*self.server_state.default_headers, *headers, *([] if keep_alive else [_CLOSE])]
        self.transport.write(_serialized(status, headers, body))
        if not keep_alive:
            self.transport.close()
        self._written = cycle
        self.loop.call_soon(self._end_cycle)  # outside the parser, and after the work of other connections

    def _end_cycle(self) -> None:
        """End the cycle of the written response and continue with the next request, if the client reads fast enough."""
        cycle = self._written
        if cycle and not self.flow.write_paused:
            self._written = None
            cycle.response_complete = True
            if not cycle.keep_alive:  # `shutdown` was called after `_write`
                self.transport.close()
            self.on_response_complete()

    def on_response_complete(self) -> None:
        """A response has been sent."""
        # Not in the context of this request: the next requests would inherit it and keep its objects in memory.
        self._context.run(self._continue)

    def _continue(self) -> None:
        super().on_response_complete()
        if self._limits:
            self._unset_keepalive_if_required()  # `_watch` sets `_timer` instead
        if self._probe_timer:  # the client sends no more
            self._parse()
            if not self._is_answering():
                self.transport.close()
        elif not self.transport.is_closing():
            self.transport.resume_reading()
            self._parse()

    def pause_writing(self) -> None:
        """The client reads slower than the server writes."""
        super().pause_writing()
        if self._limits:
            self._limit_write_time(self._limits.options.body_timeout_s)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._write_timer:
            self._write_timer.cancel()
            self._write_timer = None
        self._end_cycle()

    def _limit_write_time(self, timeout_s: float) -> None:
        """Limit the time until the client has read what waits to be sent, or the next PACE_BYTES of it."""
        waiting_bytes = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(timeout_s, self._check_pace, waiting_bytes, timeout_s)

    def _check_pace(self, waited_bytes: int, timeout_s: float) -> None:
        if waited_bytes - self.transport.get_write_buffer_size() < PACE_BYTES:
            self.transport.abort()
        else:
            self._limit_write_time(timeout_s)

    def _is_answering(self) -> bool:
        """Whether a request that has been received awaits its response."""
        if self.pipeline:
            return True
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete and self._awaits is not RequestPart.BODY

    def _parse(self) -> None:
        """Parse the received bytes, up to the end of a request that awaits its response; then pause reading."""
        size = _PARSED_BYTES if self._limits else None
        while self._unparsed and not self._is_answering() and not self.transport.is_closing():
            data = self._unparsed[:size]
            self._unparsed = self._unparsed[len(data) :]
            self._framing_bytes += len(data)
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:  # parse the request again, without its Upgrade header
                self._unparsed = memoryview(self._head() + bytes(data[upgrade.args[0] :]) + bytes(self._unparsed))
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            except httptools.HttpParserError as error:
                raised = error.__context__  # by a callback
                own = raised if isinstance(raised, MalformedRequest) else None
                self._refuse(own or MalformedRequest("the request is not valid HTTP"))
            if self._limits:
                self._check_size(self._limits)
        if self._unparsed:
            self.transport.pause_reading()
        else:
            self._unparsed = _NOTHING  # an empty view would keep the received bytes in memory
        if self._limits:
            self._watch(self._limits)

    def _head(self) -> bytes:
        """The bytes of the request line and the headers, without Upgrade."""
        line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        return line + b"".join(b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade") + b"\r\n"

    def _check_size(self, limits: ProtocolLimits) -> None:
        if self._framing_bytes > MAX_HEADER_BYTES:
            self._refuse(HeadersTooLarge(f"the request has more than {MAX_HEADER_BYTES} bytes without its body"))
        elif self._body_bytes > limits.largest_body_bytes and self.cycle.response_complete:
            self.transport.close()  # this is the rest of a body that was too large

    def _expect(self, part: RequestPart) -> None:
        self._awaits = part
        self._framing_bytes = self._body_bytes = self._due_bytes = 0
        self._unset_timer()

    def _watch(self, limits: ProtocolLimits) -> None:
        """Limit the time until the awaited part is complete; for a body, until the next PACE_BYTES have arrived, or the
        next byte if it is read while it arrives."""
        if self._is_answering() or self.transport.is_closing():
            self._unwatch()
        elif self._timer is None or self._body_bytes >= self._due_bytes > 0:
            self._unwatch()
            is_read = self._awaits is RequestPart.BODY and reads_lines(cast(Scope, self.cycle.scope))
            self._due_bytes = self._body_bytes + (1 if is_read else PACE_BYTES)
            limits.incomplete[self] = None
            self._timer = self.loop.call_later(self._timeout_s(limits.options), self._too_slow, limits)

    def _unwatch(self) -> None:
        self._unset_timer()
        if self._limits:
            self._limits.incomplete.pop(self, None)

    def _unset_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _timeout_s(self, options: GatewayOptions) -> float:
        if self._awaits is RequestPart.BODY:
            return options.body_timeout_s
        return options.keep_alive_timeout_s if self._is_idle() else options.header_timeout_s

    def _is_idle(self) -> bool:
        """Whether at least one request has been answered, and the next has not begun."""
        return self._awaits is RequestPart.START and self.cycle is not None

    def _too_slow(self, limits: ProtocolLimits) -> None:
        self._timer = None
        if self._awaits is RequestPart.BODY and self.flow.read_paused:  # the server reads slower than the client writes
            self._watch(limits)
        elif self._is_idle():
            self.transport.close()
        else:
            self._refuse(RequestTimeout("the request did not arrive in time"))

    def _make_room(self, limits: ProtocolLimits) -> None:
        """Close the connection that is longest without progress: the new one if all others await responses."""
        longest = next(iter(limits.incomplete))
        longest._unwatch()
        if longest._is_idle():
            longest.transport.close()
        else:
            longest._refuse(NotReady("too many connections; try again later"))

    def refuse_unfinished(self) -> None:
        """Close the connection. A request of which a part has arrived gets an error as its answer, or at its end."""
        if not self._limits or self not in self._limits.incomplete:
            return
        self._unwatch()
        error = NotReady("the server ended before all of the request had arrived; send it again")
        if self._awaits is RequestPart.BODY and reads_lines(cast(Scope, self.cycle.scope)):
            self._ended.append(error)
            self.cycle.more_body = self.cycle.keep_alive = False
            self.cycle.message_event.set()
        elif self._is_idle():
            self.transport.close()
        else:
            self._refuse(error)

    def _refuse(self, error: GLiNERBentoError) -> None:
        """Close the connection, and answer with an error first unless a response is under way."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        # The response to the last request is complete (and the connection open), or has not begun.
        if cycle is None or (cycle.response_complete and cycle.keep_alive) or not cycle.response_started:
            context = Context()
            response = error_response(context, error)
            response.headers["X-Request-ID"] = context.id
            response.headers["Connection"] = "close"
            self.transport.write(_serialized(response.status_code, response.raw_headers, bytes(response.body)))
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def _serialized(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    return STATUS_LINE[status] + b"".join([b"%s: %s\r\n" % header for header in headers]) + b"\r\n" + body
