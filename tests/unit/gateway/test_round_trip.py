"""Conversations are redacted, answered by a double of a language model, and restored: `python -m reliability
round_trip` in small, with a model that finds a value where it is first in a text."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random

import pytest
from gateway_options import OPTIONS
from test_recognizers_of_requests import Scripted

from reliability.conversations import FORMS, User
from reliability.round_trip import aligned, converse

CONVERSATIONS = 20
LARGE = dataclasses.replace(
    OPTIONS, max_body_bytes=2**20, max_batch_items=100, max_labels=10, max_text_chars=2000, max_mapping_bytes=50_000
)
KINDS = {"person": "person", "other": "person", "street": "street address", "city": "city"}


@pytest.fixture(scope="module")
def values():
    """What a model is to find in all conversations."""
    users = [User(random.Random(number)).values for number in range(CONVERSATIONS)]
    return {user[name]: label for user in users for name, label in KINDS.items()}


def test_nothing_that_was_found_passes_and_everything_comes_back(serving, values):
    async def hold():
        async with serving(Scripted(*values.items()), LARGE) as client:
            return await converse(client, CONVERSATIONS)

    outcome = asyncio.run(hold())
    assert outcome.examples == []
    counts = outcome.counts
    assert counts["values"] > 20 * CONVERSATIONS
    assert counts["covered values"] > 0.95 * counts["values"]
    assert (counts["replies"], counts["tool calls"]) >= (6 * CONVERSATIONS, CONVERSATIONS // 2)
    assert CONVERSATIONS < counts["streams"] < counts["replies"]


@pytest.mark.parametrize(
    ("fault", "old", "new"),
    [
        ("passed", "[PERSON_1]", "{person}"),
        ("inconsistent", "[PERSON_2]", "[PERSON_1]"),
        ("changed", "[PERSON_1]", "[PERSON_1] !"),
        ("not restored", "{person}", "[PERSON_1]"),
    ],
)
def test_faults_are_seen(serving, values, fault, old, new):
    """Of a server whose answers are changed, from the second on."""
    person = User(random.Random(0)).values["person"]
    answers = itertools.count()

    async def broken(response):
        content = await response.aread()
        if next(answers):
            response._content = content.replace(*(part.format(person=person).encode() for part in (old, new)))

    async def hold():
        async with serving(Scripted(*values.items()), LARGE) as client:
            client.event_hooks["response"].append(broken)
            return (await converse(client, 1)).counts

    assert asyncio.run(hold())[fault]


def test_forms_are_different_and_texts_are_compared_as_wholes():
    assert len({form.write("[PERSON_1]") for form in FORMS.values()}) == len(FORMS)
    assert aligned("Ada, a\nb", "[PERSON_1], [CITY_1]") == [("[PERSON_1]", "Ada"), ("[CITY_1]", "a\nb")]
    assert aligned("Ada is", "[PERSON_1] was") is None
