"""The published document validates, and lists what is served."""

import dataclasses
import json
import re

import pytest
from gateway_options import OPTIONS, changed
from openapi_spec_validator import validate

from gliner_bento.adapter_types import AdapterInfo, PutAdapterRequest
from gliner_bento.client.calls import _parser
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.compat import gliner_serve
from gliner_bento.gateway.endpoint import Endpoint, Operation
from gliner_bento.gateway.openapi import openapi_document
from gliner_bento.tasks.requests import ExtractItem

ENDPOINTS = GatewayApp(OPTIONS).endpoints
DOCUMENT = json.loads(openapi_document(ENDPOINTS))
SCHEMAS = DOCUMENT["components"]["schemas"]


def test_the_document_validates():
    validate(DOCUMENT)


def test_public_types_have_their_public_names():
    assert {
        "ExtractRequest",
        "ExtractResponse",
        "ExtractBatchRequest",
        "ExtractBatchResponse",
        "ExtractItem",
        "BatchResult",
        "Extraction",
        "Entity",
        "Relation",
        "RelationArgument",
        "Usage",
        "StreamedEntity",
        "StreamedEnd",
        "ModelCard",
        "AbortResponse",
        "AdapterInfo",
        "AdapterList",
        "PutAdapterRequest",
        "ErrorBody",
        "ErrorDetail",
        "GLiNERServeRequest",
        "GLiNERServeResponse",
    } <= set(SCHEMAS)
    assert "AdapterCard" not in SCHEMAS


def test_every_reference_of_the_document_leads_somewhere():
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    assert names
    assert names <= set(SCHEMAS)


def test_the_options_of_an_item_are_those_of_a_request_and_none_is_required():
    item, request = SCHEMAS["ExtractItem"], SCHEMAS["ExtractRequest"]
    assert item["required"] == ["text"]
    for name in item["properties"]:
        assert item["properties"][name].get("description"), name
    assert set(item["properties"]) == set(ExtractItem.model_fields)
    assert set(item["properties"]) <= set(request["properties"])


@pytest.mark.parametrize("request_type", ["ExtractRequest", "ExtractItem", "ExtractBatchRequest"])
def test_labels_and_relations_may_have_options_in_every_request(request_type):
    fields = SCHEMAS[request_type]["properties"]
    for name, options in (("labels", "LabelOptions"), ("relations", "RelationOptions")):
        assert f'"#/components/schemas/{options}"' in json.dumps(fields[name])
    assert set(SCHEMAS["LabelOptions"]["properties"]) == {"description", "threshold", "returned"}
    assert set(SCHEMAS["RelationOptions"]["properties"]) == {"description", "threshold", "head", "tail"}
    for options in ("LabelOptions", "RelationOptions"):
        assert SCHEMAS[options]["additionalProperties"] is False
        assert "required" not in SCHEMAS[options]
        assert all(field["description"] for field in SCHEMAS[options]["properties"].values())


def test_an_answer_always_has_all_of_its_fields():
    for name in ("ExtractResponse", "Extraction", "Usage", "ModelCard", "AdapterInfo", "StreamedEnd", "ErrorDetail"):
        assert set(SCHEMAS[name]["required"]) == set(SCHEMAS[name]["properties"]), name
        assert not [field for field in SCHEMAS[name]["properties"].values() if "default" in field], name


def test_every_error_is_listed_under_the_status_that_it_has():
    """An endpoint with statuses of its own lists the codes by those."""
    for endpoint in ENDPOINTS:
        if endpoint.operation:
            responses = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]["responses"]
            for status in endpoint.operation.errors:
                codes = responses[str(status)]["description"].split(" or ")
                assert codes == sorted(code for code, own in endpoint.statuses.items() if own == status)
                assert codes, (endpoint.path, status)


def test_gliner_serves_clients_find_an_invalid_field_under_400():
    assert (
        DOCUMENT["paths"]["/gliner"]["post"]["responses"]["400"]["description"] == "invalid_field or malformed_request"
    )


