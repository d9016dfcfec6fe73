"""Long texts and many labels through the whole bento, with the bundled model: in full, streamed, truncated."""

from __future__ import annotations

import random
import re
from dataclasses import asdict
from math import ceil

import httpx
import pytest
from long_texts import DOCUMENT, HELD, LABELS, PARAGRAPHS, RELATIONS, lines_of, pick

from gliner_bento.client import AsyncClient
from gliner_bento.errors import TooLarge

READ_AT_ONCE = 256  # words, by the bundled model
LABELS_AT_ONCE = 25
WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")  # as gliner counts them
KINDS = "river, mountain, bridge, song, film, game, disease, drug, protein, court, law, crime, weapon, ship, train"

STARTS = [DOCUMENT.index(text) for text in PARAGRAPHS]
WORDS = len(WORD.findall(DOCUMENT))
ASKED = {"text": DOCUMENT, "labels": LABELS}
SHORT = {"text": PARAGRAPHS[0], "labels": LABELS}


def found(answer) -> list[tuple[int, int, str]]:
    return [(entity["start"], entity["end"], entity["label"]) for entity in answer["entities"]]


def scores(answer) -> list[float]:
    return [entity["score"] for entity in answer["entities"]]


def related(answer) -> list[tuple[int, str, int]]:
    return sorted((r["head"]["start"], r["relation"], r["tail"]["start"]) for r in answer["relations"])


def assert_equal(answer, expected) -> None:
    """The same entities and relations; scores to 1e-4."""
    assert found(answer) == found(expected)
    assert scores(answer) == pytest.approx(scores(expected), abs=1e-4)
    assert related(answer) == related(expected)


def answered(response: httpx.Response):
    assert response.status_code == 200, response.text
    return response.json()


def joined(parts, starts) -> dict:
    """Answers for pieces of a text as one for the whole."""
    return {
        "entities": [
            entity | {"start": entity["start"] + start, "end": entity["end"] + start}
            for part, start in zip(parts, starts, strict=True)
            for entity in part["entities"]
        ],
        "relations": [
            relation | {side: relation[side] | {"start": relation[side]["start"] + start} for side in ("head", "tail")}
            for part, start in zip(parts, starts, strict=True)
            for relation in part["relations"]
        ],
    }


def each_alone(service, **options) -> list[dict]:
    """The answers for the document's paragraphs."""
    body = {"texts": PARAGRAPHS, "labels": LABELS} | options
    results = answered(service.request("POST", "/v1/extract/batch", json=body))["results"]
    return [result["result"] for result in results]


@pytest.fixture(scope="module")
def whole(service):
    """The answer for the document."""
    return answered(service.extract(**ASKED))


@pytest.fixture(scope="module")
def related_alone(service):
    """The answers for its paragraphs, with relations."""
    return each_alone(service, relations=RELATIONS)


def test_a_long_document_is_read_to_its_end(whole):
    usage = whole["usage"]
    assert (whole["truncated"], whole["truncated_at"], usage["words"]) == (False, None, WORDS)
    assert (usage["label_groups"], usage["relation_groups"]) == (1, 0)
    assert usage["windows"] >= ceil(WORDS / READ_AT_ONCE) > 4
    assert usage["tokens"] > WORDS
    assert all(DOCUMENT[entity["start"] : entity["end"]] == entity["text"] for entity in whole["entities"])
    assert found(whole) == sorted(found(whole))
    for start, text, held in zip(STARTS, PARAGRAPHS, HELD, strict=True):
        inside = [entity for entity in whole["entities"] if start <= entity["start"] < start + len(text)]
        assert held == {(entity["text"], entity["label"]) for entity in inside}, text


@pytest.mark.bento_only
def test_a_document_holds_what_its_paragraphs_do(service, whole):
    """Also at the borders of windows. Scores differ, by what else the model sees; none is near the threshold."""
    apart = joined(each_alone(service), STARTS)
    assert found(whole) == found(apart)
    assert min(*scores(whole), *scores(apart)) > 0.7


@pytest.mark.bento_only
def test_windows_that_are_paragraphs_give_the_results_of_the_paragraphs(service, related_alone):
    """Without an overlap, a window that ends where a paragraph does has the same input as the paragraph."""
    (words,) = {part["usage"]["words"] for part in related_alone}
    options = {"window_words": words, "window_overlap_words": 0, "relations": RELATIONS}
    answer = answered(service.extract(**ASKED, **options))
    assert answer["usage"]["windows"] == len(PARAGRAPHS)
    assert answer["usage"]["tokens"] == sum(part["usage"]["tokens"] for part in related_alone)
    assert len(answer["relations"]) == len(RELATIONS) * len(PARAGRAPHS)  # each holds once in each, and no other does
    assert_equal(answer, joined(related_alone, STARTS))


