"""The routes of the bento, BentoML's own included: none is without a scope."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from gliner_bento.gateway import documentation
from gliner_bento.settings import PROJECT_ROOT

PROGRAM = """
import asyncio, json
import httpx
from service import GLiNERService

app = GLiNERService.to_asgi()

def walk(routes, prefix=""):
    for route in routes:
        path = prefix + route.path
        for method in sorted(getattr(route, "methods", None) or ()):
            yield method, path
        yield from walk(getattr(route, "routes", None) or (), path.rstrip("/"))

async def ask(method, path):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return (await client.request(method, path.replace("{", "").replace("}", ""))).status_code

PROBES = {"/health", "/healthz", "/livez", "/ping", "/readyz"}
OPEN = {"/", "/docs.json", "/schema.json", "/playground", "/playground/{file:path}", *PROBES}
OPEN |= {"/docs", "/docs/{file:path}", "/v1/cluster/auth"}  # the last one says whether there are keys
routes = sorted(set(walk(app.routes)))
closed = {f"{method} {path}": asyncio.run(ask(method, path)) for method, path in routes if path not in OPEN}
print(json.dumps({"closed": closed, "open": sorted({path for _, path in routes} & OPEN)}))
"""


def test_every_route_but_probes_and_pages_needs_a_key():
    """The service is only mounted here: a request without a key must not come as far as needing its model."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "GLINER_API_KEYS": "[]"},
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(ended.stdout.splitlines()[-1])
    pages = ["/", "/docs.json", "/playground", "/playground/{file:path}", "/schema.json"]
    pages += [endpoint.path for endpoint in documentation.endpoints()]  # if `make docs` has built the site
    pages += ["/v1/cluster/auth"]
    assert seen["open"] == sorted([*pages, "/health", "/healthz", "/livez", "/ping", "/readyz"])
    assert {"GET /metrics", "POST /v1/extract", "POST /v1/extract/batch", "POST /gliner"} < set(seen["closed"])
    assert {route: status for route, status in seen["closed"].items() if status != 401} == {}
