"""`/pooling` gives the entities of `/v1/extract`, with the bundled model."""

from __future__ import annotations

import pytest

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]


@pytest.mark.parametrize("options", [{}, {"flat_ner": True}, {"multi_label": True, "threshold": 0.05}], ids=str)
def test_the_entities_are_those_of_extract(service, options):
    data = {"text": TEXT, "labels": LABELS}
    answer = service.request("POST", "/pooling", json={"model": "any", "task": "plugin", "data": data | options}).json()
    ours = service.extract(**data, **{"flat_ner": False, **options}).json()
    assert answer["data"] == ours["entities"]
    assert answer["data"]
