"""Access: which routes need a key, and which scope; what a caller without one gets."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import httpx
import pytest
from gateway_options import OPTIONS

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.model_types import ModelRow
from gliner_bento.storage.api_keys import hash_of

BODY = {"text": "Ada met Charles.", "labels": ["person"], "request_id": "mine"}
SCOPES = ("extract", "adapters", "metrics", "admin")
KEYS = json.dumps(
    [{"name": scope, "sha256": hash_of(f"key-{scope}"), "scopes": [scope]} for scope in SCOPES]
    + [{"name": "second", "sha256": hash_of("key-second"), "scopes": ["extract"], "tenant": "extract", "weight": 3}]
)
OPEN = {
    "/v1/cluster/auth",
    "/",
    "/docs.json",
    "/health",
    "/ping",
    "/livez",
    "/readyz",
    "/healthz",
    "/playground",
    "/playground/main.js",
    "/docs",
    "/docs/main.js",
}


@pytest.fixture
def app(replica):
    app = GatewayApp(dataclasses.replace(OPTIONS, api_keys=KEYS, tenant_header="X-Tenant-ID"))
    app.bind(replica)
    return app


def ask(app, method, path, key=None, address="127.0.0.1", peer=("127.0.0.1", 4000), version="1.1", **kwargs):
    """Sends a request with a key to the server at an address, from a peer."""

    async def at_address(scope, receive, send):
        more = {"server": address and (address, 3000), "client": peer, "http_version": version}
        await app(scope | more, receive, send)

    async def send():
        client = httpx.AsyncClient(transport=httpx.ASGITransport(at_address), base_url="http://test")
        headers = {"Authorization": f"Bearer {key}"} | kwargs.pop("headers", {}) if key else kwargs.pop("headers", {})
        return await client.request(method, path, headers=headers, **kwargs)

    return asyncio.run(send())


def code(answer):
    return answer.status_code, answer.json()["error"]["code"] if answer.status_code >= 400 else None


def answers(path):
    """Statuses of an open path; the documentation may be built or not."""
    return {"/docs": (200, 307), "/docs/main.js": (404,)}.get(path, (200,))


WITHOUT_BODY = (200, 400, 404, 415, 422, 501)
"""What a route answers to a request that may call it, but has no body. 501: models are not loaded over HTTP."""


def routes(app):
    """Method and an example path of every route of the app."""
    for route in app.routes.routes:
        for method in sorted(route.methods - {"HEAD"}):
            yield method, route.path.replace("{file:path}", "main.js").replace("{", "").replace("}", "")


def test_every_route_is_open_or_needs_its_scope(app):
    declared = {(one.method, one.path.replace("{", "").replace("}", "")): one.scope for one in app.endpoints}
    for method, path in routes(app):
        needed = declared.get((method, path))
        if path in OPEN:
            assert needed is None, path
            assert ask(app, method, path).status_code in answers(path), path
            continue
        assert needed, path
        assert ask(app, method, path).status_code == 401, path
        for scope in SCOPES:
            answer = ask(app, method, path, f"key-{scope}")
            if scope in (needed, "admin"):
                assert answer.status_code in WITHOUT_BODY, (path, scope)
            else:
                assert answer.status_code == 403, (path, scope)
                assert needed in answer.text


def test_a_probe_without_a_key_does_not_tell_which_models_there_are(app, replica):
    assert [ask(app, "GET", "/ping").json(), ask(app, "GET", "/ping", "key-extract").json()] == [{}, {}]
    app.gateway.models.default.update(ModelRow(name="secret", state="failed", reason="is broken"))
    ready = ask(app, "GET", "/readyz")
    assert (ready.status_code, "a model: failed" in ready.text) == (503, True)
    for path in OPEN - {"/", "/docs", "/docs.json"}:
        assert "memory" not in ask(app, "GET", path).text.replace("in memory", "")


def test_head_needs_what_get_needs(app):
    assert [ask(app, "HEAD", path).status_code for path in ("/v1/model", "/metrics", "/livez")] == [401, 401, 200]


@pytest.mark.parametrize("path", ["/v1/extract/", "/v1/adapters/x/", "/v1//extract", "/v1/adapters/a%2Fb", "/unknown"])
def test_no_spelling_of_a_path_avoids_the_key(app, path):
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert ask(app, method, path).status_code == 401
    assert ask(app, "POST", "/unknown", "key-extract").status_code == 404
    assert ask(app, "PATCH", "/v1/extract", "key-metrics").status_code == 405


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer key-extract"},
        {"Authorization": "bearer  key-extract"},
        {"X-API-Key": "key-extract"},
        {"Authorization": "Basic YTpi", "X-API-Key": "key-extract"},
    ],
)
def test_a_key_may_be_sent_in_two_ways(app, headers):
    assert ask(app, "POST", "/v1/extract", json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "key-extract"},
        {"X-API-Key": ""},
        {"X-API-Key": hash_of("key-extract")},
        {"X-API-Key": "ключ".encode()},
    ],
)
def test_a_wrong_key_is_refused_before_the_body_is_read(app, headers):
    async def body():
        raise AssertionError("the body is read")
        yield b""

    answer = ask(app, "POST", "/v1/extract", content=body(), headers=headers)
    assert code(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "wrong" not in answer.text


def test_a_key_names_its_tenant_and_the_header_does_not(app, replica):
    headers = {"X-Tenant-ID": "other"}
    tenants = []
    for key in ("key-extract", "key-second", "key-admin"):
        assert ask(app, "POST", "/v1/extract", key, json=BODY, headers=headers).status_code == 200
        tenants.append(replica.calls[-1][1].request_id)
    assert tenants == ["extract/mine", "extract/mine", "admin/mine"]


@pytest.mark.parametrize("address", ["10.0.0.5", "::", "fe80::1", "0.0.0.0", "::ffff:10.0.0.5"])
def test_without_keys_only_loopback_is_answered(replica, address):
    app = GatewayApp(OPTIONS)
    app.bind(replica)
    for method, path in routes(app):
        status = ask(app, method, path, address=address).status_code
        assert status in (answers(path) if path in OPEN else (403,)), path
    assert "loopback" in ask(app, "GET", "/v1/model", address=address).json()["error"]["message"]
    anyone = GatewayApp(dataclasses.replace(OPTIONS, allow_anonymous=True))
    anyone.bind(replica)
    assert ask(anyone, "POST", "/v1/extract", address=address, json=BODY).status_code == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_without_keys_loopback_is_open(replica, address):
    app = GatewayApp(OPTIONS)
    app.bind(replica)
    assert ask(app, "POST", "/v1/extract", address=address, json=BODY).status_code == 200


ADMIN_ROUTES = [
    ("POST", "/v1/models"),
    ("POST", "/v1/models/memory/unload"),
    ("DELETE", "/v1/models/memory"),
    ("POST", "/models?url=x"),
    ("DELETE", "/models/memory"),
    ("POST", "/models/memory/v1/models/memory/unload"),
    ("POST", "/v1/models/memory/unload/"),
]
FORWARDED = [
    {name: value}
    for name in ("X-Forwarded-For", "X-Real-IP", "x-forwarded-for", "True-Client-IP")
    for value in ("127.0.0.1", "::1", "203.0.113.7", "")
] + [{"Forwarded": "for=127.0.0.1"}, {"Via": "1.1 proxy"}, {"X-Forwarded-Proto": "https"}, {"CF-Connecting-IP": "::1"}]


def models_of(replica, **settings):
    app = GatewayApp(dataclasses.replace(OPTIONS, **settings))
    app.bind(replica)
    return app


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
def test_without_keys_only_clients_on_the_machine_change_models(replica, method, path):
    app = models_of(replica, allow_anonymous=True, forwarded_allow_ips=("*",))
    for peer in (("127.0.0.1", 4000), ("::1", 4000), ("::ffff:127.0.0.1", 4000)):
        assert ask(app, method, path, peer=peer, content=b"{}").status_code in (415, 422, 501)  # it may call the route
    for peer in (("10.0.0.5", 4000), ("fe80::1%eth0", 4000), ("::ffff:10.0.0.5", 4000), ("0.0.0.0", 4000), None):
        answer = ask(app, method, path, peer=peer, content=b"{}")
        assert answer.status_code == 403, peer
        assert "api_keys" in answer.text
    assert ask(app, "POST", "/v1/extract", peer=("10.0.0.5", 4000), json=BODY).status_code == 200
    unix = ask(app, method, path, address="/run/server.sock", peer=None, content=b"{}")
    assert unix.status_code in (415, 422, 501)


@pytest.mark.parametrize("headers", FORWARDED, ids=str)
@pytest.mark.parametrize("settings", [{}, {"allow_anonymous": True}, {"forwarded_allow_ips": ("*",)}], ids=str)
def test_without_keys_a_forwarded_request_changes_no_models(replica, settings, headers):
    app = models_of(replica, **settings)
    for peer in (("127.0.0.1", 4000), None):
        address = "127.0.0.1" if peer else "/run/server.sock"
        answer = ask(app, "POST", "/v1/models/memory/unload", address=address, peer=peer, headers=headers)
        assert code(answer) == (403, "forbidden")
        assert ask(app, "POST", "/v1/extract", address=address, peer=peer, headers=headers, json=BODY).is_success


def test_a_proxy_without_forwarding_headers_is_known_by_its_version_or_by_the_name_that_it_passes_on(replica):
    app = models_of(replica, allow_anonymous=True)
    assert ask(app, "POST", "/v1/models/memory/unload", version="1.0").status_code == 403
    assert ask(app, "POST", "/v1/models/memory/unload", headers={"Host": "ner.example"}).status_code == 403
    assert ask(app, "POST", "/v1/extract", headers={"Host": "ner.example"}, json=BODY, version="1.0").is_success


def test_a_key_with_the_scope_admin_is_enough_anywhere(app):
    answer = ask(app, "POST", "/v1/models/memory/unload", "key-admin", peer=("10.0.0.5", 1), headers=FORWARDED[2])
    assert answer.status_code == 501


def test_the_document_says_which_scope_a_route_needs(app, replica):
    document = ask(app, "GET", "/docs.json").json()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "header"}
    for endpoint in app.endpoints:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        expected = [{"bearer": [endpoint.scope]}, {"header": [endpoint.scope]}] if endpoint.scope else None
        assert operation.get("security") == expected, endpoint.path
        assert ({"401", "403"} <= set(operation["responses"])) == bool(endpoint.scope)
    without = GatewayApp(OPTIONS)
    without.bind(replica)
    assert "security" not in json.dumps(ask(without, "GET", "/docs.json").json())


def test_a_models_name_in_the_path_changes_no_scope(app):
    for path in ("/models/memory/metrics", "/models/memory/v1/status"):
        assert code(ask(app, "GET", path)) == (401, "unauthorized")
        assert code(ask(app, "GET", path, "key-extract")) == (403, "forbidden")
        assert ask(app, "GET", path, "key-metrics").status_code == 200
