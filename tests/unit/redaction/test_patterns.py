"""Pattern rules: published numbers are found, their neighbours with a wrong check digit are not."""

from __future__ import annotations

import pytest

from gliner_bento.redaction.patterns import find_patterns, is_card, is_iban, passes_luhn


def found(text: str) -> list[tuple[str, str]]:
    return [(span.label, text[span.start : span.end]) for span in find_patterns(text)]


@pytest.mark.parametrize("digits", ["79927398713", "4111111111111111", "378282246310005", "6011111111111117"])
def test_luhn(digits):
    assert passes_luhn(digits)
    for digit in range(1, 10):
        assert not passes_luhn(digits[:-1] + str((int(digits[-1]) + digit) % 10))


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
    assert is_iban(iban)
    assert found(f"IBAN: {iban}, thanks") == [("iban", iban)]
    assert found(f"Pay {iban} by Friday") == [("iban", iban)]
    wrong = iban[:-1] + ("1" if iban[-1] != "1" else "2")
    assert not is_iban(wrong)
    assert ("iban", wrong) not in found(wrong)


@pytest.mark.parametrize("card", ["4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005"])
def test_cards(card):
    assert is_card(card)
    assert found(f"card {card}.") == [("credit card number", card)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to ada.l+x@mail.example.co.uk.", [("email address", "ada.l+x@mail.example.co.uk")]),
        ("<jörg@müller.example>", [("email address", "jörg@müller.example")]),
        ("a@b, @user, x@y.1", []),
        ("call +44 20 7946 0958 now", [("phone number", "+44 20 7946 0958")]),
        ("call (555) 010-9999", [("phone number", "(555) 010-9999")]),
        ("call 555-010-9999, or 030/1234567", [("phone number", "555-010-9999"), ("phone number", "030/1234567")]),
        ("on 01.02.2023, 2023-01-02, version 1.2.3.4, 1234567 pieces", []),
        ("4111 1111 1111 1112", []),
        ("mail +4915112345678@sms.example", [("email address", "+4915112345678@sms.example")]),
    ],
)
def test_rules(text, expected):
    assert found(text) == expected


def test_long_runs_take_linear_time():
    """A hang here is a regular expression that backtracks."""
    for unit in ("a@", "1 ", "a.", "DE89 ", "+1-", "(0", "a" * 64):
        find_patterns(unit * (100_000 // len(unit)))
