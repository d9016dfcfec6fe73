"""Relations in texts of several facts, with the bundled model: all are found, in every route, alone and under load."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

PEOPLE = [
    "Maren Tholvik",
    "Jonas Abara",
    "Livia Quennell",
    "Peter Okonjo",
    "Anna Lindgaard",
    "Omar Reyes",
    "Ruth Calder",
    "Ivan Sorel",
]
COMPANIES = [
    "Brightwell",
    "Norsund Shipping",
    "Calvex",
    "Harlow Foods",
    "Tindra Energy",
    "Pellmore",
    "Osterby Steel",
    "Quantock",
]
FACTS = {(person, "works for", company) for person, company in zip(PEOPLE, COMPANIES, strict=True)}
PAIRS = " ".join(f"{person} works for {company}." for person, _, company in sorted(FACTS))
TABLE = "\n".join(f"{person}, {company}" for person, _, company in sorted(FACTS))
ASKED = {"labels": ["person", "company"], "relations": ["works for"]}


def related(answer, name=lambda end: end["text"]) -> list[tuple[str, str, str]]:
    return sorted((name(one["head"]), one["relation"], name(one["tail"])) for one in answer["relations"])


def test_eight_facts_of_one_text_are_found_in_every_route(service):
    answer = service.extract(text=PAIRS, **ASKED).json()
    assert related(answer) == sorted(FACTS)
    assert answer["usage"]["passes"] == 1 + len(FACTS)
    batch = service.request("POST", "/v1/extract/batch", json={"texts": [PAIRS, "x"], **ASKED}).json()["results"]
    assert batch[0]["result"]["relations"] == answer["relations"]
    lines = service.request("POST", "/v1/extract/stream", json={"text": PAIRS, **ASKED}).text.splitlines()
    *entities, end = map(json.loads, lines)
    assert [line["entity"] for line in entities] == answer["entities"]
    assert (end["relations"], end["usage"]) == (answer["relations"], answer["usage"])
    gliner_serve = service.request("POST", "/gliner", json={"text": PAIRS, **ASKED}).json()
    assert related(gliner_serve) == sorted(FACTS)


def test_whole_windows_are_read_in_one_pass(service):
    whole = service.extract(text=PAIRS, relation_window="whole", **ASKED).json()
    apart = service.extract(text=PAIRS, **ASKED).json()
    assert (whole["usage"]["passes"], apart["usage"]["passes"]) == (1, 1 + len(FACTS))
    assert whole["entities"] == apart["entities"]
    scores = [
        {(one["head"]["text"], one["tail"]["text"]): one["score"] for one in x["relations"]} for x in (whole, apart)
    ]
    assert scores[0] != scores[1]


@pytest.mark.bento_only
def test_a_long_text_of_many_facts(service):
    text = "\n\n".join([PAIRS] * 12)
    answer = service.extract(text=text, **ASKED).json()
    assert answer["usage"]["windows"] > 1
    right = [one for one in related(answer) if one in FACTS]
    assert len(right) >= 0.85 * 12 * len(FACTS)  # of 16 entities, the model misses one
    assert len(right) >= 0.95 * len(answer["relations"])


@pytest.mark.bento_only
def test_relations_do_not_cross_the_rows_of_a_table(service):
    answer = service.extract(text=TABLE, relation_threshold=0.1, **ASKED).json()
    rows = {text: row for row, line in enumerate(TABLE.splitlines()) for text in line.split(", ")}
    ends = [(head, tail) for head, _, tail in related(answer) if head in rows and tail in rows]
    assert ends
    assert all(rows[head] == rows[tail] for head, tail in ends)


def test_a_text_that_is_not_divided_takes_one_pass(service):
    """The second sentence has a single entity, so that it is read with the first one."""
    text = "Maren Tholvik founded Calvex in 1998. The company is headquartered in Oslo."
    asked = {"labels": ["person", "organization", "date", "location"], "relations": ["founded", "headquartered in"]}
    answer, whole = (service.extract(text=text, **asked, **more).json() for more in ({}, {"relation_window": "whole"}))
    assert ("Calvex", "headquartered in", "Oslo") in related(answer)
    assert (answer["relations"], answer["usage"]) == (whole["relations"], whole["usage"])


@pytest.mark.bento_only
def test_relations_are_the_same_bits_alone_and_under_load(service):
    texts = [" ".join(random.Random(seed).sample(PAIRS.split(". "), 5)) + "." for seed in range(12)]
    alone = [service.extract(text=text, **ASKED).json() for text in texts]

    async def send(client):
        bodies = [{"text": text, **ASKED} for text in texts * 3]
        return await asyncio.gather(*(client.post("/v1/extract", json=body) for body in bodies))

    (responses,) = service.gather(send)
    for response, expected in zip(responses, alone * 3, strict=True):
        answer = response.json()
        assert [answer[name] for name in ("entities", "relations", "usage")] == [
            expected[name] for name in ("entities", "relations", "usage")
        ]
    assert sum(len(answer["relations"]) for answer in alone) > 20


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"relation_window": "whole", "relation_window_sentences": 2}, "relation_window_sentences"),
        ({"relation_window_overlap_sentences": 1}, "relation_window_overlap_sentences"),
        ({"relation_window": "paragraphs"}, "relation_window"),
    ],
)
def test_impossible_relation_windows_are_named(service, options, param):
    response = service.extract(text="x", **ASKED, **options)
    assert (response.status_code, response.json()["error"]["param"]) == (422, param)


def test_the_model_card_has_the_default(service):
    assert service.request("GET", "/v1/model").json()["relation_window_sentences"] == 1
