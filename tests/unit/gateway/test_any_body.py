"""Whatever JSON is sent to a route of another server's format: never a 500, and errors have the format's own body."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json

import httpx
import pytest
from doubles.memory_adapters import MemoryManager
from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gliner_bento.errors import ErrorBody
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.compat import compat_endpoints

ENDPOINTS = [one for one in compat_endpoints(OPTIONS) if one.method == "POST" and one.request]
NOT_SERVED = 501
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=5) | st.just("person"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value, path=()):
    """The path of everything in a body."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places(one, (*path, name))


@st.composite
def bodies(draw, example):
    """The documented request, with one to three of its values replaced, left out or added to."""
    body = copy.deepcopy(example)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(body))))
        if not path:
            return draw(VALUES)
        parent = body
        for name in path[:-1]:
            parent = parent[name]
        kind = draw(st.sampled_from(["replace", "leave out", "add"]))
        if kind == "leave out":
            del parent[path[-1]]
        elif kind == "add" and isinstance(parent, dict):
            parent[draw(st.text(max_size=5))] = draw(VALUES)
        else:
            parent[path[-1]] = draw(VALUES)
    return body


@pytest.fixture(scope="module")
def app():
    manager = MemoryManager()
    app = GatewayApp(dataclasses.replace(OPTIONS, max_body_bytes=10_000))
    app.bind(MemoryReplica(manager=manager))
    yield app
    manager.proceed.set()


def test_each_format_with_bodies_is_tried():
    assert len(ENDPOINTS) >= 12


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.path)
def test_it_is_answered_or_refused_in_the_formats_own_way(app, endpoint):
    examples = endpoint.operation.examples
    error = set(
        endpoint.error.__dataclass_fields__ if dataclasses.is_dataclass(endpoint.error) else ErrorBody.model_fields
    )
    path = endpoint.path.format(model="memory", version="1", model_uid="m", request_id="r")
    statuses = []

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @example(examples[endpoint.request])
    @given(bodies(examples[endpoint.request]))
    def check(body):
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                headers = {"Content-Type": "application/json"}
                return await client.post(path, content=json.dumps(body), headers=headers)

        response = asyncio.run(ask())
        statuses.append(response.status_code)
        assert response.status_code < 500 or response.status_code == NOT_SERVED, (body, response.text)
        if response.status_code >= 400:
            assert set(response.json()) == error, (body, response.text)

    check()
    assert statuses[0] < 300, "the documented request"
    assert max(statuses) >= 400
