"""Workloads: the same for the same seed, and with the documented lengths."""

from __future__ import annotations

import json

import pytest
from gliner.data_processing.tokenizer import WhitespaceTokenSplitter

from benchmark import generated
from gliner_bento.loadtest import workload
from gliner_bento.tasks.requests import ExtractRequest


def words(bodies: list[workload.Body]) -> list[int]:
    return [len(body["text"].split()) for body in bodies]


@pytest.mark.parametrize("name", workload.WORKLOADS)
def test_a_workload_is_the_same_for_the_same_seed_and_every_body_is_a_request(name):
    bodies = workload.WORKLOADS[name](20, 3)
    assert bodies == workload.WORKLOADS[name](20, 3)
    assert bodies != workload.WORKLOADS[name](20, 4)
    for encoded in workload.encoded(generated.with_relations(bodies)):
        ExtractRequest.model_validate_json(encoded)


def test_lengths_are_as_documented():
    lengths = {name: words(make(1000, 0)) for name, make in workload.WORKLOADS.items()}
    assert (min(lengths["short"]), max(lengths["short"])) == (6, 30)
    assert min(lengths["mixed"]) == 6
    assert 200 < max(lengths["mixed"]) <= 250
    assert 40 < sum(lengths["mixed"]) / 1000 < 52
    assert min(lengths["long"]) >= 200
    assert 0.05 < sum(length > 200 for length in lengths["skewed"]) / 1000 < 0.15
    assert min(lengths["uniform"]) == 1


def test_many_labels_are_that_many_different_ones():
    [body] = workload.many_labels(1, labels=1000)
    assert len(set(body["labels"])) == 1000
    assert json.loads(workload.encoded([body])[0]) == body


@pytest.mark.parametrize("count", [1, 2, 31, 500, 501])
def test_a_document_has_exactly_its_words_as_gliner_counts_them(count):
    text = generated.document(count)["text"]
    assert generated.word_count(text) == len(list(WhitespaceTokenSplitter()(text))) == count
    assert text.endswith(".")


def test_pieces_have_exactly_the_given_length_and_together_are_the_text():
    body = generated.document(1000, seed=2)
    pieces = generated.pieces(body, 300)
    assert [generated.word_count(piece["text"]) for piece in pieces] == [300] * 3
    assert {tuple(piece["labels"]) for piece in pieces} == {tuple(body["labels"])}
    joined = [word for piece in pieces for word in generated.WORD.findall(piece["text"])]
    assert joined == generated.WORD.findall(body["text"])[:900]
    assert len(generated.pieces(body, 500)) == 2
