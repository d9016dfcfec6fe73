"""`/gliner` answers what gliner.serve's own server code answers, called in this process with the same payloads."""

from __future__ import annotations

import pytest
import torch

TEXT = "Bill Gates founded Microsoft in 1975. The company is headquartered in Redmond."
LABELS = ["person", "organization", "date", "location"]
PAYLOADS = [
    {"text": TEXT, "labels": LABELS},
    {"text": TEXT, "labels": {"who": "person", "where": "location"}, "threshold": 0.3},
    {"text": TEXT, "labels": LABELS, "relations": ["founded", "headquartered in"], "relation_threshold": 0.3},
    {"text": TEXT, "labels": LABELS, "relations": []},
    {"text": TEXT, "labels": [*LABELS, "person"], "flat_ner": False, "multi_label": True, "threshold": 0.05},
    {"text": "Nobody is here.", "labels": ["person"], "threshold": 0.99},
    {"text": " ", "labels": ["person"]},
]


@pytest.fixture(scope="module")
def gliner_server():
    """The class behind gliner.serve's deployment; Ray only carries its calls."""
    from gliner.serve.config import GLiNERServeConfig
    from gliner.serve.server import GLiNERServer

    from gliner_bento.settings import PROJECT_ROOT

    precision = torch.get_float32_matmul_precision()
    config = GLiNERServeConfig(
        str(PROJECT_ROOT / "models" / "demo"),
        device="cpu",
        dtype="float32",
        max_model_len=256,
        enable_compilation=False,
        tokenizer_threads=0,
    )
    yield GLiNERServer(config)
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("payload", PAYLOADS, ids=str)
def test_the_answers_are_equal(service, gliner_server, payload):
    theirs = answer_of(gliner_server, **payload)
    ours = service.request("POST", "/gliner", json=payload).json()
    assert set(ours) == set(theirs)
    assert_equal(ours["entities"], theirs["entities"])
    if "relations" in theirs:
        assert_equal(sorted(ours["relations"], key=order), sorted(theirs["relations"], key=order))


def answer_of(server, text, relations=None, **options):
    """What the server answers. Asked for no relations, its `predict` takes a joint model's pair of results for two."""
    if relations:
        (answer,) = server.predict([text], relations=relations, **options)
        return answer
    entities, _ = server._run_batch_internal([text], **options)
    return {"entities": entities[0]}


def order(relation):
    return relation["relation"], relation["head"]["entity_idx"], relation["tail"]["entity_idx"]


def assert_equal(ours, theirs):
    """The same values under the same keys; scores to 1e-4."""
    assert [without_score(found) for found in ours] == [without_score(found) for found in theirs]
    assert [found["score"] for found in ours] == pytest.approx([found["score"] for found in theirs], abs=1e-4)


def without_score(found):
    return {name: value for name, value in found.items() if name != "score"}
