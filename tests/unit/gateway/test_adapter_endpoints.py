"""`/v1/adapters` and gliner.serve's adapter cache, over real ASGI."""

import asyncio
import dataclasses

import pytest

JSON = {"Content-Type": "application/json"}
ARCHIVE = bytes(range(256)) * 10 * 2**10  # 2.5 MiB
ROUTES = [("GET", ""), ("GET", "/a"), ("PUT", "/a"), ("DELETE", "/a")]


def ask(client, method, path, **kwargs):
    return asyncio.run(client.request(method, f"/v1/adapters{path}", **kwargs))


def error_of(response):
    error = response.json()["error"]
    assert error["request_id"] == response.headers["x-request-id"]
    return response.status_code, error["code"], error["param"]


async def in_chunks(content, size=100_000):
    for start in range(0, len(content), size):
        yield content[start : start + size]


def test_an_adapter_comes_stays_and_goes(client):
    assert ask(client, "GET", "").json() == {"adapters": []}
    new = ask(client, "PUT", "/a", content=b"one")
    assert (new.status_code, new.json()["bytes"]) == (201, 3)
    assert ask(client, "PUT", "/a", content=b"one").status_code == 200
    assert error_of(ask(client, "PUT", "/a", content=b"other")) == (409, "conflict", None)
    assert ask(client, "GET", "/a").json() == new.json()
    assert ask(client, "GET", "").json() == {"adapters": [new.json()]}
    gone = ask(client, "DELETE", "/a")
    assert (gone.status_code, gone.content) == (204, b"")
    for method in ("GET", "DELETE"):
        assert error_of(ask(client, method, "/a")) == (404, "adapter_not_found", "adapter_id")


def test_a_card_has_all_fields_of_an_adapter(client):
    used = ask(client, "PUT", "/used", content=b"one").json()
    assert used == {
        "id": "used",
        "source": "upload",
        "rank": 4,
        "targets": ["query", "value"],
        "bytes": 3,
        "tier": "cpu",
        "pinned": False,
        "uses": 3,
        "last_used": "2026-01-01T00:00:00.250Z",
    }
    assert ask(client, "PUT", "/b", content=b"one").json()["last_used"] is None


@pytest.mark.parametrize("content_type", [None, "application/zip", "application/gzip", "text/plain", "a/b; c=d"])
def test_an_archive_may_be_of_any_type(client, manager, content_type):
    headers = {"Content-Type": content_type} if content_type else {}
    assert ask(client, "PUT", "/a", content=ARCHIVE, headers=headers).status_code == 201
    assert manager.contents["a"] == ARCHIVE


@pytest.mark.parametrize("whole", [True, False], ids=["with a length", "without"])
def test_an_archive_arrives_whole(client, manager, whole):
    assert ask(client, "PUT", "/a", content=ARCHIVE if whole else in_chunks(ARCHIVE)).status_code == 201
    assert manager.contents["a"] == ARCHIVE


@pytest.mark.parametrize("whole", [True, False], ids=["with a length", "without"])
def test_an_archive_over_the_limit_changes_nothing(client, manager, whole):
    content = b"x" * (3 * 2**20 + 1)
    response = ask(client, "PUT", "/a", content=content if whole else in_chunks(content))
    assert error_of(response) == (413, "too_large", None)
    assert "3145728 bytes (max_adapter_bytes)" in response.json()["error"]["message"]
    assert (manager.changes, manager.contents) == ([], {})


def test_an_archive_at_the_limit_is_taken(client, manager):
    assert ask(client, "PUT", "/a", content=b"x" * 3 * 2**20).status_code == 201


def test_json_is_limited_as_on_every_route(client):
    response = ask(client, "PUT", "/a", content=b'{"source": "' + b"x" * 1000 + b'"}', headers=JSON)
    assert error_of(response) == (413, "too_large", None)
    assert "max_body_bytes" in response.json()["error"]["message"]


def test_json_that_is_cut_off_changes_nothing(client, manager):
    ask(client, "PUT", "/a", content=b"one")
    response = ask(client, "PUT", "/a?pinned=true", content=in_chunks(b" " * 1001), headers=JSON)
    assert error_of(response) == (413, "too_large", None)
    assert len(manager.changes) == 1


