"""`POST /mcp`: the tools over MCP's streamable HTTP, without sessions, so that requests are independent.

Access, limits and admission are those of `/v1/extract`: the gateway treats a request of this route as an extraction,
and runs the tool within it. A large result is not sent in pieces, because the package mcp serializes it as a whole.
"""

from __future__ import annotations

import logging
from functools import lru_cache, partial
from typing import Any

import msgspec
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp.types import Tool as ListedTool
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gliner_bento import __version__
from gliner_bento.errors import GLiNERBentoError, QueueFull
from gliner_bento.gateway.context import Context
from gliner_bento.gateway.endpoint import EndpointGroup
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.json_body import json_content
from gliner_bento.gateway.mcp.tools import TOOLS
from gliner_bento.gateway.validation import from_model

# At INFO, the session manager logs the start and the end of the MCP server that is made for each request.
logging.getLogger("mcp.server.streamable_http_manager").setLevel(logging.WARNING)

_TOOLS = {tool.name: tool for tool in TOOLS}


@lru_cache(maxsize=8)
def _listed(models: tuple[str, ...]) -> ListToolsResult:
    """The list of tools. models: names of the served models, the values of a tool's argument `model`."""
    return ListToolsResult(
        tools=[
            ListedTool(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.input_schema(models),
                output_schema=tool.output_schema,
                annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
            )
            for tool in TOOLS
        ]
    )


class McpMessage(BaseModel):
    """A message of the Model Context Protocol: JSON-RPC 2.0."""

    jsonrpc: str = "2.0"
    id: str | int | None = None
    method: str
    params: dict[str, Any] | None = None


class _McpResponse(Response):
    """Runs an MCP server for one request, and sends its response. The asyncio tasks that the MCP server starts are
    cancelled with the request."""

    def __init__(self, gateway: Gateway, context: Context) -> None:
        super().__init__()
        self._gateway, self._context = gateway, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server: Server[Any] = Server(
            "gliner-bento",
            version=__version__,
            on_list_tools=partial(_list_tools, self._gateway),
            on_call_tool=partial(_call, self._gateway, self._context),
        )
        manager = StreamableHTTPSessionManager(
            server,
            json_response=True,
            stateless=True,
            max_request_body_size=self._gateway.options.max_body_bytes,
        )
        content = await json_content(Request(scope, receive))
        messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive_content() -> Message:
            return messages.pop() if messages else await receive()

        async with manager.run():
            await manager.handle_request(scope, receive_content, send)


async def _list_tools(gateway: Gateway, *_: object) -> ListToolsResult:
    return _listed(tuple(served.name for served in gateway.models if served.name))


async def _call(gateway: Gateway, context: Context, _: object, params: CallToolRequestParams) -> CallToolResult:
    """Call a tool. As the protocol requires, an error is returned as a result, so that the language model can react."""
    tool = _TOOLS.get(params.name)
    if tool is None:
        return _failed(f"no such tool: {params.name[:100]}; there are {', '.join(_TOOLS)}")
    try:
        result = await tool.run(gateway, context, params.arguments or {})
    except ValidationError as invalid:
        return _failed(str(from_model(invalid, tool.arguments)))
    except QueueFull as full:
        return _failed(f"{full}; try again in {full.retry_after_s} s")
    except GLiNERBentoError as error:
        return _failed(str(error))
    text = msgspec.json.encode(result).decode()
    return CallToolResult(content=[TextContent(text=text)], structured_content=msgspec.to_builtins(result))


def _failed(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=message)], is_error=True)


async def _mcp(gateway: Gateway, context: Context, _: Request) -> Response:
    return _McpResponse(gateway, context)


def _add_202(operation: dict[str, Any]) -> dict[str, Any]:
    operation["responses"]["202"] = {"description": "The message needs no answer"}
    return operation


ENDPOINTS = [
    EndpointGroup(tag="extract").post(
        "/mcp",
        _mcp,
        "mcp",
        f"Model Context Protocol, with the tools {', '.join(_TOOLS)}",
        "Streamable HTTP without sessions. Send `Accept: application/json, text/event-stream`.",
        request=McpMessage,
        errors=(400, 413, 415, 429, 500, 503),
        examples={McpMessage: {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}},
        extra=_add_202,
    )
]