@pytest.mark.bento_only
def test_relations_of_a_long_text_are_between_entities_of_the_whole(service, related_alone):
    """Of those that paragraphs are sure of, few are lost, though windows end inside of paragraphs."""
    answer = answered(service.extract(**ASKED, relations=RELATIONS, window_words=48))
    assert answer["usage"]["relation_groups"] == 1
    for relation in answer["relations"]:
        for side in ("head", "tail"):
            entity = answer["entities"][relation[side]["entity_idx"]]
            assert {name: entity[name] for name in ("start", "end", "text", "label")} == {
                name: relation[side][name] for name in ("start", "end", "text", "label")
            }
    apart = joined(related_alone, STARTS)
    sure = set(related({"relations": [relation for relation in apart["relations"] if relation["score"] > 0.75]}))
    assert len(sure) > 2.5 * len(PARAGRAPHS)
    assert len(sure - set(related(answer))) < len(sure) / 10
    assert len(set(related(answer))) == len(answer["relations"])
    assert any(head > STARTS[-1] for head, _, _ in related(answer))


def test_a_text_that_is_cut_says_where(service):
    answer = answered(service.extract(**ASKED, long_text="truncate"))
    cut = list(WORD.finditer(DOCUMENT))[READ_AT_ONCE - 1].end()
    assert (answer["truncated"], answer["truncated_at"]) == (True, cut)
    assert (answer["usage"]["words"], answer["usage"]["windows"]) == (READ_AT_ONCE, 1)
    assert_equal(answer, answered(service.extract(text=DOCUMENT[:cut], labels=LABELS)))


def test_a_text_may_be_refused_for_its_length(service):
    response = service.extract(**ASKED, long_text="reject")
    assert (response.status_code, response.json()["error"]["param"]) == (413, "text")
    assert response.json()["error"]["code"] == "too_large"
    assert_equal(answered(service.extract(**SHORT, long_text="reject")), answered(service.extract(**SHORT)))


@pytest.mark.bento_only
def test_texts_of_a_batch_are_each_read_in_windows_of_their_own(service, whole):
    short, cut = answered(service.extract(**SHORT)), answered(service.extract(**ASKED, long_text="truncate"))
    small = {"window_words": 64, "window_overlap_words": 8}
    windows = answered(service.extract(**ASKED, **small))
    assert windows["usage"]["windows"] > whole["usage"]["windows"]
    items = [SHORT, ASKED, ASKED | {"long_text": "truncate"}, ASKED | {"long_text": "reject"}, ASKED | small]
    results = answered(service.request("POST", "/v1/extract/batch", json={"items": items}))["results"]
    assert results[3]["error"]["param"] == "items.3.text"
    for place, expected in [(0, short), (1, whole), (2, cut), (4, windows)]:
        assert_equal(results[place]["result"], expected)
        assert results[place]["result"]["usage"] == expected["usage"]
    body = {"texts": [SHORT["text"], DOCUMENT], "labels": LABELS} | small
    shared = answered(service.request("POST", "/v1/extract/batch", json=body))["results"]
    assert_equal(shared[0]["result"], short)
    assert_equal(shared[1]["result"], windows)


@pytest.mark.bento_only
def test_gliner_serves_route_reads_long_texts_whole_in_its_own_shape(service):
    response = service.request("POST", "/gliner", json=ASKED | {"relations": RELATIONS})
    assert "x-gliner-truncated" not in response.headers
    answer = answered(response)
    assert set(answer) == {"entities", "relations"}
    assert all(set(entity) == {"start", "end", "text", "label", "score"} for entity in answer["entities"])
    assert all(set(one["head"]) == {"start", "end", "text", "type", "entity_idx"} for one in answer["relations"])
    assert_equal(answer, answered(service.extract(**ASKED, relations=RELATIONS)))
    assert found(answer)[-1][0] > STARTS[-1]
    assert set(answered(service.request("POST", "/gliner", json=ASKED))) == {"entities"}


def many_labels() -> list[str]:
    return [*LABELS, *(f"{pick(KINDS, number)} {number}" for number in range(1000 - len(LABELS)))]