def test_a_source_may_be_named(client, manager):
    assert ask(client, "PUT", "/a", json={"source": "hub:o/n", "revision": "v1", "pinned": True}).status_code == 201
    assert manager.changes == [
        {
            "adapter_id": "a",
            "uploaded": False,
            "source": "hub:o/n",
            "revision": "v1",
            "pinned": True,
            "preload": True,
            "replace": False,
        }
    ]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/a?pinned=true&preload=false", {"content": b"one"}),
        ("/a?pinned=true&preload=false", {"json": {"source": "one"}}),
        ("/a", {"json": {"source": "one", "pinned": True, "preload": False}}),
        ("/a?pinned=1", {"json": {"source": "one", "preload": False}}),
    ],
)
def test_options_are_in_the_query_or_in_the_json(client, manager, path, sent):
    assert ask(client, "PUT", path, **sent).json()["pinned"] is True
    assert (manager.changes[0]["pinned"], manager.changes[0]["preload"]) == (True, False)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/a?replace=true", {"content": b"other"}),
        ("/a?replace=true", {"json": {"source": "other"}}),
        ("/a", {"json": {"source": "other", "replace": True}}),
    ],
)
def test_other_content_is_a_conflict_unless_it_may_replace(client, manager, path, sent):
    ask(client, "PUT", "/a", content=b"one")
    assert error_of(ask(client, "PUT", "/a", content=b"other"))[:2] == (409, "conflict")
    assert ask(client, "PUT", path, **sent).status_code == 200
    assert manager.contents == {"a": b"other"}


@pytest.mark.parametrize("sent", [{}, {"content": b""}, {"json": {}}, {"content": b"", "headers": JSON}])
def test_without_a_source_the_options_of_an_adapter_change(client, manager, sent):
    assert error_of(ask(client, "PUT", "/a?pinned=true", **sent)) == (404, "adapter_not_found", "adapter_id")
    ask(client, "PUT", "/a", content=b"one")
    changed = ask(client, "PUT", "/a?pinned=true", **sent)
    assert (changed.status_code, changed.json()["pinned"]) == (200, True)
    assert ask(client, "PUT", "/a", **sent).json()["pinned"] is True
    assert ask(client, "PUT", "/a?pinned=false", **sent).json()["pinned"] is False
    assert [change["uploaded"] for change in manager.changes].count(True) == 1


