"""Label Studio's pre-annotations are the entities and relations of `/v1/extract`, with the bundled model."""

from __future__ import annotations

import json
import re

import pytest

from gliner_bento.settings.configuration import PROJECT_ROOT


@pytest.mark.bento_only
def test_the_documented_call_gets_what_extract_finds(service):
    page = (PROJECT_ROOT / "docs" / "migrate" / "label-studio.md").read_text(encoding="utf-8")
    body = next(json.loads(one) for one in re.findall(r"-d '(\{.*?\})'\n", page, re.DOTALL) if "tasks" in one)
    (prediction,) = service.request("POST", "/predict", json=body).json()["results"]
    labels, relations = ["person", "organization", "date"], ["founded"]
    ours = service.extract(text=body["tasks"][0]["data"]["text"], labels=labels, relations=relations).json()
    regions = [one for one in prediction["result"] if one["type"] == "labels"]
    found = [{**one["value"], "label": one["value"]["labels"][0], "score": one["score"]} for one in regions]
    assert [{name: value for name, value in one.items() if name != "labels"} for one in found] == ours["entities"]
    related = [one for one in prediction["result"] if one["type"] == "relation"]
    assert [(one["from_id"], *one["labels"], one["to_id"]) for one in related] == [
        (f"e{one['head']['entity_idx']}", one["relation"], f"e{one['tail']['entity_idx']}") for one in ours["relations"]
    ]
    assert regions
    assert related
