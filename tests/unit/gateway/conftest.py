"""A gateway over a runner that lives in the test: real requests, predictable answers."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import httpx
import pytest
from memory_adapters import MemoryAdapters
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from gliner_bento.errors import AdapterNotFound
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.limits import Limits
from gliner_bento.gateway.middleware import GatewayMiddleware
from gliner_bento.gateway.runner import Hop
from runners.adapter_calls import AdapterCalls
from runners.stream import line

LIMITS = Limits(
    default_threshold=0.4,
    default_relation_threshold=0.6,
    max_labels=5,
    max_text_chars=100,
    max_batch_items=3,
    request_timeout_s=30.0,
    enable_lora=True,
    adapter_id_pattern=r"[a-z0-9_-]{1,9}",
    compat_long_text="window",
)
MAX_ADAPTER_BYTES = 3 * 2**20
READ_AT_ONCE = 8  # words


class EchoRunner:
    """Finds each word that starts with a capital, under the first label; relates the first to the second. Reads eight
    words at once.

    Its calls about adapters are the real ones, over adapters in a dictionary.
    """

    def __init__(self, uploads: Path) -> None:
        self.calls: list[dict] = []
        self.supports_relations = True
        self.memory = MemoryAdapters()
        self.pieces: list[int] = []
        self.adapter_calls = AdapterCalls(self.memory, uploads)

    async def extract(self, items, request_id, timeout_ms, priority):
        self.calls.append({"items": items, "request_id": request_id, "timeout_ms": timeout_ms, "priority": priority})
        return [self._outcome(item) for item in items]

    async def extract_stream(self, item, request_id, stream_id, timeout_ms, priority):
        """A line for each entity, in pieces of seven characters."""
        self.calls.append({"items": [item], "request_id": request_id, "timeout_ms": timeout_ms, "priority": priority})
        outcome, parts = self._outcome(item), []
        if "result" in outcome:
            parts = [{"entities": [entity]} for entity in outcome["result"]["entities"]]
            outcome["result"]["entities"] = []
        content = "".join(line(part) for part in [*parts, {"outcome": outcome}])
        for start in range(0, len(content), 7):
            yield content[start : start + 7]

    async def abort(self, request_id):
        return request_id == "running"

    async def describe(self):
        return {
            "name": "echo",
            "family": "Echo",
            "supports_relations": self.supports_relations,
            "supports_adapters": False,
            "device": "cpu",
            "dtype": "float32",
            "max_words": 50,
            "max_span_width": 12,
            "max_labels_per_pass": 25,
            "forward": "echo",
        }

    async def adapters(self):
        return await self.adapter_calls.infos()

    async def adapter(self, adapter_id):
        return await self.adapter_calls.info(adapter_id)

    async def upload(self, upload_id, offset, data):
        self.pieces.append(len(data))
        return await self.adapter_calls.upload(upload_id, offset, data)

    async def put_adapter(self, adapter_id, upload_id, **options):
        return await self.adapter_calls.put(adapter_id, upload_id, **options)

    async def delete_adapter(self, adapter_id, timeout_ms):
        return await self.adapter_calls.remove(adapter_id, timeout_ms / 1000)

    async def adapter_cache(self):
        return await self.adapter_calls.status()

    def _outcome(self, item):
        if item.adapter_id is not None:
            return {"error": AdapterNotFound("no such adapter", param="adapter_id").detail().model_dump()}
        entities, position = [], 0
        for word in item.text.split():
            start = item.text.index(word, position)
            position = start + len(word)
            if word[0].isupper():
                label = next(iter(item.labels))
                entities.append({"start": start, "end": position, "text": word, "label": label, "score": 0.9})
        relations = [
            {"relation": name, "score": 0.8, "head": 0, "tail": 1} for name in item.relations if len(entities) > 1
        ]
        words = item.text.split()
        cut = item.long_text == "truncate" and len(words) > READ_AT_ONCE
        found = {
            "entities": entities,
            "relations": relations,
            "truncated_at": len(" ".join(words[:READ_AT_ONCE])) if cut else None,
            "words": len(words),
            "tokens": len(words),
            "windows": 1 if cut else ceil(len(words) / READ_AT_ONCE),
            "label_groups": 1,
            "relation_groups": int(bool(item.relations)),
        }
        return {"result": found}


async def foreign(request: Request):
    """Answers as the framework would: the status asked for, and a body that is not ours."""
    body = await request.body()
    status = int(request.query_params.get("status", 200))
    if status == 400:
        errors = [{"type": "missing", "loc": ("labels",), "msg": "Field required"}]
        return JSONResponse({"error": "1 validation error", "detail": errors}, status_code=400)
    if status == 599:
        raise RuntimeError("a fault outside every handler")
    return PlainTextResponse(f"read {len(body)}", status_code=status, headers={"Access-Control-Allow-Origin": "*"})


@pytest.fixture
def runner(tmp_path):
    runner = EchoRunner(tmp_path)
    yield runner
    runner.memory.go_on.set()
    runner.adapter_calls.close()


@pytest.fixture
def served():
    """Makes the whole gateway, over real ASGI, of a `Gateway`."""

    def serve(gateway):
        app = GatewayApp("/gliner")
        app.bind(gateway)
        routes = [Route("/foreign", foreign, methods=["POST"]), Mount("/", app.asgi)]
        limits = Middleware(GatewayMiddleware, max_body_bytes=1000, max_adapter_bytes=MAX_ADAPTER_BYTES)
        return Starlette(routes=routes, middleware=[limits])

    return serve


@pytest.fixture
def client(gateway, served):
    return httpx.AsyncClient(transport=httpx.ASGITransport(served(gateway)), base_url="http://test")


@pytest.fixture
def limits():
    return LIMITS


@pytest.fixture
def gateway(runner, limits):
    return Gateway(Hop(runner), limits)
