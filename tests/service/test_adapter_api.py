"""`/v1/adapters` of a real server, with adapters of the bundled model as PEFT saves them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import patient
import pytest
from gliner.serve.client import GLiNERClient, GLiNERClientError
from saved_adapters import (
    BODY,
    FILES,
    LABELS,
    MAX_ADAPTER_BYTES,
    MAX_DISK_ADAPTERS,
    TEXT,
    archive_of,
    error_of,
    ids,
    put,
    scores,
    tarred,
    zipped,
)

from gliner_bento.client import AsyncClient, Client
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, Conflict
from gliner_bento.settings import PROJECT_ROOT


@pytest.fixture
def server(own_server) -> str:
    return own_server.url


@pytest.fixture
def http(server) -> Iterator[httpx.Client]:
    """Each test begins with only the operator's adapter."""
    with httpx.Client(base_url=server, timeout=120, transport=patient.UntilReady()) as client:
        for card in client.get("/v1/adapters").json()["adapters"]:
            if card["source"] != "folder" or card["id"] != "own":
                client.delete(f"/v1/adapters/{card['id']}").raise_for_status()
        client.put("/v1/adapters/own?pinned=false&preload=false").raise_for_status()
        yield client


def test_an_adapter_that_was_put_is_returned_and_used(http, adapters):
    new = put(http, "tenant-a", zipped(adapters["one"]))
    card = new.json()
    assert (new.status_code, card["id"], card["source"], card["rank"]) == (201, "tenant-a", "upload", 4)
    assert card["bytes"] == sum((adapters["one"] / name).stat().st_size for name in FILES)
    assert len(card["targets"]) == 12  # of six layers
    assert (card["tier"], card["pinned"], card["uses"], card["last_used"]) == ("cpu", False, 0, None)
    assert http.get("/v1/adapters/tenant-a").json() == card
    assert card in http.get("/v1/adapters").json()["adapters"]
    base = scores(http)
    adapted = scores(http, "tenant-a")
    assert adapted != pytest.approx(base, abs=0.01)
    assert scores(http, "tenant-a") == pytest.approx(adapted, abs=1e-4)
    assert scores(http) == scores(http, "__base__") == pytest.approx(base, abs=1e-4)
    used = http.get("/v1/adapters/tenant-a").json()
    assert (used["tier"], used["uses"]) == ("device", 2)
    assert used["last_used"].endswith("Z")


def test_an_answer_says_which_adapter_made_it(http, adapters):
    put(http, "tenant-a", zipped(adapters["one"]))
    for adapter_id, answered in [("tenant-a", "tenant-a"), ("__base__", None), (None, None)]:
        assert http.post("/v1/extract", json=BODY | {"adapter_id": adapter_id}).json()["adapter_id"] == answered


def test_texts_of_several_adapters_in_one_request_get_the_answers_of_single_requests(http, adapters):
    put(http, "tenant-a", zipped(adapters["one"]))
    put(http, "tenant-b", zipped(adapters["two"]))
    wanted = ["tenant-a", None, "tenant-b", "nobody", "own", "__base__", "tenant-a"]
    single = {adapter_id: scores(http, adapter_id) for adapter_id in ("tenant-a", "tenant-b", "own", None)}
    assert single["own"] == pytest.approx(single["tenant-b"], abs=1e-4)
    items = [{"text": TEXT, "adapter_id": adapter_id} for adapter_id in wanted]
    body = {"items": items, "labels": LABELS, "threshold": 0.1}
    results = http.post("/v1/extract/batch", json=body).json()["results"]
    for adapter_id, result in zip(wanted, results, strict=True):
        if adapter_id == "nobody":
            assert (result["error"]["code"], result["error"]["param"]) == ("adapter_not_found", "items.3.adapter_id")
        else:
            found = {(entity["text"], entity["label"]): entity["score"] for entity in result["result"]["entities"]}
            assert found == pytest.approx(single[None if adapter_id == "__base__" else adapter_id], abs=1e-4)


def test_the_same_adapter_again_changes_nothing_and_another_is_a_conflict(http, adapters):
    assert put(http, "tenant-a", zipped(adapters["one"])).status_code == 201
    for same in (zipped(adapters["one"]), zipped(adapters["one"], prefix="some/"), tarred(adapters["one"])):
        assert put(http, "tenant-a", same).status_code == 200
    assert error_of(put(http, "tenant-a", zipped(adapters["two"]))) == (409, "conflict", "adapter_id")
    assert http.get("/v1/adapters/tenant-a").json()["rank"] == 4


