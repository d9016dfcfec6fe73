"""What browsers get: headers that limit what a page may do, and the origins whose pages may call the server."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
from base64 import b64encode
from hashlib import sha256

import httpx
import pytest
from asking import ask
from gateway_options import OPTIONS

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.security_headers import INDEX_PAGE
from gliner_bento.storage.api_keys import hash_of

BODY = {"text": "Ada met Charles.", "labels": ["person"]}
KEYS = json.dumps([{"name": "k", "sha256": hash_of("secret")}])
ORIGIN = "https://app.example.com"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.fixture
def shared(replica):
    """A client of a server with keys, for the pages of one origin."""
    app = GatewayApp(dataclasses.replace(OPTIONS, cors_origins=(ORIGIN,), api_keys=json.dumps([])))
    app.bind(replica)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


@pytest.mark.parametrize("path", ["/", "/docs.json", "/livez", "/v1/model", "/unknown", "/foreign?status=400"])
def test_every_response_limits_what_a_browser_does_with_it(beside_foreign_routes, path):
    headers = ask(beside_foreign_routes, "POST" if "foreign" in path else "GET", path, json=BODY).headers
    assert headers.get_list("x-content-type-options") == ["nosniff"]
    assert headers.get_list("x-frame-options") == ["DENY"]
    assert headers.get_list("referrer-policy") == ["no-referrer"]


def test_the_page_may_load_its_own_scripts_and_no_others(client):
    page = ask(client, "GET", "/")
    policy = dict(rule.strip().split(" ", 1) for rule in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    (script,) = re.findall(r"<script>(.*?)</script>", INDEX_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    allowed = f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
    assert policy["script-src"] == f"'self' {allowed}"
    assert "content-security-policy" not in ask(client, "GET", "/v1/model").headers


def test_no_other_origin_is_allowed_by_default(client):
    answer = ask(client, "OPTIONS", "/v1/extract", headers={"Origin": ORIGIN, **PREFLIGHT})
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_pages_of_an_allowed_origin_may_call_the_server(shared):
    answer = ask(shared, "OPTIONS", "/v1/extract", headers={"Origin": ORIGIN, **PREFLIGHT})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, ORIGIN)
    refused = ask(shared, "POST", "/v1/extract", json=BODY, headers={"Origin": ORIGIN})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)
    assert "X-Request-ID" in refused.headers["access-control-expose-headers"]


def test_a_preflight_for_a_private_network_or_a_traced_request_is_allowed(shared):
    asked = {
        "Access-Control-Request-Private-Network": "true",
        "Access-Control-Request-Headers": "content-type,traceparent",
    }
    answer = ask(shared, "OPTIONS", "/v1/extract", headers={"Origin": ORIGIN, **PREFLIGHT, **asked})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert "traceparent" in answer.headers["access-control-allow-headers"]
    foreign = ask(shared, "OPTIONS", "/v1/extract", headers={"Origin": "https://evil.example", **PREFLIGHT, **asked})
    assert foreign.status_code == 400
    assert "access-control-allow-origin" not in foreign.headers


def test_the_pages_of_others_may_not(shared):
    answer = ask(shared, "OPTIONS", "/v1/extract", headers={"Origin": "https://evil.example", **PREFLIGHT})
    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"])
def test_a_form_without_content_is_no_body(client, kind):
    answer = ask(client, "POST", "/v1/requests/r/abort", headers={"Content-Type": kind, "Content-Length": "0"})
    assert (answer.status_code, answer.json()) == (200, {"request_id": "r", "aborted": False})
    refused = ask(client, "POST", "/v1/requests/r/abort", headers={"Content-Type": kind}, content=b"a=b")
    assert refused.status_code == 415


LOOPBACK, ANYONE, SHARED = {}, {"allow_anonymous": True}, {"cors_origins": (ORIGIN,)}


def asked(replica, settings, headers, method="GET", path="/v1/model"):
    """The response of a server without keys."""
    app = GatewayApp(dataclasses.replace(OPTIONS, **settings))
    app.bind(replica)
    return ask(httpx.AsyncClient(transport=httpx.ASGITransport(app)), method, f"http://test{path}", headers=headers)


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        (LOOPBACK, {"Host": "evil.example:3000"}),
        (LOOPBACK, {"Host": "EVIL.example."}),
        (LOOPBACK, {"Host": "[::1"}),
        (LOOPBACK, {"Host": "evil.example", "Origin": "https://evil.example"}),
        (ANYONE, {"Host": "evil.example:3000", "Origin": "http://evil.example:3000"}),
        *(
            (settings, {"Host": "127.0.0.1:3000", **page})
            for settings in (LOOPBACK, ANYONE, SHARED)
            for page in (
                {"Origin": "http://evil.example"},
                {"Origin": "http://localhost.evil.example"},
                {"Origin": "https://app.example.com.evil.example"},
                {"Origin": "null"},
                {"Origin": "http://[::1"},
                {"Sec-Fetch-Site": "cross-site"},
            )
        ),
    ],
)
def test_without_keys_a_page_of_others_may_not_call_the_server(replica, settings, headers):
    for method, path in (
        ("GET", "/v1/model"),
        ("DELETE", "/v1/adapters/a"),
        ("POST", "/v1/extract"),
        ("POST", "/gliner"),
        ("POST", "/v1/requests/r/abort"),
        ("GET", "/metrics"),
    ):
        answer = asked(replica, settings, headers, method, path)
        assert answer.status_code == 403, path
        assert re.search(r"cors_origins|allow_anonymous", answer.text)
    assert replica.calls == []
    for path in ("/livez", "/readyz", "/health", "/playground"):
        assert asked(replica, settings, headers, "GET", path).status_code == 200


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        *(
            (LOOPBACK, {"Host": host})
            for host in ("127.0.0.1:3000", "[::1]:3000", "localhost", "10.1.2.3", "gliner:80")
        ),
        *(
            (LOOPBACK, {"Host": host})
            for host in ("a.localhost:3000", "gliner.default.svc.cluster.local", "ip.ec2.internal")
        ),
        (LOOPBACK, {"Host": socket.gethostname().upper()}),
        (LOOPBACK, {"Host": "localhost:3000", "Origin": "http://localhost:8000", "Sec-Fetch-Site": "same-site"}),
        (LOOPBACK, {"Host": "localhost:3000", "Sec-Fetch-Site": "none"}),
        (ANYONE, {"Host": "ner.example"}),
        (ANYONE, {"Host": "ner.example", "Origin": "https://ner.example", "Sec-Fetch-Site": "same-origin"}),
        (ANYONE, {"Host": "10.1.2.3:3000", "Origin": "http://10.1.2.3:3000"}),
        (SHARED, {"Host": "127.0.0.1", "Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"}),
        (SHARED, {"Host": "app.example.com"}),
        ({"cors_origins": ("*",)}, {"Host": "any.example", "Origin": "null", "Sec-Fetch-Site": "cross-site"}),
        ({"api_keys": KEYS}, {"Host": "any.example", "Origin": "https://any.example", "X-API-Key": "secret"}),
    ],
)
def test_clients_own_pages_and_allowed_ones_may(replica, settings, headers):
    assert asked(replica, settings, headers).status_code == 200
