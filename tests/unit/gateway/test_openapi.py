"""The published document validates, and lists what is served."""

import json

from openapi_spec_validator import validate

from gliner_bento.gateway.openapi import openapi_document
from gliner_bento.types import AdapterCard, PutAdapterRequest

DOCUMENT = json.loads(openapi_document("/gliner"))


def test_the_document_validates():
    validate(DOCUMENT)


def test_every_route_with_a_body_documents_the_errors_it_answers():
    def errors(path):
        return {status for status in DOCUMENT["paths"][path]["post"]["responses"] if status != "200"}

    assert {"400", "404", "413", "415", "422", "429", "503", "504"} <= errors("/v1/extract")
    assert errors("/v1/extract/stream") == errors("/v1/extract")
    assert "404" not in errors("/v1/extract/batch"), "an unknown adapter is an item's error, in its result"
    assert "422" not in errors("/gliner"), "gliner.serve's clients know 400"


def test_labels_are_shown_as_a_list_or_an_object():
    labels = DOCUMENT["components"]["schemas"]["ExtractRequest"]["properties"]["labels"]
    assert [branch["type"] for branch in labels["anyOf"]] == ["array", "object"]
    assert labels["examples"]


def test_a_stream_is_lines_of_entities_an_end_or_an_error():
    (kind, content), *others = DOCUMENT["paths"]["/v1/extract/stream"]["post"]["responses"]["200"]["content"].items()
    assert (kind, others) == ("application/x-ndjson", [])
    lines = [line["$ref"].rpartition("/")[2] for line in content["schema"]["oneOf"]]
    assert lines == ["StreamedEntity", "StreamedEnd", "ErrorBody"]
    assert set(lines) <= set(DOCUMENT["components"]["schemas"])


def test_the_compat_routes_follow_the_prefix():
    paths = json.loads(openapi_document("/ner"))["paths"]
    assert "/ner" in paths
    assert "/ner/adapter-cache" in paths


def test_an_adapter_is_put_as_an_archive_or_as_json_and_is_new_or_not():
    put = DOCUMENT["paths"]["/v1/adapters/{adapter_id}"]["put"]
    assert {"application/json", "application/zip", "application/gzip"} <= set(put["requestBody"]["content"])
    assert {"200", "201", "404", "409", "413", "422", "507"} <= set(put["responses"])
    assert [parameter["name"] for parameter in put["parameters"]] == ["pinned", "preload"]


def test_the_examples_of_adapters_are_what_the_types_say():
    operations = DOCUMENT["paths"]["/v1/adapters/{adapter_id}"]
    card = operations["get"]["responses"]["200"]["content"]["application/json"]["example"]
    assert AdapterCard.model_validate(card).model_dump() == card
    PutAdapterRequest.model_validate(operations["put"]["requestBody"]["content"]["application/json"]["example"])
    assert "200" not in operations["delete"]["responses"]
