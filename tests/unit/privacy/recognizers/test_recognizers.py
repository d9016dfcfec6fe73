"""Recognizers: published numbers are found, their neighbours with a wrong check digit are not."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from gliner_bento.privacy.recognizers.find import GROUPS, RECOGNIZERS, RULES, candidates, find
from gliner_bento.privacy.recognizers.folding import folded
from gliner_bento.privacy.recognizers.labels import PRESIDIO_LABELS, entities_of
from gliner_bento.privacy.recognizers.starts import Starts
from gliner_bento.settings.configuration import PROJECT_ROOT

pytestmark = pytest.mark.long


def found(text: str) -> list[tuple[str, str]]:
    return [(one.entity, text[one.start : one.end]) for one in find(text)]


@pytest.mark.parametrize(
    "iban",
    [
        "GB82 WEST 1234 5698 7654 32",
        "DE89370400440532013000",
        "FR14 2004 1010 0505 0001 3M02 606",
        "NO93 8601 1117 947",
        "MT84 MALT 0110 0001 2345 MTLC AST0 01S",
    ],
)
def test_iban(iban):
    assert found(f"IBAN: {iban}, thanks") == [("IBAN_CODE", iban)]
    assert found(f"Pay {iban} by Friday") == [("IBAN_CODE", iban)]
    wrong = iban[:-1] + ("1" if iban[-1] != "1" else "2")
    assert ("IBAN_CODE", wrong) not in found(wrong)


CARDS = ["4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005", "6011.1111.1111.1117", "4222222222222"]


@pytest.mark.parametrize("card", CARDS)
def test_cards(card):
    assert found(f"card {card}.") == [("CREDIT_CARD", card)]
    assert found(f"card _{card}_ 1") == [("CREDIT_CARD", card)]
    for digit in range(1, 10):
        wrong = card[:-1] + str((int(card[-1]) + digit) % 10)
        assert ("CREDIT_CARD", wrong) not in found(f"card {wrong}.")


def test_digits_of_decimals_are_no_numbers():
    """Without the rule about decimal points, one in thirty of these has the digits of a card."""
    random = Random(7)
    for _ in range(2000):
        text = f"at {random.uniform(-180, 180)!r}, {random.random()!r} [.{random.randrange(10**14, 10**15)}]"
        assert candidates(text, RECOGNIZERS) == [], text


@pytest.mark.parametrize("gap", [" ", "  ", "\t", "/", " / ", " - "])
@pytest.mark.parametrize("form", ["{:.1f}", "{:.2f}", "{:.4f}", "{:+.3f}", "{:.6f}", "{!r}"])
def test_rows_of_decimals_are_no_phone_numbers(gap, form):
    random = Random(f"{gap}{form}")
    for most in (1, 10, 180):
        for columns in range(2, 7):
            rows = [gap.join(form.format(random.uniform(-most / 9, most)) for _ in range(columns)) for _ in range(12)]
            assert found("values\n" + "\n".join(rows)) == []


@pytest.mark.parametrize(
    "number", ["030.123.4567", "01.70.36.39.50", "+49.30 9018 2001", "(617) 555.0142", "1 800.555.0199"]
)
def test_points_in_phone_numbers(number):
    assert found(f"Call {number} today") == [("PHONE_NUMBER", number)]


def test_a_bracket_around_a_phone_number_is_not_of_it():
    text = "Call us (01375 555 222), (020 7946 0958), or (212) 555-0187 and (+49.30 9018 2001)."
    numbers = ["01375 555 222", "020 7946 0958", "(212) 555-0187", "+49.30 9018 2001"]
    assert found(text) == [("PHONE_NUMBER", number) for number in numbers]


@pytest.mark.parametrize(
    "born",
    [
        "née le [2 février 1987]",
        "né le [1er août 1990]",
        "nacida el [12 de mayo de 1985]",
        "nato il [3 marzo 1960]",
        "geboren am [3. März 1977]",
        "nascido em [7 de outubro de 1990]",
        "geboren op [3 mei 1980]",
    ],
)
def test_dates_of_birth_in_words_of_other_languages(born):
    date = born.split("[")[1][:-1]
    assert found(born.replace("[", "").replace("]", "") + ", a") == [("DATE_OF_BIRTH", date)]


def test_a_point_beside_a_grouped_card_is_no_decimal_point():
    assert found("1.4111 1111 1111 1111.2024") == [("CREDIT_CARD", "4111 1111 1111 1111")]
    assert found("Card 4111111111111111.") == [("CREDIT_CARD", "4111111111111111")]


@pytest.mark.parametrize("groups", ["41111111 11111111", "411111 1111 111111", "4111 1111-1111 1111"])
def test_a_card_in_unusual_groups_needs_a_word(groups):
    assert found(f"rows: {groups}") == []
    assert found(f"Her card is {groups}.") == [("CREDIT_CARD", groups)]


@pytest.mark.parametrize(
    "text",
    [
        "account_token:47223179-9330-4259-b66c-f2db26efb20c",
        "{41111111-1111-1111-8000-0123456789ab}",
        "arn:aws:iam::219099999012:user/ada and arn:aws:sns:eu-west-1:5031234567890:jobs",
        "sha256:1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014, commit 4157265550",
        "created 1748503543012 ok, ticket 1000234567, order 4155550132",
    ],
)
def test_digits_of_identifiers_are_no_cards_or_phone_numbers(text):
    assert candidates(text, ["CREDIT_CARD", "PHONE_NUMBER"]) == []


def test_digits_alone_are_a_phone_number_behind_a_word():
    assert found("Call 4155550132 or 00442079460958") == [
        ("PHONE_NUMBER", "4155550132"),
        ("PHONE_NUMBER", "00442079460958"),
    ]


def test_itins_have_the_groups_of_the_irs():
    groups = [
        group for group in range(100) if found(f"ITIN 912-{group:02}-3456") == [("US_ITIN", f"912-{group:02}-3456")]
    ]
    assert groups == [*range(50, 66), *range(70, 89), *range(90, 93), *range(94, 100)]


@pytest.mark.parametrize(
    "address", ["a@xn--d1acufc.xn--p1ai", "ada@mail.XN--90A3AC", "info@müller.xn--vermgensberater-ctb"]
)
def test_mail_addresses_end_with_their_domain(address):
    assert found(f"write to {address}, or") == [("EMAIL_ADDRESS", address)]
    domain = address.partition("@")[2]
    if domain.isascii() and domain.islower():
        assert found(f"see {domain}/a.") == [("URL", f"{domain}/a")]


SEPARATORS = {"no-break": "\xa0", "narrow": "\u202f", "dash": "\u2011", "en dash": "\u2013", "minus": "\u2212"}
SEPARATORS |= {"zero-width": "\u200b", "joiner": "\u200d", "mark": "\ufeff", "soft": "\xad", "both": "\u200b \u2060"}


@pytest.mark.parametrize("separator", SEPARATORS.values(), ids=SEPARATORS)
@pytest.mark.parametrize(
    ("label", "parts"),
    [
        ("CREDIT_CARD", ["4111", "1111", "1111", "1111"]),
        ("IBAN_CODE", ["GB82", "WEST", "1234", "5698", "7654", "32"]),
        ("PHONE_NUMBER", ["+49", "151", "12345678"]),
    ],
)
def test_a_separator_may_be_any_space_dash_or_invisible_character(label, parts, separator):
    written = separator.join(parts)
    assert found(f"\u201e{written}\u201c \U0001f600") == [(label, written)]


def test_invisible_characters_and_wide_forms_hide_nothing():
    assert found("x \u200bada\u200b@mail\u2060.example y") == [("EMAIL_ADDRESS", "ada\u200b@mail\u2060.example")]
    wide = "".join(chr(ord(char) + 0xFEE0) for char in "4111111111111111")
    assert found(f"\uff1a{wide}") == [("CREDIT_CARD", wide)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to ada.l+x@mail.example.co.uk.", [("EMAIL_ADDRESS", "ada.l+x@mail.example.co.uk")]),
        ("or .ada@mail.example", [("EMAIL_ADDRESS", "ada@mail.example")]),
        (
            "-ada@mail.example ...b.o@mail.example",
            [("EMAIL_ADDRESS", "ada@mail.example"), ("EMAIL_ADDRESS", "b.o@mail.example")],
        ),
        ("<jörg@müller.example>", [("EMAIL_ADDRESS", "jörg@müller.example")]),
        ("a@b, @user, x@y.1", []),
        ("call +44 20 7946 0958 now", [("PHONE_NUMBER", "+44 20 7946 0958")]),
        ("call (555) 010-9999", [("PHONE_NUMBER", "(555) 010-9999")]),
        ("call 555-010-9999, or 030/1234567", [("PHONE_NUMBER", "555-010-9999"), ("PHONE_NUMBER", "030/1234567")]),
        ("on 01.02.2023, 2023-01-02, version 1.2.3.4, 1234567 pieces, 1.0302345678, f(1234567), x+1234567", []),
        ("4111 1111 1111 1112", []),
        (
            "_ada@mail.example_ or <i>_bob@mail.example_</i>",
            [("EMAIL_ADDRESS", "_ada@mail.example"), ("EMAIL_ADDRESS", "_bob@mail.example")],
        ),
        ("Tel.+49 151 12345678", [("PHONE_NUMBER", "+49 151 12345678")]),
        ("Tel.(030) 1234567, Tel.030 1234567", [("PHONE_NUMBER", "(030) 1234567"), ("PHONE_NUMBER", "030 1234567")]),
        ("_+49 151 12345678_", [("PHONE_NUMBER", "+49 151 12345678")]),
        ("_DE89370400440532013000_", [("IBAN_CODE", "DE89370400440532013000")]),
        ("mail +4915112345678@sms.example", [("EMAIL_ADDRESS", "+4915112345678@sms.example")]),
        (f"MRN: {'A1B2' * 15}", [("MEDICAL_RECORD_NUMBER", "A1B2" * 15)]),
        ("MRN: 1234-AB-CD-EF-GH-IJ-KL ok", [("MEDICAL_RECORD_NUMBER", "1234-AB-CD-EF-GH-IJ-KL")]),
    ],
)
def test_rules(text, expected):
    assert found(text) == expected


def test_no_code_is_found_in_part():
    for chars in range(190, 420):
        for code in ("A1B2" * 110, "1234" + "-AB" * 200):
            text = code[:chars].rstrip("-")
            assert found(f"MRN: {text}") == ([("MEDICAL_RECORD_NUMBER", text)] if len(text) <= 200 else [])


DIVIDED = [" ", "4\u0336", "4111 1111\n", "1|", "[.]1", "a @ "]


@pytest.mark.parametrize(
    "unit",
    ["a@", "1 ", "4.", "0 ", "a.", "DE89 ", "+1-", "(0", "a" * 64, "1\u200b", "!a", "account 123456, ", *DIVIDED],
)
def test_long_runs_take_linear_time(unit):
    """A hang here is a regular expression that backtracks; what the rules call for each character is counted."""
    find(unit * (50_000 // len(unit)))
    calls = Counter()
    sys.setprofile(lambda _, event, __: calls.update([event.removeprefix("c_")]))
    try:
        find(unit * (2_000 // len(unit)))
    finally:
        sys.setprofile(None)
    assert calls["call"] < 2 * 2_000 * len(RULES)  # each rule is tried once at a character, once more beside a gap


IDENTIFIERS = {
    "US_SSN": lambda random: f"{random.randrange(100, 665)}-{random.randrange(10, 99)}-{random.randrange(1000, 9999)}",
    "ES_NIF": lambda random: "{:08}{}".format(*_nif(random.randrange(10**8))),
    "decimals": lambda random: " ".join(f"{random.uniform(-180, 180):.4f}" for _ in range(4)),
    "EMAIL_ADDRESS": lambda random: f"{random.randrange(10**6)}.ada@mail{random.randrange(100)}.example",
    "prose": lambda random: " ".join(random.choices(["house", "Hall", "e.g.", "2019", "of", "well-known"], k=20)),
}


def _nif(digits: int) -> tuple[int, str]:
    return digits, "TRWAGMYFPDXBNJZSQVHLCKE"[digits % 23]


@pytest.mark.parametrize(
    ("kind", "most"), [("US_SSN", 350), ("ES_NIF", 300), ("decimals", 450), ("EMAIL_ADDRESS", 100), ("prose", 120)]
)
def test_few_rules_are_tried_at_each_identifier_of_a_list(kind, most):
    """Time would depend on the machine. Each rule that is tried is a call; there are more than 70."""
    random = Random(kind)
    lines = [IDENTIFIERS[kind](random) for _ in range(100)]
    find("\n".join(lines))
    calls = Counter()
    sys.setprofile(lambda _, event, __: calls.update([event]))
    try:
        find("\n".join(lines))
    finally:
        sys.setprofile(None)
    assert calls["call"] + calls["c_call"] < most * len(lines)


def test_no_match_begins_elsewhere_than_where_a_rule_is_tried():
    """Tries each rule at each character."""
    lines = [
        re.sub(r"\[\[[A-Z_]+ (.*?)\]\]", r"\1", line)
        for name in ("sentences", "documents", "identity_numbers")
        for line in (MEASURE.parents[2] / "tests/unit/privacy/recognizers" / f"{name}.txt")
        .read_text("utf-8")
        .split("\n")
    ]
    for line in lines:
        text = folded(line).text
        starts = Starts(text, GROUPS)
        for rule in RULES:
            if rule.score and rule.entity != "PHONE_NUMBER":
                everywhere = [at for at in range(len(text)) if rule.regex.match(text, at)]
                expected = [*replace(rule, sign="").matches(text, everywhere)]
                if not rule.sign:
                    expected = [match for match in expected if match.start in starts.every]
                got = [*rule.matches(text, starts.of(rule))]
                assert [match[:4] for match in got] == [match[:4] for match in expected], (rule.entity, line)


MEASURE = PROJECT_ROOT / "docs" / "measurements" / "recognizers.py"
STRICT = {"CREDIT_CARD", "IBAN_CODE", "EMAIL_ADDRESS", "US_SSN", "IP_ADDRESS"}


@pytest.mark.parametrize("name", ["sentences", "presidio", "documents"])
def test_recall_and_precision_are_the_measured_ones(name):
    """As stored beside the model's; docs/recognizers.md has a table of the set that no recognizer was made for."""
    measure = runpy.run_path(str(MEASURE))
    stored = json.loads(MEASURE.with_suffix(".json").read_text(encoding="utf-8"))[name]
    figures = measure["measured"](name, measure["by_form"])
    assert figures == stored["recognizers"]
    assert all(
        figures[kind]["recall"] >= 0.97 and figures[kind]["precision"] >= 0.95 for kind in STRICT & figures.keys()
    )
    assert figures["PHONE_NUMBER"]["recall"] >= 0.85
    if name == "documents":
        assert measure["rows"](stored) in (PROJECT_ROOT / "docs" / "recognizers.md").read_text(encoding="utf-8")