def test_an_adapter_may_come_as_tar_in_pieces_and_without_a_length(http, adapters):
    content = tarred(adapters["one"])

    def chunks():
        for start in range(0, len(content), 1000):
            yield content[start : start + 1000]

    assert http.put("/v1/adapters/tenant-a", content=chunks()).status_code == 201
    assert scores(http, "tenant-a") != pytest.approx(scores(http), abs=0.01)


def test_an_archive_that_is_larger_than_a_piece_or_a_body_may_be_arrives_whole(http, adapters):
    others = {"README.md": os.urandom(3 * 2**20)}
    assert put(http, "tenant-a", zipped(adapters["one"], **others)).status_code == 201
    assert put(http, "tenant-a", zipped(adapters["one"])).status_code == 200


def test_an_adapter_is_pinned_and_unpinned(http, adapters):
    assert put(http, "tenant-a", zipped(adapters["one"]), pinned=True).json()["pinned"] is True
    assert http.put("/v1/adapters/tenant-a").json()["pinned"] is True
    let_go = http.put("/v1/adapters/tenant-a", json={"pinned": False})
    assert (let_go.status_code, let_go.json()["pinned"]) == (200, False)
    assert http.put("/v1/adapters/own?pinned=1").json()["pinned"] is True


def test_an_adapter_is_loaded_now_or_when_it_is_requested(http, adapters):
    assert put(http, "tenant-a", zipped(adapters["one"]), preload=False).json()["tier"] == "disk"
    assert http.put("/v1/adapters/tenant-a").json()["tier"] == "cpu"


def test_metrics_count_what_was_loaded_and_what_left(http, adapters):
    def counted(name):
        lines = http.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    loads, left = (
        'gliner_adapter_load_seconds_count{model="demo",outcome="completed"}',
        'gliner_adapter_evictions_total{model="demo"}',
    )
    before = counted(loads), counted(left)
    put(http, "counted", zipped(adapters["one"]))
    http.delete("/v1/adapters/counted")
    assert (counted(loads), counted(left)) == (before[0] + 1, before[1] + 1)


def test_adapters_of_the_operator_are_served_and_can_be_put_under_other_ids(http):
    assert http.get("/v1/adapters/own").json()["source"] == "folder"
    named = http.put("/v1/adapters/tenant-a", json={"source": "teams/b", "preload": False})
    assert (named.status_code, named.json()["source"], named.json()["rank"]) == (201, "folder", 4)
    assert scores(http, "tenant-a") != pytest.approx(scores(http, "own"), abs=0.01)


@pytest.mark.parametrize("source", ["../trained/one", "/etc", "missing", ".", "hub:owner/name"])
def test_a_source_that_the_server_does_not_allow_is_named(http, source):
    response = http.put("/v1/adapters/tenant-a", json={"source": source})
    assert error_of(response) == (422, "invalid_field", "source")
    assert ids(http) == {"own"}


def test_what_is_the_operators_is_changed_by_the_operator(http, adapters):
    assert error_of(put(http, "own", zipped(adapters["one"]))) == (409, "conflict", "adapter_id")
    assert error_of(http.delete("/v1/adapters/own")) == (409, "conflict", "adapter_id")
    assert ids(http) == {"own"}


def test_an_unknown_adapter_is_404_on_every_route(http):
    not_found = (404, "adapter_not_found", "adapter_id")
    assert error_of(http.get("/v1/adapters/nobody")) == not_found
    assert error_of(http.delete("/v1/adapters/nobody")) == not_found
    assert error_of(http.put("/v1/adapters/nobody?pinned=true")) == not_found
    assert error_of(http.post("/v1/extract", json=BODY | {"adapter_id": "nobody"})) == not_found
    assert http.post("/gliner", json=BODY | {"adapter_id": "nobody"}).status_code == 404


@pytest.mark.parametrize("adapter_id", ["__base__", ".hidden", "a b", "x" * 129, "%C3%A4"])
def test_an_id_that_no_adapter_can_have_is_named(http, adapters, adapter_id):
    assert error_of(put(http, adapter_id, zipped(adapters["one"]))) == (422, "invalid_field", "adapter_id")
    assert error_of(http.get(f"/v1/adapters/{adapter_id}")) == (422, "invalid_field", "adapter_id")


