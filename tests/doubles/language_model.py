"""A language model with OpenAI's API, for tests of what stands in front of one."""

from __future__ import annotations

import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


class LanguageModel:
    """A language model that answers with what it was sent; with tools, it calls one. `received`: all bodies."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/responses", self._responses, methods=["POST"]),
            ]
        )

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.received.append(body)
        last = body["messages"][-1]
        content = last["content"]
        text = "Dear " + (content if isinstance(content, str) else content[0]["text"])
        function = {"name": "send", "arguments": json.dumps({"to": text})}
        calls = [{"index": 0, "id": "c1", "type": "function", "function": function}]
        message = {"tool_calls": calls} if body.get("tools") and last["role"] == "user" else {"content": text}
        if body.get("stream"):
            return StreamingResponse(self._events(body["model"], message), media_type="text/event-stream")
        ends = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "finish_reason": ends, "message": {"role": "assistant", "content": None, **message}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        about = {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"]}
        return JSONResponse({**about, "choices": [choice], "usage": usage})

    async def _events(self, model: str, message: dict[str, Any]) -> Any:
        """Chunks of three characters."""
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if text := message.get("content"):
            deltas += [{"content": text[start : start + 3]} for start in range(0, len(text), 3)]
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            deltas.append({"tool_calls": [{**call, "function": {"name": "send", "arguments": ""}}]})
            for start in range(0, len(arguments), 3):
                part = {"index": 0, "function": {"arguments": arguments[start : start + 3]}}
                deltas.append({"tool_calls": [part]})
        for delta in [*deltas, {}]:
            ends = None if delta else ("stop" if text else "tool_calls")
            choice = {"index": 0, "delta": delta, "finish_reason": ends}
            chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"

    async def _responses(self, request: Request) -> Response:
        body = await request.json()
        self.received.append(body)
        part = {"type": "output_text", "text": f"Dear {body['input']}", "annotations": []}
        message = {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [part]}
        about = {"id": "r", "object": "response", "created_at": 1, "status": "completed", "model": body["model"]}
        more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return JSONResponse({**about, **more, "output": [message]})