@pytest.mark.parametrize(
    ("path", "sent", "answer"),
    [
        ("/a", {"content": b"bad"}, (422, "adapter_invalid", "adapter")),
        ("/a?pinned=maybe", {"content": b"one"}, (422, "invalid_field", "pinned")),
        ("/a?pined=true", {"content": b"one"}, (422, "invalid_field", "pined")),
        ("/a?source=x", {}, (422, "invalid_field", "source")),
        ("/a?pinned=true", {"json": {"pinned": False}}, (422, "invalid_field", "pinned")),
        ("/a", {"json": {"pinned": "true"}}, (422, "invalid_field", "pinned")),
        ("/a", {"json": {"sourse": "x"}}, (422, "invalid_field", "sourse")),
        ("/a", {"json": {"source": ""}}, (422, "invalid_field", "source")),
        ("/a", {"json": {"source": "folder", "revision": "v1"}}, (422, "invalid_field", "revision")),
        ("/a", {"json": {"revision": "v1"}}, (422, "invalid_field", "revision")),
        ("/a", {"json": [1]}, (422, "invalid_field", None)),
        ("/a", {"content": b"{", "headers": JSON}, (400, "malformed_request", None)),
        ("/a", {"files": {"file": b"one"}}, (415, "unsupported_media_type", None)),
        ("/__base__", {"content": b"one"}, (422, "invalid_field", "adapter_id")),
        ("/A", {"content": b"one"}, (422, "invalid_field", "adapter_id")),
        ("/a%0A", {"content": b"one"}, (422, "invalid_field", "adapter_id")),
        ("/0123456789", {"content": b"one"}, (422, "invalid_field", "adapter_id")),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(client, manager, path, sent, answer):
    assert error_of(ask(client, "PUT", path, **sent)) == answer
    assert manager.contents == {}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("adapter_id", ["__base__", "A"])
def test_an_id_that_no_adapter_can_have_is_refused(client, method, adapter_id):
    assert error_of(ask(client, method, f"/{adapter_id}")) == (422, "invalid_field", "adapter_id")


def test_a_wrong_method_says_which_are_right(client):
    response = ask(client, "POST", "/a", json={})
    assert error_of(response) == (405, "method_not_allowed", None)
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "PUT", "DELETE"}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_where_adapters_are_not_enabled_every_route_says_so(replica, options, serving, method, path):
    client = serving(replica, dataclasses.replace(options, enable_lora=False))
    response = ask(client, method, path)
    assert error_of(response) == (404, "adapter_not_found", None)
    assert "enable_lora" in response.json()["error"]["message"]
    answer = asyncio.run(client.get("/gliner/adapter-cache?adapter_id=A"))
    assert (answer.status_code, answer.json()) == (200, {"enabled": False, "base_adapter_id": "__base__"})


def test_a_put_that_takes_too_long_ends_by_the_deadline(replica, manager, options, serving):
    manager.proceed.clear()
    client = serving(replica, dataclasses.replace(options, request_timeout_s=0.05))

    async def scene():
        response = await client.put("/v1/adapters/a", content=b"one")
        manager.proceed.set()  # its thread may end
        return response

    assert error_of(asyncio.run(scene())) == (504, "deadline_exceeded", None)


def test_a_deletion_may_take_as_long_as_any_request(client, manager):
    ask(client, "PUT", "/a", content=b"one")
    ask(client, "DELETE", "/a")
    assert manager.timeouts_s == [30.0]


def test_a_client_that_leaves_in_the_middle_leaves_nothing(app, manager, caplog):
    messages = [{"type": "http.request", "body": b"one", "more_body": True}, {"type": "http.disconnect"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    path = "/v1/adapters/a"
    scope = {"type": "http", "method": "PUT", "path": path, "raw_path": path.encode(), "headers": [], "root_path": ""}
    asyncio.run(app(scope | {"query_string": b"", "http_version": "1.1"}, receive, send))
    assert sent[0]["status"] == 499
    assert (manager.changes, manager.contents) == ([], {})
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_gliner_serves_adapter_cache(client):
    for adapter_id in ("b", "a", "c"):
        ask(client, "PUT", f"/{adapter_id}", content=b"one")

    def cache(query=""):
        answer = asyncio.run(client.get(f"/gliner/adapter-cache{query}"))
        assert answer.status_code == 200
        return answer.json()

    whole = {
        "enabled": True,
        "base_adapter_id": "__base__",
        "loaded": ["a", "b"],
        "disk_cached": ["a", "b", "c"],
        "disk_cache_dir": "cache",
        "max_disk_adapters": 9,
        "gpu_slots": ["b", None],
    }
    assert cache() == whole
    for adapter_id, cached, cpu_resident, gpu_resident in [
        ("b", True, True, True),
        ("a", True, True, False),
        ("c", True, False, False),
        ("d", False, False, False),
        ("__base__", True, False, True),
    ]:
        one = {"adapter_id": adapter_id, "cached": cached, "cpu_resident": cpu_resident, "gpu_resident": gpu_resident}
        assert cache(f"?adapter_id={adapter_id}") == whole | one


@pytest.mark.parametrize("adapter_id", ["", "A", "a/b"])
def test_gliner_serves_adapter_cache_knows_a_bad_id_by_400(client, adapter_id):
    answer = asyncio.run(client.get("/gliner/adapter-cache", params={"adapter_id": adapter_id}))
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("adapter_id: ")


def test_gliner_serves_base_adapter_is_the_model(client, replica):
    body = {"text": "Ada met Charles.", "labels": ["person"], "adapter_id": "__base__"}
    assert asyncio.run(client.post("/gliner", json=body)).json()["entities"]
    assert replica.calls[0][0][0].adapter_id is None