@pytest.mark.bento_only
def test_a_thousand_labels_take_groups_that_do_not_depend_on_their_order(service):
    labels = many_labels()
    body = {"text": SHORT["text"], "threshold": 0.3}
    answer = answered(service.extract(**body, labels=labels))
    assert answer["usage"]["label_groups"] == len(labels) / LABELS_AT_ONCE
    assert (answer["usage"]["windows"], answer["usage"]["words"]) == (1, len(WORD.findall(body["text"])))
    assert ("Bill Gates", "person") in {(entity["text"], entity["label"]) for entity in answer["entities"]}
    random.Random(0).shuffle(labels)
    assert_equal(answered(service.extract(**body, labels=labels)), answer)


def test_relations_are_found_between_labels_of_different_groups(service):
    labels = {
        f"{name} {number}" if number else name: f"{name} {number}" if number else name
        for number in range(15)
        for name in LABELS
    }
    answer = answered(service.extract(text=SHORT["text"], labels=labels, relations=[*RELATIONS, "worked with"]))
    assert (answer["usage"]["label_groups"], answer["usage"]["relation_groups"]) == (3, 1)
    predicted = {(r["head"]["text"], r["relation"], r["tail"]["text"]) for r in answer["relations"]}
    assert ("Bill Gates", "founded", "Microsoft") in predicted


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"window_words": 0}, "window_words"),
        ({"window_words": -5}, "window_words"),
        ({"window_words": 1.5}, "window_words"),
        ({"window_words": READ_AT_ONCE + 1}, "window_words"),
        ({"window_overlap_words": -1}, "window_overlap_words"),
        ({"window_words": 10, "window_overlap_words": 10}, "window_overlap_words"),
        ({"window_words": 10, "window_overlap_words": 11}, "window_overlap_words"),
        ({"window_overlap_words": READ_AT_ONCE}, "window_overlap_words"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/extract", "/v1/extract/stream"])
@pytest.mark.parametrize("body", [ASKED, SHORT], ids=["long", "short"])
def test_windows_that_cannot_be_are_named(service, path, body, options, param):
    response = service.request("POST", path, json=body | options)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (422, param)
    assert error["message"].startswith(f"{param}: ")


def test_an_item_with_windows_that_cannot_be_is_named(service):
    items = [SHORT, ASKED | {"window_words": READ_AT_ONCE + 1}]
    first, second = answered(service.request("POST", "/v1/extract/batch", json={"items": items}))["results"]
    assert (second["error"]["code"], second["error"]["param"]) == ("invalid_field", "items.1.window_words")
    assert first["result"]["entities"]


@pytest.mark.bento_only
def test_concurrent_long_and_short_texts_get_the_answers_of_single_requests(service):
    bodies = [ASKED | {"relations": RELATIONS}, ASKED | {"window_words": 100, "threshold": 0.3}]
    bodies += [SHORT | {"text": text} for text in PARAGRAPHS[:30]]
    expected = [answered(service.extract(**body)) for body in bodies]
    together = service.gather(*((lambda client, body=body: client.post("/v1/extract", json=body)) for body in bodies))
    for one, other in zip(expected, together, strict=True):
        assert_equal(answered(other), one)
        assert answered(other)["usage"] == one["usage"]


@pytest.mark.bento_only
@pytest.mark.parametrize(
    "options", [{}, {"window_words": 50, "relations": RELATIONS}, {"long_text": "truncate"}], ids=str
)
@pytest.mark.parametrize("body", [ASKED, SHORT, SHORT | {"text": " "}], ids=["long", "short", "blank"])
def test_a_stream_is_the_answer_line_by_line(service, body, options):
    expected = answered(service.extract(**body, **options))
    *entities, end = lines_of(service.request("POST", "/v1/extract/stream", json=body | options | {"request_id": "s"}))
    streamed = {"entities": [received["entity"] for received in entities], **end}
    assert_equal(streamed, expected)
    assert set(streamed) == set(expected)
    for name in ("usage", "truncated", "truncated_at", "model", "adapter_id"):
        assert streamed[name] == expected[name]
    assert end["request_id"] == "s"


def test_an_impossible_deadline_of_a_stream_is_504(service):
    response = service.request("POST", "/v1/extract/stream", json=ASKED | {"timeout_ms": 0.001})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_our_asynchronous_client_streams(service, whole):
    client = AsyncClient("http://service")
    client._http = service.client

    async def scene(_):
        return [received async for received in client.extract_stream(DOCUMENT, LABELS)]

    ((*entities, end),) = service.gather(scene)
    assert [(entity.start, entity.end, entity.label) for entity in entities] == found(whole)
    assert asdict(end.usage) == whole["usage"]

    async def refused(_):
        return [received async for received in client.extract_stream(DOCUMENT, LABELS, long_text="reject")]

    with pytest.raises(TooLarge):
        service.gather(refused)
