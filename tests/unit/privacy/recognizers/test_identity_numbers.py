"""Identity numbers are found with their name before them however they are written; the nearest name decides."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gliner_bento.privacy.recognizers import identity, words
from gliner_bento.privacy.recognizers.find import candidates, find, resolved

ENTITIES = tuple({rule.entity for rule in (*identity.RULES, *words.RULES)})
_MARK = re.compile(r"\[\[([A-Z_]+) (.*?)\]\]")


def _lines(name: str) -> list[str]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


LINES = _lines("identity_numbers.txt")
MARKED = [line for line in LINES if _MARK.search(line)]


def found(text: str, *entities: str) -> list[tuple[str, str]]:
    return [(one.entity, text[one.start : one.end]) for one in find(text, entities or ENTITIES)]


@pytest.mark.parametrize("line", LINES)
def test_exactly_the_marked_numbers_are_found(line):
    assert found(_MARK.sub(r"\2", line)) == _MARK.findall(line)


def test_nearly_all_numbers_are_found_however_they_are_grouped():
    """Exactly: a part of a number, or a number of another kind, is a false one."""
    missed, false, right = [], [], 0
    for line in _lines("identity_spellings.txt"):
        marked, got = _MARK.findall(line), found(_MARK.sub(r"\2", line))
        missed += [number for number in marked if number not in got]
        false += [number for number in got if number not in marked]
        right += len(marked)
    assert len(missed) <= 0.01 * right, missed
    assert len(false) <= 0.01 * right, false


def _respelled(line: str, respell: Callable[[str], str]) -> str:
    return _MARK.sub(lambda mark: f"[[{mark[1]} {respell(mark[2])}]]", line)


def _variants(line: str) -> Iterator[str]:
    yield _respelled(line, str.lower)
    yield _respelled(line, str.upper)
    if not re.search("FI_PERSONAL|DRIVER", line):  # there, a dash is not only a separator
        yield _respelled(line, lambda number: re.sub("[ .:/-]", "", number))


@pytest.mark.parametrize("line", MARKED)
def test_neither_case_nor_separators_matter(line):
    for variant in _variants(line):
        marks = _MARK.findall(variant)
        assert found(_MARK.sub(r"\2", variant), *{entity for entity, _ in marks}) == marks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 123456782 is a right TFN, SIN and BSN.
        ("TFN 123 456 782", "AU_TFN"),
        ("SIN 123 456 782", "CA_SIN"),
        ("SIN or TFN: 123456782", "AU_TFN"),
        ("TFN or SIN: 123456782", "CA_SIN"),
        ("SIN 130692544 and TFN 123456782", "AU_TFN"),
        ("TFN not known, SIN number is 123456782", "CA_SIN"),
        ("bsn, SIN, tfn: 123456782", "AU_TFN"),
        ("SSN unknown; passport 533401372", "US_PASSPORT"),
        ("passport lost; SSN 533401372", "US_SSN"),
        ("Social security number on the account: 533401372", "US_SSN"),
        ("account closed, social security number 533401372", "US_SSN"),
    ],
)
def test_the_nearest_name_decides(text, expected):
    assert found(text)[-1][0] == expected


def test_a_name_in_the_text_is_nearer_than_one_from_outside():
    def kind(text: str) -> str:
        matches = candidates(text, ["CA_SIN", "AU_TFN"], context=["sin"])
        return resolved(matches, len(text))[0].entity

    assert kind("Her TFN is 123456782.") == "AU_TFN"
    assert kind("Hers is 123456782.") == "CA_SIN"


@pytest.mark.parametrize("text", ["jg103759a", "1eg4te5mk73", "s1234567d", "54362315k", "x-2.482.300-w", "de136695976"])
def test_a_number_in_an_unusual_spelling_has_no_score_without_its_name(text):
    assert candidates(f"Order {text} has shipped.", {rule.entity for rule in identity.RULES}) == []


def test_a_nearer_name_of_a_kind_that_is_not_wanted_hides_nothing():
    assert found("SSN unknown; passport 533401372", "US_SSN") == [("US_SSN", "533401372")]


def test_a_number_far_from_its_name_needs_its_usual_spelling():
    filler = " and so on" * 8
    assert found(f"NIF{filler} 54362315K") == [("ES_NIF", "54362315K")]
    assert found(f"NIF{filler} 54362315k") == []


@pytest.mark.parametrize(
    ("before", "number", "behind"),
    [
        ("卡号", "4111111111111111", "。"),
        ("カード", "4111 1111 1111 1111", ""),
        ("口座は", "DE89370400440532013000", "です"),
        ("電話は", "03-1234-5678", "です"),
        ("서버", "192.168.17.34", "입니다"),
        ("我的身份证号码是", "360426 19910101 0071", ""),
        ("주민등록번호는", "971013-9019902", "입니다"),
        ("เลขบัตรประชาชนของฉันคือ", "3-1006-00445-63-5", ""),
    ],
)
def test_a_number_may_be_right_behind_a_word_without_a_space(before, number, behind):
    """As in Chinese, Japanese, Korean and Thai."""
    text = f"{before}{number}{behind}"
    assert [text[one.start : one.end] for one in find(text)] == [number]


@pytest.mark.parametrize("word", ["sécurité", "securite", "SÉCURITÉ", "securite\u0301"])
def test_a_name_may_lack_its_accents(word):
    assert found(f"{word} sociale 4.53.07.2B.073.004.67", "FR_NIR") == [("FR_NIR", "4.53.07.2B.073.004.67")]


@pytest.mark.parametrize("seed", range(5))
def test_no_identity_number_is_in_random_codes(seed):
    numbers = random.Random(seed)
    for _ in range(300):
        code = uuid.UUID(int=numbers.getrandbits(128))
        decimal = numbers.uniform(-180, 180)
        assert found(f"{code} {code.hex} {str(code).upper()} {decimal!r}") == []
