"""Sealed mappings: who can open which, and for how long."""

from __future__ import annotations

import pytest

from gliner_bento.errors import InvalidField, TooLarge
from gliner_bento.privacy.sealing import Sealer

MAPPING = {"[PERSON_1]": "Ada", "[CITY_1]": "Zürich \U0001f600"}


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self):
        return self.now_s


def sealer(*keys, max_bytes=1000, clock=None):
    return Sealer(keys or (b"one",), max_bytes=max_bytes, lifetime_s=60, clock=clock or Clock())


def test_a_mapping_is_opened_for_its_tenant_alone():
    sealed = sealer().seal("a", MAPPING)
    assert "Ada" not in sealed
    assert sealer().open("a", sealed) == MAPPING
    assert sealer().seal("a", MAPPING) != sealed


def test_what_cannot_be_opened_gives_one_error_that_says_no_more():
    clock = Clock()
    sealed = sealer().seal("a", MAPPING)
    changed = sealed[:40] + ("A" if sealed[40] != "A" else "B") + sealed[41:]
    refused = [
        (sealer(), "b", sealed),
        (sealer(), "a", changed),
        (sealer(), "a", sealed[:-8]),
        (sealer(), "a", ""),
        (sealer(), "a", "é" * 20),
        (sealer(b"two"), "a", sealed),
        (sealer(max_bytes=20), "a", sealed),
        (sealer(clock=clock), "a", sealed),
    ]
    clock.now_s += 61
    errors = set()
    for one, tenant, token in refused:
        with pytest.raises(InvalidField) as error:
            one.open(tenant, token)
        assert error.value.__context__ is None or error.value.__suppress_context__ or "Ada" not in str(error.value)
        errors.add((error.value.message, error.value.param))
    assert len(errors) == 1
    assert errors.pop()[1] == "mapping"


def test_keys_rotate_the_first_seals_and_all_open():
    old = sealer(b"old").seal("a", MAPPING)
    assert sealer(b"new", b"old").open("a", old) == MAPPING
    new = sealer(b"new", b"old").seal("a", MAPPING)
    assert sealer(b"new").open("a", new) == MAPPING
    with pytest.raises(InvalidField):
        sealer(b"old").open("a", new)


def test_a_mapping_has_a_maximum_size():
    with pytest.raises(TooLarge, match="max_mapping_bytes"):
        sealer(max_bytes=200).seal("a", {"[NOTE_1]": "x" * 190})


def test_hash_keys_are_of_a_tenant_and_of_a_conversation():
    one = sealer()
    keys = [one.hash_key("a", None), one.hash_key("b", None), one.hash_key("a", "c"), one.hash_key("a", "")]
    assert len({*keys, sealer(b"two").hash_key("a", None)}) == 5
