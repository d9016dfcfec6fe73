"""A gateway over a runner that lives in the test: real requests, predictable answers."""

from __future__ import annotations

import pytest

from gliner_bento.errors import AdapterNotFound
from gliner_bento.gateway.gateway import Gateway, Limits
from gliner_bento.gateway.runner import Hop

LIMITS = Limits(
    default_threshold=0.4,
    default_relation_threshold=0.6,
    max_labels=5,
    max_text_chars=100,
    max_batch_items=3,
    request_timeout_s=30.0,
)


class EchoRunner:
    """Finds each word that starts with a capital, under the first label; relates the first to the second."""

    def __init__(self) -> None:
        self.calls: list[dict] = []
        self.supports_relations = True

    async def extract(self, items, request_id, timeout_ms, priority):
        self.calls.append({"items": items, "request_id": request_id, "timeout_ms": timeout_ms, "priority": priority})
        return [self._outcome(item) for item in items]

    async def abort(self, request_id):
        return request_id == "running"

    async def describe(self):
        return {
            "name": "echo",
            "family": "Echo",
            "supports_relations": self.supports_relations,
            "supports_adapters": False,
            "device": "cpu",
            "dtype": "float32",
            "max_words": 50,
            "max_span_width": 12,
            "forward": "echo",
        }

    def _outcome(self, item):
        if item.adapter_id is not None:
            return {"error": AdapterNotFound("no such adapter", param="adapter_id").detail().model_dump()}
        entities, position = [], 0
        for word in item.text.split():
            start = item.text.index(word, position)
            position = start + len(word)
            if word[0].isupper():
                label = next(iter(item.labels))
                entities.append({"start": start, "end": position, "text": word, "label": label, "score": 0.9})
        relations = [
            {"relation": name, "score": 0.8, "head": 0, "tail": 1} for name in item.relations if len(entities) > 1
        ]
        words = len(item.text.split())
        found = {"entities": entities, "relations": relations, "truncated": words > 8, "words": words, "tokens": words}
        return {"result": found}


@pytest.fixture
def runner():
    return EchoRunner()


@pytest.fixture
def gateway(runner):
    return Gateway(Hop(runner), LIMITS)