def test_every_operation_has_an_id_of_its_own():
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


def test_what_is_not_documented_is_not_listed():
    async def answer(gateway, context, request):
        raise NotImplementedError

    operation = Operation(name="a", tag="server", summary="A", description="Answers A.")
    documented = Endpoint(method="GET", path="/a", scope=None, handler=answer, operation=operation)
    document = json.loads(openapi_document([documented, Endpoint(method="GET", path="/b", scope=None, handler=answer)]))
    validate(document)
    assert set(document["paths"]) == {"/a"}


def test_every_route_with_a_body_documents_the_errors_it_answers():
    def errors(path):
        return {status for status in DOCUMENT["paths"][path]["post"]["responses"] if status != "200"}

    assert {"400", "404", "413", "415", "422", "429", "503", "504"} <= errors("/v1/extract")
    assert errors("/v1/extract/stream") == errors("/v1/extract")
    assert "404" in errors("/v1/extract/batch"), "for the request's model; an unknown adapter is an item's error"
    assert "422" not in errors("/gliner"), "gliner.serve's clients know 400"


def test_labels_are_shown_as_a_list_or_an_object():
    labels = DOCUMENT["components"]["schemas"]["ExtractRequest"]["properties"]["labels"]
    assert [branch["type"] for branch in labels["anyOf"]] == ["array", "object", "null"]
    assert labels["examples"]


def test_a_stream_is_lines_of_entities_an_end_or_an_error():
    (kind, content), *others = DOCUMENT["paths"]["/v1/extract/stream"]["post"]["responses"]["200"]["content"].items()
    assert (kind, others) == ("application/x-ndjson", [])
    lines = [line["$ref"].rpartition("/")[2] for line in content["schema"]["oneOf"]]
    assert lines == ["StreamedEntity", "StreamedEnd", "ErrorBody"]
    assert set(lines) <= set(DOCUMENT["components"]["schemas"])


def test_a_restored_stream_is_lines_in_both_directions():
    operation = DOCUMENT["paths"]["/v1/restore/stream"]["post"]
    names = [
        [line["$ref"].rpartition("/")[2] for line in body["content"]["application/x-ndjson"]["schema"]["oneOf"]]
        for body in (operation["requestBody"], operation["responses"]["200"])
    ]
    assert names == [["RestoreStreamRequest", "RestoreStreamChunk"], ["RestoredChunk", "RestoredEnd", "ErrorBody"]]
    assert {*names[0], *names[1]} <= set(DOCUMENT["components"]["schemas"])


def test_the_compat_routes_follow_the_prefix():
    options = changed(route_prefix="/ner")
    paths = json.loads(openapi_document(gliner_serve.endpoints(options)))["paths"]
    assert "/ner" in paths
    assert "/ner/adapter-cache" in paths


def test_an_adapter_is_put_as_an_archive_or_as_json_and_is_new_or_not():
    put = DOCUMENT["paths"]["/v1/adapters/{adapter_id}"]["put"]
    assert {"application/json", "application/octet-stream"} == set(put["requestBody"]["content"])
    assert {"200", "201", "404", "409", "413", "422", "507"} <= set(put["responses"])
    assert [parameter["name"] for parameter in put["parameters"]] == [
        "adapter_id",
        "model",
        "pinned",
        "preload",
        "replace",
    ]


def test_the_examples_of_adapters_are_what_the_types_say():
    operations = DOCUMENT["paths"]["/v1/adapters/{adapter_id}"]
    card = operations["get"]["responses"]["200"]["content"]["application/json"]["example"]
    assert dataclasses.asdict(_parser(AdapterInfo)(json.dumps(card).encode())) == card
    PutAdapterRequest.model_validate(operations["put"]["requestBody"]["content"]["application/json"]["example"])
    assert "200" not in operations["delete"]["responses"]
