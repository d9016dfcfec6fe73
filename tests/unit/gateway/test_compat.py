"""Formats of other servers are on or off, have errors of their own, and share routes."""

from __future__ import annotations

import dataclasses

import pytest
from asking import ask
from gateway_options import OPTIONS
from openapi_spec_validator import validate

from gliner_bento.gateway.app import GatewayApp
from gliner_bento.settings import Settings, SettingsError
from gliner_bento.settings.field_types import FORMATS

ROUTES = {
    "gliner_serve": {"/gliner", "/gliner/adapter-cache"},
    "djl": {
        *("/ping", "/predictions/{model}", "/predictions/{model}/{version}", "/invocations"),
        *("/models", "/models/{model}"),
    },
    "fastino": {"/gliner-2"},
    "gliclass": {"/gliclass"},
    "huggingface": {"/pipeline/zero-shot-classification", "/pipeline/token-classification"},
    "label_studio": {"/setup", "/predict", "/webhook", "/versions", "/health"},
    "nemo_guardrails": {
        *(
            "/v1/chat/completions",
            "/nemo/v1/extract",
            "/nemo/v1/models",
            "/nemo/v1/labels",
            "/nemo/health",
        ),
    },
    "presidio": {"/analyze", "/anonymize", "/supportedentities", "/recognizers", "/anonymizers", "/health"},
    "litellm": {"/beta/litellm_basic_guardrail_api"},
    "tei": {"/tei/predict"},
    "nemo_jailbreak": {"/v1/classify"},
    "vllm_factory": {"/pooling", "/health"},
    "xinference": {"/v1/cluster/auth", "/v1/models/{model_uid}/requests/{request_id}/abort"},
}
"""The routes of each format."""

POOLING = {"data": {"text": "Ada met Charles", "labels": ["person"]}}


def paths_with(*names):
    endpoints = GatewayApp(dataclasses.replace(OPTIONS, compat=names)).endpoints
    return {endpoint.path for endpoint in endpoints}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_switched_on_by_its_name(name):
    assert paths_with(name) - paths_with("none") == ROUTES[name]


def test_all_formats_are_on_by_default():
    assert Settings().compat == ("all",)
    assert paths_with("all") - paths_with("none") == set.union(*ROUTES.values())


def test_what_is_off_is_not_found_and_not_documented(replica, serving):
    client = serving(replica, dataclasses.replace(OPTIONS, compat=("gliner_serve",)))
    assert ask(client, "POST", "/pooling", json=POOLING).status_code == 404
    document = ask(client, "GET", "/docs.json").json()
    validate(document)
    assert {"/gliner"} == {path for path in document["paths"] if path in {"/gliner", "/pooling", "/health"}}
    assert "PoolingRequest" not in document["components"]["schemas"]


@pytest.mark.parametrize("value", ["pooling", "all,vllm_factory", "none,vllm_factory", ""])
def test_an_unknown_format_is_refused_by_name(value):
    with pytest.raises(SettingsError, match="compat"):
        Settings.load({"compat": value})


def test_a_wire_format_documents_its_own_errors(client):
    document = ask(client, "GET", "/docs.json").json()
    error = document["paths"]["/pooling"]["post"]["responses"]["400"]
    assert error["content"]["application/json"]["schema"]["$ref"].endswith("/VllmError")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"method": "GET"}, 405),
        ({"content": b"text=a", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 415),
        ({"content": b"x" * (OPTIONS.max_body_bytes + 1)}, 413),
    ],
)
def test_errors_before_the_handler_have_the_formats_body(client, sent, status):
    response = ask(client, sent.pop("method", "POST"), "/pooling", **sent)
    assert response.status_code == status
    assert (response.json()["error"]["code"], response.json()["error"]["param"]) == (status, None)


def test_health_serves_every_formats_clients(client, replica):
    response = ask(client, "GET", "/health")
    assert (response.status_code, response.json()) == (200, {"status": "UP"})
    replica.alive = False
    response = ask(client, "GET", "/health")
    assert (response.status_code, response.json()) == (503, {"error": "no healthy backends"})
