"""DJL Serving's routes: inference, the list and description of the model, what is refused, and the errors."""

from __future__ import annotations

import pytest
from asking import ask

BODY = {"text": "Ada met Charles", "labels": ["person"]}


@pytest.mark.parametrize(
    "path",
    ["/predictions/memory", "/predictions/memory/v7", "/invocations", "/invocations?model_name=memory"],
)
def test_an_inference_is_an_extraction(client, path):
    answer, ours = ask(client, "POST", path, json=BODY).json(), ask(client, "POST", "/v1/extract", json=BODY).json()
    assert answer["entities"]
    assert {**answer, "request_id": ""} == {**ours, "request_id": ""}


@pytest.mark.parametrize(
    ("method", "path", "sent", "status", "kind"),
    [
        ("POST", "/predictions/other", {"json": BODY}, 404, "ModelNotFoundException"),
        ("POST", "/predictions/memory", {"json": BODY | {"model": "other"}}, 404, "ModelNotFoundException"),
        ("POST", "/invocations?model_name=other", {"json": BODY}, 404, "ModelNotFoundException"),
        ("GET", "/models/other", {}, 404, "ModelNotFoundException"),
        ("POST", "/predictions/memory", {"json": {"text": "Ada"}}, 400, "TranslateException"),
        ("POST", "/predictions/memory", {}, 400, "TranslateException"),
        ("POST", "/predictions/memory", {"content": b"{"}, 400, "BadRequestException"),
        ("GET", "/predictions/memory", {}, 405, "MethodNotAllowedException"),
        ("POST", "/models?url=x", {}, 501, "UnsupportedOperationException"),
        ("PUT", "/models/memory?min_worker=2", {}, 501, "UnsupportedOperationException"),
        ("DELETE", "/models/memory", {}, 501, "UnsupportedOperationException"),
    ],
)
def test_errors_are_djls(client, method, path, sent, status, kind):
    response = ask(client, method, path, **sent)
    body = response.json()
    assert (response.status_code, body["code"], body["type"]) == (status, status, kind)
    assert body["message"]


def test_tensors_are_refused_with_an_explanation(client):
    headers = {"Content-Type": "tensor/ndlist"}
    response = ask(client, "POST", "/predictions/memory", content=b"x", headers=headers)
    assert response.status_code == 415
    assert response.json()["message"] == "send the body as application/json, not tensor/ndlist"


def test_an_overloaded_server_has_djls_status(client, replica):
    replica.queue_capacity = 0
    response = ask(client, "POST", "/predictions/memory", json=BODY)
    assert (response.status_code, response.json()["type"]) == (503, "WlmException")


def test_the_model_is_listed_and_described(client, replica):
    assert ask(client, "GET", "/ping").json() == {"memory": {"status": "Healthy"}}
    (listed,) = ask(client, "GET", "/models?limit=5").json()["models"]
    assert (listed["modelName"], listed["status"]) == ("memory", "READY")
    ((described,),) = (flow["models"] for flow in ask(client, "GET", "/models/memory").json())
    assert (described["batchSize"], described["requestInQueue"], described["status"]) == (32, 0, "Healthy")
    (group,) = described["workerGroups"]
    assert group["device"] == {"deviceType": "cpu", "deviceId": -1}
    assert [worker["status"] for worker in group["workers"]] == ["READY"]
    replica.alive = False
    response = ask(client, "GET", "/ping")
    assert (response.status_code, response.json()["type"]) == (503, "WlmException")