def bad_archives(adapters: dict[str, Path]) -> dict[str, bytes]:
    config, weights = ((adapters["one"] / name).read_bytes() for name in FILES)
    other = (adapters["two"] / FILES[1]).read_bytes()
    return {
        "no archive": b"hello",
        "an archive that ends early": zipped(adapters["one"])[:-30],
        "a tar that ends early": tarred(adapters["one"])[:-30],
        "no configuration": archive_of(**{FILES[1]: weights}),
        "pickled weights": archive_of(**{FILES[0]: config, "adapter_model.bin": weights}),
        "a path out of the archive": archive_of(**{FILES[0]: config, f"../{FILES[1]}": weights}),
        "weights that are none": archive_of(**{FILES[0]: config, FILES[1]: b"\0" * 100}),
        "weights of another adapter": archive_of(**{FILES[0]: config, FILES[1]: other}),
        "a rank that is too high": zipped(adapters["high"]),
    }


def test_what_is_no_adapter_is_refused_and_leaves_nothing(http, adapters):
    for what, content in bad_archives(adapters).items():
        assert error_of(put(http, "tenant-a", content))[:2] == (422, "adapter_invalid"), what
    assert ids(http) == {"own"}
    assert put(http, "tenant-a", zipped(adapters["one"])).status_code == 201


