"""Hugging Face's pipelines and text-embeddings-inference's `/predict`, with the bodies that their clients send."""

from __future__ import annotations

import asyncio

import pytest

WORDS = "good bad good yes"  # the replica scores a label by its share of the words
ZERO_SHOT, TOKENS, TEI = "/pipeline/zero-shot-classification", "/pipeline/token-classification", "/tei/predict"


def ask(client, path, **body):
    return asyncio.run(client.request("POST", path, json=body))


def answer(client, path, **body):
    response = ask(client, path, **body)
    assert response.status_code == 200, response.text
    return response.json()


def test_zero_shot_scores_every_label_best_first(client, replica):
    asked = {"candidate_labels": ["bad", "good"], "multi_label": False}
    scores = [{"label": "good", "score": 0.5}, {"label": "bad", "score": 0.25}]
    assert answer(client, ZERO_SHOT, inputs=WORDS, parameters=asked) == scores
    assert answer(client, ZERO_SHOT, inputs=[WORDS, ""], parameters=asked) == [scores, []]
    asked = {"candidate_labels": "bad, good", "hypothesis_template": "It is {}.", "multi_label": True}
    assert answer(client, ZERO_SHOT, inputs=WORDS, parameters=asked, options={"use_cache": False}) == scores
    answer(client, ZERO_SHOT, inputs=WORDS, parameters={"candidate_labels": ["good"]})
    read = [call[0][0].classifications["zero-shot"] for call in replica.calls]
    assert [one.multi_label for one in read] == [False, False, True, True]
    assert (read[0].labels, read[2].labels) == (
        {"bad": "bad", "good": "good"},
        {"bad": "It is bad.", "good": "It is good."},
    )


def test_token_classification_finds_the_configured_types(client, replica, options):
    found = [
        {"entity_group": "person", "score": 1.0, "word": word, "start": start, "end": end}
        for word, start, end in (("Ada", 0, 3), ("Charles", 8, 15))
    ]
    asked = {"aggregation_strategy": "simple", "stride": 4}
    assert answer(client, TOKENS, inputs="Ada met Charles", parameters=asked) == found
    assert answer(client, TOKENS, inputs=["Ada met Charles", "nobody"]) == [found, []]
    assert tuple(replica.calls[0][0][0].labels) == options.formats["huggingface_labels"]
    own = {"labels": ["human", "city"], "ignore_labels": ["human"], "threshold": 0.25}
    assert answer(client, TOKENS, inputs="Ada", parameters=own)[0]["entity_group"] == "city"
    assert replica.calls[-1][0][0].threshold == 0.25
    ignored = {"ignore_labels": list(options.formats["huggingface_labels"])}
    assert answer(client, TOKENS, inputs=["Ada"], parameters=ignored) == [[]]


def test_predict_ignores_unknown_fields(client):
    assert answer(client, TEI, inputs=["positive"], normalize=True) == answer(client, TEI, inputs=["positive"])


def test_predict_chooses_from_the_configured_labels(client, replica, options):
    scores = answer(client, TEI, inputs="positive negative positive")
    assert [(one["label"], round(one["score"], 2)) for one in scores][:2] == [("positive", 0.67), ("negative", 0.33)]
    assert answer(client, TEI, inputs=["positive"], truncate=True) == answer(client, TEI, inputs=[["positive"]])
    items = [call[0][0] for call in replica.calls]
    assert [item.long_text for item in items] == ["window", "truncate", "window"]
    assert tuple(items[0].classifications["predict"].labels) == options.formats["tei_labels"]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (ZERO_SHOT, {"inputs": "a"}, "parameters: Field required"),
        (ZERO_SHOT, {"inputs": "a", "parameters": {"candidate_labels": []}}, "parameters.candidate_labels: "),
        (ZERO_SHOT, {"inputs": "a", "parameters": {"candidate_labels": ","}}, "classifications.zero-shot: "),
        (
            ZERO_SHOT,
            {"inputs": "a", "parameters": {"candidate_labels": ["a"], "hypothesis_template": "no place"}},
            "parameters.hypothesis_template: must have {} once",
        ),
        (
            TOKENS,
            {"inputs": "a", "parameters": {"aggregation_strategy": "none"}},
            "parameters.aggregation_strategy: none",
        ),
        (TOKENS, {"inputs": "a", "parameters": {"labels": []}}, "parameters.labels: "),
        (TEI, {"inputs": "a", "raw_scores": True}, "raw_scores: true is not supported"),
        (TEI, {"inputs": "a", "truncation_direction": "Left"}, "truncation_direction: Left is not supported"),
        (TEI, {"inputs": [["a", "b"]]}, "inputs"),
        (TEI, {"input": "a"}, "inputs: Field required"),
    ],
)
def test_what_is_wrong_is_named(client, path, body, message):
    response = ask(client, path, **body)
    assert response.status_code == 422, response.text
    assert response.json()["error"].startswith(message)
    assert response.json().get("error_type") == ("Validation" if path == TEI else None)
