"""`GLiNERFactory`: the model in this process, and a server that it starts."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gliner_bento.process.in_process import URL
from gliner_bento.serve import GLiNERClient, GLiNERClientError, GLiNERFactory, GLiNERServeConfig, serve, shutdown
from gliner_bento.serve.backends import Service
from gliner_bento.settings import PROJECT_ROOT, SettingsError

MODEL = str(PROJECT_ROOT / "models" / "demo")
TEXTS = [
    "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond.",
    "John works at Google in Mountain View.",
    "Ada Lovelace lived in London.",
]
LABELS = ["person", "organization", "date", "location"]
RELATIONS = ["founded", "headquartered in"]


@pytest.fixture(scope="module")
def factory():
    with GLiNERFactory(MODEL, dtype="float32", warmup_iterations=0, in_process=True) as factory:
        yield factory


@pytest.mark.bento_only
def test_the_answers_are_those_of_the_server(factory, service):
    given = {"labels": LABELS, "relations": RELATIONS, "threshold": 0.3, "relation_threshold": 0.3}
    served = [service.request("POST", "/gliner", json={"text": text, **given}).json() for text in TEXTS]
    assert served[0]["entities"]
    assert factory.predict(TEXTS, **given) == served
    assert factory.predict(TEXTS[0], **given) == served[0]
    assert asyncio.run(factory.predict_async(TEXTS, **given)) == served
    assert factory.handle.predict.remote(TEXTS[1], **given).result() == served[1]
    extracted = service.extract(text=TEXTS[0], **given).json()
    assert factory.predict(TEXTS[0], **given)["entities"] == extracted["entities"]


def test_each_text_may_have_its_own_labels(factory):
    first, second = factory.predict(TEXTS[:2], [["person"], {"firm": "organization"}])
    assert {entity["label"] for entity in first["entities"]} == {"person"}
    assert {entity["label"] for entity in second["entities"]} == {"firm"}
    assert "relations" not in first
    with pytest.raises(ValueError, match="Per-text labels must have length 2, got 1"):
        factory.predict(TEXTS[:2], [["person"]])


def test_more_texts_than_the_queue_may_hold_are_all_answered(factory):
    alone = factory.predict(TEXTS[2], LABELS)
    assert factory.predict([TEXTS[2]] * 200, LABELS) == [alone] * 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 2.0}, "400: .*threshold"),
        ({"labels": []}, "400: .*labels"),
        ({"adapter_id": "gone"}, "404: .*adapter_id: adapters are not enabled"),
    ],
)
def test_a_wrong_request_is_the_clients_error(factory, options, message):
    with pytest.raises(GLiNERClientError, match=message):
        factory.predict("Ada", **{"labels": LABELS, **options})


def test_the_widths_of_entities_and_the_length_of_texts_can_be_limited():
    with GLiNERFactory(
        MODEL, dtype="float32", max_span_width=1, max_model_len=20, warmup_iterations=0, in_process=True
    ) as narrow:
        found = narrow.predict(TEXTS[0], LABELS)["entities"]
        backend = narrow.handle._backend
        asked = backend._http.get(f"{URL}/v1/model")
        info = asyncio.run_coroutine_threadsafe(asked, backend._loop).result().json()
    assert found
    assert all(" " not in entity["text"] for entity in found)
    assert (info["max_span_width"], info["max_words"], info["self_test"]) == (1, 20, "passed")


def test_a_factory_that_has_shut_down_answers_no_more():
    factory = GLiNERFactory(MODEL, dtype="float32", warmup_iterations=0, in_process=True)
    factory.shutdown()
    factory.shutdown()
    with pytest.raises(GLiNERClientError, match="shut down"):
        factory.predict("Ada", LABELS)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({}, ValueError, "Must provide either `model` or `config`."),
        ({"model": "a/b", "config": GLiNERServeConfig("a/b")}, ValueError, "Pass either"),
        ({"model": MODEL, "max_batch_sise": 3}, TypeError, "max_batch_sise"),
        ({"model": MODEL, "max_batch_size": 0}, SettingsError, "max_batch_size"),
        ({"model": MODEL, "num_replicas": 2, "in_process": True}, ValueError, "num_replicas"),
    ],
)
def test_a_wrong_configuration_fails_before_anything_starts(arguments, kind, message):
    with pytest.raises(kind, match=message):
        GLiNERFactory(**arguments)


def test_a_port_that_is_taken_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SettingsError, match="Address already in use"):
        Service(GLiNERServeConfig(MODEL, http_port=taken.getsockname()[1]))


def test_a_server_that_is_not_there_is_the_clients_error():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(GLiNERClientError, match="Connection refused"):
        GLiNERClient(f"http://127.0.0.1:{port}").predict("Ada", LABELS)


@pytest.mark.slow
@pytest.mark.bento_only
def test_a_factory_starts_a_server_that_both_clients_call(factory, service, monkeypatch, tmp_path):
    from gliner.serve import GLiNERClient as Theirs

    for name in ("GLINER_MAX_TEXT_CHARS", "GLINER_REQUEST_TIMEOUT_S", "GLINER_MAX_QUEUE_WAIT_S"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("BENTOML_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = GLiNERServeConfig(MODEL, dtype="float32", http_port=port, default_threshold=0.4, route_prefix="/own")
    handle = serve(config)
    expected = factory.predict(TEXTS, LABELS, threshold=0.4)
    for kind in (GLiNERClient, Theirs):
        client = kind(f"http://127.0.0.1:{port}", "/own")
        assert client.predict(TEXTS, LABELS) == expected
        assert asyncio.run(client.predict_async(TEXTS, LABELS)) == expected
        assert client.adapter_cache_status()["enabled"] is False
    assert handle.predict.remote(TEXTS[0], LABELS).result() == expected[0]
    with pytest.raises(GLiNERClientError, match="threshold") as wrong:
        handle.predict.remote("Ada", LABELS, threshold=2.0).result()
    assert wrong.value.status == 400
    shutdown()
    with pytest.raises(GLiNERClientError):
        GLiNERClient(f"http://127.0.0.1:{port}", "/own").predict("Ada", LABELS)