def test_what_is_too_large_is_refused_packed_and_unpacked(http, adapters):
    def chunks():
        for _ in range(MAX_ADAPTER_BYTES // 2**16 + 1):
            yield b"x" * 2**16

    bomb = archive_of(**{FILES[0]: b"{}", FILES[1]: b"\0" * (MAX_ADAPTER_BYTES + 1)})
    for content in (b"x" * (MAX_ADAPTER_BYTES + 1), chunks(), bomb):
        response = http.put("/v1/adapters/tenant-a", content=content)
        assert error_of(response)[:2] == (413, "too_large")
    assert ids(http) == {"own"}


def test_one_adapter_too_many_is_refused(http, adapters):
    for number in range(MAX_DISK_ADAPTERS):
        assert put(http, f"tenant-{number}", zipped(adapters["one"]), preload=False).status_code == 201
    assert error_of(put(http, "late", zipped(adapters["one"])))[:2] == (507, "storage_full")
    assert put(http, "tenant-0", zipped(adapters["one"])).status_code == 200
    http.delete("/v1/adapters/tenant-0").raise_for_status()
    assert put(http, "late", zipped(adapters["one"])).status_code == 201


def test_more_adapters_than_the_device_holds_are_served(http, adapters):
    for name in ("a", "b", "c"):
        put(http, name, zipped(adapters["one" if name != "b" else "two"]))
    first = {name: scores(http, name) for name in ("a", "b", "c", "own")}
    for name in ("own", "c", "a", "b"):
        assert scores(http, name) == pytest.approx(first[name], abs=1e-4)
    tiers = [card["tier"] for card in http.get("/v1/adapters").json()["adapters"]]
    assert sorted(tiers) == ["cpu", "cpu", "device", "device"]


def test_a_deletion_waits_for_what_runs_and_leaves_nothing_behind(http, adapters):
    put(http, "tenant-a", zipped(adapters["one"]), preload=False)
    body = {"texts": [f"{TEXT} {number}" for number in range(40)], "labels": LABELS, "adapter_id": "tenant-a"}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(http.post, "/v1/extract/batch", json=body)
        while not running.done() and not http.get("/v1/adapters/tenant-a").json()["uses"]:
            pass
        assert http.delete("/v1/adapters/tenant-a").status_code == 204
        results = running.result().json()["results"]
    assert results[0]["result"]
    assert {result["error"]["code"] for result in results if result["error"]} <= {"adapter_not_found"}
    assert ids(http) == {"own"}
    assert error_of(http.post("/v1/extract", json=BODY | {"adapter_id": "tenant-a"}))[0] == 404
    assert put(http, "tenant-a", zipped(adapters["two"])).status_code == 201, "the id is free"


def test_gliner_serves_client_sees_the_cache_and_asks_for_adapters(http, server, adapters):
    put(http, "tenant-a", zipped(adapters["one"]), preload=False)
    client = GLiNERClient(server, timeout=120)
    status = client.adapter_cache_status()
    assert (status["enabled"], status["base_adapter_id"]) == (True, "__base__")
    assert set(status["disk_cached"]) == {"own", "tenant-a"}
    assert "tenant-a" not in status["loaded"]
    assert status["max_disk_adapters"] == MAX_DISK_ADAPTERS
    assert Path(status["disk_cache_dir"]).is_dir()
    assert len(status["gpu_slots"]) == 2
    assert client.is_adapter_cached("tenant-a") is True
    assert client.is_adapter_cached("nobody") is False
    assert client.is_adapter_cached("__base__") is True
    answer = client.predict(TEXT, LABELS, threshold=0.1, adapter_id="tenant-a")
    found = {(entity["text"], entity["label"]): entity["score"] for entity in answer["entities"]}
    assert found == pytest.approx(scores(http, "tenant-a"), abs=1e-4)
    assert client.predict(TEXT, LABELS, adapter_id="__base__") == client.predict(TEXT, LABELS)
    one = client.adapter_cache_status("tenant-a")
    assert (one["adapter_id"], one["cached"], one["cpu_resident"], one["gpu_resident"]) == (
        "tenant-a",
        True,
        True,
        True,
    )
    base = client.adapter_cache_status("__base__")
    assert (base["cached"], base["cpu_resident"], base["gpu_resident"]) == (True, False, True)
    with pytest.raises(GLiNERClientError, match="400"):
        client.adapter_cache_status("not an id")
    with pytest.raises(GLiNERClientError, match="404"):
        client.predict(TEXT, LABELS, adapter_id="nobody")


def test_our_client(http, server, adapters):
    with Client(server, timeout_s=120) as client:
        card = client.put_adapter("tenant-a", adapters["one"], pinned=True)
        assert (card.id, card.rank, card.pinned, card.tier) == ("tenant-a", 4, True, "cpu")
        assert client.put_adapter("tenant-a", pinned=False).pinned is False
        assert {card.id for card in client.adapters().adapters} == {"own", "tenant-a"}
        assert client.extract(TEXT, LABELS, adapter_id="tenant-a").adapter_id == "tenant-a"
        with pytest.raises(Conflict):
            client.put_adapter("tenant-a", adapters["two"])
        client.delete_adapter("tenant-a")
        with pytest.raises(AdapterNotFound):
            client.adapter("tenant-a")


def test_our_client_for_asyncio(http, server, adapters, tmp_path):
    file = tmp_path / "two.tar.gz"
    file.write_bytes(tarred(adapters["two"]))

    async def scene():
        async with AsyncClient(server, timeout_s=120) as client:
            cards = await asyncio.gather(
                client.put_adapter("tenant-a", adapters["one"]),
                client.put_adapter("tenant-b", file),
                client.put_adapter("tenant-c", "teams/b"),
            )
            assert [(card.id, card.rank, card.source) for card in cards] == [
                ("tenant-a", 4, "upload"),
                ("tenant-b", 8, "upload"),
                ("tenant-c", 4, "folder"),
            ]
            assert (await client.adapter("tenant-b")).rank == 8
            assert len((await client.adapters()).adapters) == 4
            with pytest.raises(AdapterInvalid):
                await client.put_adapter("high", adapters["high"])
            await asyncio.gather(*(client.delete_adapter(card.id) for card in cards))
            return await client.adapters()

    assert [card.id for card in asyncio.run(scene()).adapters] == ["own"]


def test_the_requests_of_the_page_about_adapters_are_answered(http, server, adapters, tmp_path):
    page = (PROJECT_ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    commands = re.findall(r"```bash\n(curl .*?)```", page, re.DOTALL)
    (tmp_path / "tenant-a.zip").write_bytes(zipped(adapters["one"]))
    for command in commands:
        local = command.replace("curl ", "curl --silent --show-error --fail ", 1)
        local = local.replace("localhost:3000", server.removeprefix("http://"))
        subprocess.run(["bash", "-c", local], cwd=tmp_path, check=True, timeout=60)
    for route in ("v1/adapters", "v1/adapters/tenant-a", "gliner/adapter-cache"):
        assert f"localhost:3000/{route}" in page
    assert len(commands) == 8
    assert ids(http) == {"own", "tenant-b"}
