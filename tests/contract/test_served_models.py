"""Several models in one server: a request names its own, each has its adapters and limits, and they come and go."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from comparison import gliner_extraction
from lora_training import Trained, train
from on_a_socket import address_of, in_this_loop

from gliner_bento import cli
from gliner_bento.asgi import create_app
from gliner_bento.client import AsyncClient, Client
from gliner_bento.errors import ModelNotFound
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import Entity
from gliner_bento.tasks.extraction import ExtractionItem as Item

FAMILIES = {
    "general": ("span", {"backbone": "bert", "seed": 1}),
    "related": ("relex-span", {"backbone": "bert", "seed": 2}),
}
TEXT = "Bill Gates founded Microsoft in Redmond. Ada Lovelace lives in Paris."
LABELS = {name: name for name in ("person", "company", "city")}
BODY = {"text": TEXT, "labels": list(LABELS), "threshold": 0.3}


@pytest.fixture(scope="module")
def trained(reference: Any, tmp_path_factory: Any) -> dict[str, Trained]:
    """An adapter of each model."""
    return {
        name: train(reference(family, **options), tmp_path_factory.mktemp(name), ["query", "value"], seed=seed)
        for seed, (name, (family, options)) in enumerate(FAMILIES.items())
    }


@pytest.fixture(scope="module")
def serve(checkpoint: Any, tmp_path_factory: Any) -> Callable[[Callable[[httpx.AsyncClient], Awaitable[None]]], None]:
    """Starts the server with both models on a socket, and runs a scene with a client of it."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(checkpoint("span", backbone="bert", seed=1), root / "general")
    (root / "broken").mkdir()
    (root / "broken" / "gliner_config.json").write_text("{}")
    settings = Settings(
        model_root=root,
        model_settings={
            "related": {"max_text_chars": len(TEXT), "max_batch_items": 300, "pinned": True}
            | {"recognizers": (), "default_threshold": 0.4, "presidio_entities": ("PERSON",)}
            | {"presidio_labels": {"PERSON": "name of a person", "STAFF_ID": "number of an employee"}}
        },
        probe_models=False,
        max_model_bytes=2**26,
        models=tuple(f"{name}={checkpoint(family, **options)}" for name, (family, options) in FAMILIES.items()),
        device="cpu",
        dtype="float32",
        warmup_iterations=0,
        self_test=False,
        enable_lora=True,
        disk_cache_dir=tmp_path_factory.mktemp("adapters"),
    )

    def run(scene: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        async def served() -> None:
            app = create_app(settings)
            async with app.router.lifespan_context(app), in_this_loop(app) as server:
                host, port = address_of(server)
                async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client:
                    await scene(client)

        asyncio.run(served())

    return run


def spans(entities: Any) -> list[Any]:
    """Without the scores, which the other tests compare."""
    fields = (vars_of(one) for one in entities)
    return sorted((one["start"], one["end"], one["label"]) for one in fields)


def vars_of(entity: Entity | dict[str, Any]) -> dict[str, Any]:
    return entity if isinstance(entity, dict) else {name: getattr(entity, name) for name in ("start", "end", "label")}


def expected(model: Any) -> list[Any]:
    """What gliner's own model extracts."""
    return spans(gliner_extraction(model, Item(TEXT, LABELS, threshold=0.3)).entities)


def test_a_request_gets_the_model_that_it_names(serve: Any, reference: Any) -> None:
    own = {name: expected(reference(family, **options)) for name, (family, options) in FAMILIES.items()}
    assert own["general"] != own["related"]

    async def scene(client: httpx.AsyncClient) -> None:
        for model, sent in (("general", {}), *((name, {"model": name}) for name in FAMILIES)):
            answer = (await client.post("/v1/extract", json=BODY | sent)).json()
            assert (answer["model"], spans(answer["entities"])) == (model, own[model])
            batch = {"texts": [TEXT], "labels": BODY["labels"], "threshold": 0.3}
            answer = (await client.post("/v1/extract/batch", json=batch | sent)).json()
            assert (answer["model"], spans(answer["results"][0]["result"]["entities"])) == (model, own[model])
            lines = (await client.post("/v1/extract/stream", json=BODY | sent)).text.splitlines()
            assert f'"model":"{model}"' in lines[-1]
            assert len(lines) == len(own[model]) + 1
        for model in FAMILIES:
            answer = (await client.post(f"/predictions/{model}", json=BODY)).json()
            assert (answer["model"], spans(answer["entities"])) == (model, own[model])
            chat = {"model": model, "messages": [{"content": TEXT}], "labels": BODY["labels"], "threshold": 0.3}
            assert (await client.post("/v1/chat/completions", json=chat)).json()["model"] == model
            data = {"text": TEXT, "labels": BODY["labels"], "threshold": 0.3, "flat_ner": True}
            pooled = await client.post("/pooling", json={"model": model, "data": data})
            assert spans(pooled.json()["data"]) == own[model]

    serve(scene)


def test_an_unknown_model_is_not_found_and_all_are_listed(serve: Any) -> None:
    async def scene(client: httpx.AsyncClient) -> None:
        for sent in (
            client.post("/v1/extract", json=BODY | {"model": "other"}),
            client.post("/v1/extract/batch", json={"texts": [TEXT], "labels": ["a"], "model": "other"}),
            client.get("/v1/model?model=other"),
            client.get("/v1/adapters?model=other"),
        ):
            answer = await sent
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
            assert "general, related" in answer.json()["error"]["message"]
        assert (await client.post("/predictions/other", json=BODY)).json()["type"] == "ModelNotFoundException"
        chat = {"model": "other", "messages": [{"content": TEXT}]}
        assert (await client.post("/v1/chat/completions", json=chat)).status_code == 404
        listed = (await client.get("/v1/models")).json()["data"]
        for one in listed:
            assert 0 <= time.time() - one["created"] < 3600
            assert (await client.get(f"/v1/models/{one['id']}")).json() == one
        assert (await client.get("/v1/models/none")).status_code == 404
        assert [one["id"] for one in listed] == ["general", "related"]
        cards = [(await client.get("/v1/model", params={"model": name})).json() for name in FAMILIES]
        assert [(card["model"], card["supports_relations"]) for card in cards] == [
            ("general", False),
            ("related", True),
        ]
        assert [one["revision"] for one in listed] == [card["fingerprint"] for card in cards]
        assert (await client.get("/v1/status", params={"model": "related"})).json()["model"] == "related"
        assert (await client.get("/readyz")).status_code == 200

    serve(scene)


def test_what_a_model_cannot_do_is_refused_in_its_name(serve: Any) -> None:
    async def scene(client: httpx.AsyncClient) -> None:
        asked = BODY | {"relations": ["founded"]}
        related = (await client.post("/v1/extract", json=asked | {"model": "related"})).json()
        assert related["model"] == "related"
        answers = [await client.post("/v1/extract", json=asked | sent) for sent in ({}, {"model": "general"})]
        assert [(one.status_code, one.json()["error"]["param"]) for one in answers] == [(422, "relations")] * 2
        assert "'general' does not support the task relations" in answers[0].json()["error"]["message"]

    serve(scene)


def test_one_adapter_id_is_an_adapter_of_each_model(serve: Any, trained: dict[str, Trained], tmp_path: Path) -> None:
    own = {name: expected(one.merged) for name, one in trained.items()}

    async def scene(client: httpx.AsyncClient) -> None:
        for name, one in trained.items():
            archive = Path(shutil.make_archive(str(tmp_path / name), "zip", one.folder)).read_bytes()
            headers = {"Content-Type": "application/zip"}
            put = await client.put("/v1/adapters/mine", params={"model": name}, content=archive, headers=headers)
            assert put.status_code == 201, put.text
        for name in FAMILIES:
            answer = (await client.post("/v1/extract", json=BODY | {"model": name, "adapter_id": "mine"})).json()
            assert spans(answer["entities"]) == own[name]
        assert (await client.delete("/v1/adapters/mine")).status_code == 204  # of the default
        left = [(await client.get("/v1/adapters", params={"model": name})).json()["adapters"] for name in FAMILIES]
        assert [[one["id"] for one in adapters] for adapters in left] == [[], ["mine"]]

    serve(scene)


def test_clients_and_commands_name_a_model(serve: Any, reference: Any, capsys: Any) -> None:
    own = {name: expected(reference(family, **options)) for name, (family, options) in FAMILIES.items()}
    options = {"labels": BODY["labels"], "threshold": 0.3}

    async def scene(client: httpx.AsyncClient) -> None:
        url = str(client.base_url)
        async with AsyncClient(url) as plain, AsyncClient(url, model="related") as related:
            assert spans((await plain.extract(TEXT, model="related", **options)).entities) == own["related"]
            assert spans((await related.extract(TEXT, model="general", **options)).entities) == own["general"]
            assert spans((await related.extract(TEXT, **options)).entities) == own["related"]
            streamed = [line async for line in related.extract_stream(TEXT, **options)]
            assert spans(streamed[:-1]) == own["related"]
            many = [one.result async for one in related.extract_many([TEXT], **options)]
            assert spans(many[0].entities) == own["related"]
            assert [(await one.model()).model for one in (plain, related)] == ["general", "related"]
            assert (await related.status()).model == "related"
        with Client(url, model="other") as other, pytest.raises(ModelNotFound, match="general, related"):
            await asyncio.to_thread(other.extract, TEXT, **options)
        arguments = ["extract", TEXT, "--labels", ",".join(LABELS), "--threshold", "0.3", "--url", url, "--json"]
        assert await asyncio.to_thread(cli.main, [*arguments, "--model-name", "related"]) == 0
        assert spans(json.loads(capsys.readouterr().out)["entities"]) == own["related"]
        for words, message in (
            ([*arguments, "--model-name", "other"], "extract: model: no model 'other'; there are general, related"),
            ([*arguments[:-3], "--model-name", "related"], "name the server with --url"),
        ):
            assert await asyncio.to_thread(cli.main, words) == 1
            assert message in capsys.readouterr().err

    serve(scene)


def test_metrics_have_the_model_in_a_label(serve: Any) -> None:
    async def scene(client: httpx.AsyncClient) -> None:
        async def counted() -> dict[str, float]:
            text = (await client.get("/metrics")).text
            pattern = r'gliner_items_total\{model="(\w+)",outcome="completed"\} (\S+)'
            assert set(re.findall(r'gliner_ready\{model="(\w+)"\} 1\.0', text)) == set(FAMILIES)
            return {name: float(value) for name, value in re.findall(pattern, text)}

        before = await counted()
        await client.post("/v1/extract/batch", json={"texts": [TEXT] * 3, "labels": ["a"], "model": "related"})
        after = await counted()
        assert {name: after[name] - before[name] for name in FAMILIES} == {"general": 0, "related": 3}

    serve(scene)


async def states(client: httpx.AsyncClient) -> dict[str, str]:
    return {one["id"]: one["state"] for one in (await client.get("/v1/models")).json()["data"]}


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_each_model_has_its_own_limits(serve: Any) -> None:
    async def scene(client: httpx.AsyncClient) -> None:
        longer = BODY | {"text": f"{TEXT} "}
        assert (await client.post("/v1/extract", json=longer)).status_code == 200
        assert error_of(await client.post("/v1/extract", json=longer | {"model": "related"})) == (413, "too_large")
        assert (await client.get("/v1/model?model=related")).json()["max_batch_items"] == 300
        listed = (await client.get("/v1/models")).json()["data"]
        assert [(one["default"], one["pinned"], one["bytes"] > 0) for one in listed] == [
            (True, False, True),
            (False, True, True),
        ]
        card = {"text": "4012888888881881", "language": "en", "entities": ["CREDIT_CARD"], "score_threshold": 1}
        for model, found, names, threshold in (("general", 1, True, "0.5"), ("related", 0, False, "0.4")):
            assert len((await client.post("/analyze", json=card | {"model": model})).json()) == found
            recognizers = (await client.get(f"/recognizers?model={model}")).json()
            assert ("CreditCardRecognizer" in recognizers) == names
            (version,) = (await client.get(f"/versions?model={model}")).json()["versions"]
            assert version.endswith(f"-{threshold}-0.5")

    serve(scene)


def test_each_model_has_its_own_labels_of_presidios_types(serve: Any) -> None:
    async def scene(client: httpx.AsyncClient) -> None:
        for model, label, staff in (("general", "person", False), ("related", "name of a person", True)):
            assert ("STAFF_ID" in (await client.get(f"/supportedentities?model={model}")).json()) == staff
            body = {"text": TEXT, "language": "en", "model": model, "return_decision_process": True}
            (first, *_) = (await client.post("/analyze", json=body | {"entities": ["PERSON"]})).json()
            why = first["analysis_explanation"]["textual_explanation"]
            assert why == f"Identified as {label} by a GLiNER model"
            types = {one["entity_type"] for one in (await client.post("/analyze", json=body)).json()}
            assert (types == {"PERSON"}) == staff

    serve(scene)


def test_a_model_is_uploaded_as_an_archive(serve: Any, checkpoint: Any, reference: Any, tmp_path: Path) -> None:
    family, options = FAMILIES["related"]
    own = expected(reference(family, **options))
    folder = checkpoint(family, **options)
    archives = {
        kind: Path(shutil.make_archive(str(tmp_path / kind), kind, folder.parent, folder.name))
        for kind in ("zip", "gztar")
    }
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    for name in ("gliner_config.json", "pytorch_model.bin"):
        (pickled / name).write_text("{}")

    async def scene(client: httpx.AsyncClient) -> None:
        url = str(client.base_url)
        for archive in archives.values():
            words = ["models", "add", "sent", str(archive), "--url", url]
            assert await asyncio.to_thread(cli.main, words) == 0
            answer = (await client.post("/v1/extract", json=BODY | {"model": "sent"})).json()
            assert (answer["model"], spans(answer["entities"])) == ("sent", own)
            assert (await client.delete("/v1/models/sent")).status_code == 204
        kept = dict(settings='{"max_text_chars": 5}', pinned="true")
        added = await client.post("/v1/models", params={"name": "sent", **kept}, content=archive.read_bytes())
        assert (added.status_code, added.json()["pinned"]) == (201, True)
        assert error_of(await client.post("/v1/extract", json=BODY | {"model": "sent"})) == (413, "too_large")
        assert (await client.delete("/v1/models/sent")).status_code == 204

        binless = Path(shutil.make_archive(str(tmp_path / "binless"), "zip", pickled)).read_bytes()
        for query, content, error, message in (
            ({}, b"PK", (422, "invalid_field"), "name: Field required"),
            ({"pinned": "yes"}, b"PK", (422, "invalid_field"), "pinned: is not JSON"),
            ({"source": "x"}, b"PK", (422, "invalid_field"), "must not be set if an archive is sent"),
            ({}, b"", (422, "model_failed"), "the body is empty"),
            ({}, b"no archive", (422, "model_failed"), "archive: the archive is neither zip nor tar"),
            ({}, binless, (422, "model_failed"), "'pytorch_model.bin' is never unpickled"),
            ({}, b"x" * (2**26 + 1), (413, "too_large"), "max_model_bytes"),
            ({"name": "general"}, archive.read_bytes(), (409, "conflict"), "there is a model general"),
        ):
            name = {} if message.startswith("name") else {"name": "new"}
            answer = await client.post("/v1/models", params=name | query, content=content)
            assert error_of(answer) == error, answer.text
            assert message in answer.json()["error"]["message"]
        assert set(await states(client)) == {"general", "related"}

    serve(scene)


def test_a_model_is_added_unloaded_under_load_and_deleted(serve: Any, reference: Any) -> None:
    own = expected(reference("span", backbone="bert", seed=1))

    async def scene(client: httpx.AsyncClient) -> None:
        new = {"name": "new", "source": "general", "settings": {"max_batch_items": 500}}
        added = await client.post("/v1/models", json=new)
        assert (added.status_code, added.json()["state"]) == (201, "ready"), added.text
        longest = {"texts": ["Ada"] * 500, "labels": BODY["labels"], "model": "new"}
        assert (await client.post("/v1/extract/batch", json=longest)).status_code == 200
        assert error_of(await client.post("/v1/extract/batch", json=longest | {"model": "general"})) == (
            413,
            "too_large",
        )
        assert error_of(await client.post("/v1/models", json=new)) == (409, "conflict")
        assert error_of(await client.post("/v1/models/general/unload")) == (409, "conflict")
        assert error_of(await client.delete("/v1/models/general")) == (409, "conflict")
        broken = {"name": "broken", "source": "broken"}
        assert error_of(await client.post("/v1/models", json=broken)) == (422, "model_failed")
        assert set(await states(client)) == {"general", "related", "new"}
        answer = (await client.post("/v1/extract", json=BODY | {"model": "new"})).json()
        assert (answer["model"], spans(answer["entities"])) == ("new", own)

        batch = {"texts": [TEXT] * 250, "labels": BODY["labels"], "model": "new", "timeout_ms": 60_000}
        load = [asyncio.create_task(client.post("/v1/extract/batch", json=batch)) for _ in range(8)]
        while 'gliner_unfinished_items{model="new"} 0.0' in (await client.get("/metrics")).text:
            assert not any(one.done() for one in load), load[0].result().text[:500]
        unloaded = await client.post("/v1/models/new/unload")
        assert (unloaded.status_code, unloaded.json()["state"]) == (200, "unloaded")
        answers = await asyncio.gather(*load)
        ended = [one for one in answers if one.status_code == 200]
        assert ended  # the others were refused, as a whole and clearly
        assert {error_of(one) for one in answers if one not in ended} <= {(503, "model_not_loaded")}
        assert all(result["result"] for one in ended for result in one.json()["results"])

        assert error_of(await client.post("/v1/extract", json=BODY | {"model": "new"})) == (503, "model_not_loaded")
        assert [one["status"] for one in (await client.get("/models")).json()["models"]] == [
            "READY",
            "READY",
            "PENDING",
        ]
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.post("/v1/models/new/load")).json()["state"] == "ready"
        assert (await client.post("/v1/models/new/pin")).json()["pinned"]
        assert not (await client.post("/v1/models/new/unpin")).json()["pinned"]
        assert (await client.delete("/v1/models/new")).status_code == 204
        registered = await client.post("/models?url=general&model_name=new")
        assert (registered.status_code, registered.json()) == (200, {"status": 'Model "new" registered.'})
        assert (await client.post("/models?url=general&model_name=new")).json()["code"] == 409
        assert (await client.post("/models?model_name=new")).json()["message"].startswith("url: ")
        assert (await client.delete("/models/new")).json() == {"status": 'Model or workflow "new" unregistered'}
        assert error_of(await client.post("/v1/extract", json=BODY | {"model": "new"})) == (404, "model_not_found")
        assert error_of(await client.delete("/v1/models/general")) == (409, "conflict")
        assert error_of(await client.post("/v1/models/none/load")) == (404, "model_not_found")
        assert set(await states(client)) == {"general", "related"}

    serve(scene)