def test_the_words_of_a_request_count_as_near():
    def passports(context):
        text = "It is X1234567, as I said."
        found = candidates(text, ["US_PASSPORT"], context=context)
        return [(text[one.start : one.end], one.score >= 0.5, one.word) for one in found]

    assert passports([]) == []
    assert passports(["passport"]) == [("X1234567", True, "passport")]


@pytest.mark.parametrize(
    ("label", "entities"),
    [
        ("email", {"EMAIL_ADDRESS"}),
        ("Credit_Debit_Card", {"CREDIT_CARD"}),
        ("social security number", {"US_SSN"}),
        ("ipv4", {"IPv4"}),
        ("EMAIL_ADDRESS", {"EMAIL_ADDRESS"}),
        ("person", {"PERSON"}),
        ("starship", set()),
    ],
)
def test_labels_mean_recognizers(label, entities):
    assert set(entities_of(label)) == entities


def test_every_recognizer_has_a_label():
    assert set(RECOGNIZERS) <= set(PRESIDIO_LABELS)
    assert {"ES_NIF", "PL_PESEL"} <= set(entities_of("national id"))


def test_numbers_beyond_those_that_are_read_count_by_their_form():
    text = "call 030 1234567, " * 2500
    assert len(find(text, ["PHONE_NUMBER"])) == 2500
