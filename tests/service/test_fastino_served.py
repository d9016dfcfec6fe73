"""Fastino's format gives the entities and relations of `/v1/extract`; gliner2's own client reads them."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from gliner_bento.settings.configuration import PROJECT_ROOT

PAGE = PROJECT_ROOT / "docs" / "migrate" / "fastino.md"
TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
TEXTS = [TEXT, "Tim Cook works at Apple in Cupertino.", ""]
LABELS = ["person", "organization", "date", "location"]
ENTITIES = {"person": ["Bill Gates"], "organization": ["Microsoft"], "date": ["1975"], "location": ["Redmond"]}


def grouped(entities):
    """Entities of `/v1/extract` as the format has them, with confidences and spans."""
    places = [(one["label"], {**one, "confidence": one["score"]}) for one in entities]
    kept = ("text", "confidence", "start", "end")
    return {name: [{key: one[key] for key in kept} for label, one in places if label == name] for name in LABELS}


def test_the_documented_call_gets_entities_and_relations(service):
    (body,) = re.findall(r"-d '(\{.*?\})'\n", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    asked = json.loads(body)
    answer = service.request("POST", "/gliner-2", json=asked).json()["result"]
    schema = asked["schema"]
    ours = service.extract(text=asked["text"], labels=schema["entities"], relations=schema["relations"]).json()
    score = ours["relations"][0]["score"]
    head, tail = {"text": "Bill Gates", "confidence": score}, {"text": "Microsoft", "confidence": score}
    assert answer["relation_extraction"] == {"founded": [{"head": head, "tail": tail}]}
    assert answer["entities"]["person"][0]["confidence"] == ours["entities"][0]["score"]


def test_gliner2s_own_client_reads_it(service):
    """Unmodified, over a socket: only its base URL is this server's."""
    gliner2 = pytest.importorskip("gliner2.api_client", reason="gliner2 is not installed")

    def calls(url):
        client = gliner2.GLiNER2API(api_key="any", api_base_url=url)
        assert client.extract_entities(TEXT, LABELS) == {"entities": ENTITIES}
        assert client.extract_entities_long(TEXT, LABELS)["entities"] == ENTITIES
        schema = client.create_schema().entities(
            {"person": "a person", "organization": {"threshold": 0.3}}, dtype="str"
        )
        both = client.extract(TEXT, schema.relations(["founded"]))
        assert both["entities"] == {"person": "Bill Gates", "organization": "Microsoft"}
        assert both["relation_extraction"]["founded"] == [["Bill Gates", "Microsoft"]]
        alone = client.extract_relations(TEXT, ["founded"], include_spans=True)["relation_extraction"]["founded"]
        assert alone[0]["head"] == {"text": "Bill Gates", "start": 0, "end": 10}
        assert client.batch_extract_entities(TEXTS, LABELS)[2] == {"entities": {name: [] for name in LABELS}}
        with pytest.raises(gliner2.ValidationError, match="'demo' does not support the task classifications"):
            client.classify_text(TEXT, {"sentiment": ["positive", "negative"]})
        with pytest.raises(gliner2.ValidationError, match="'demo' does not support the task structures"):
            client.extract_json(TEXT, {"company": ["name::str"]})

        def one(text):
            return client.extract_entities(text, LABELS, include_confidence=True, include_spans=True)["entities"]

        with ThreadPoolExecutor(32) as pool:
            return list(pool.map(one, TEXTS[:2] * 16))

    concurrent = service.on_a_socket(calls)
    assert concurrent == [
        grouped(service.extract(text=text, labels=LABELS).json()["entities"]) for text in TEXTS[:2] * 16
    ]
