"""Numbers of cards and bank accounts, by their check digits, lengths and first digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from gliner_bento.privacy.recognizers.base import Rule, number, stdnum_check

_CARD = re.compile(
    r"4(\d{12}|\d{15}|\d{18})|(5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3(0[0-59]|[689]\d)\d{11,16}|35\d{14,17}"
    r"|(5[06-8]\d|6\d\d)\d{10,16}|9792\d{12}|1\d{14}"
)
"""First digits and lengths of the brands: Visa, Mastercard, American Express, Diners, JCB, Maestro and the like, Troy,
UATP."""
_GAPS = str.maketrans("", "", " .-")
_DIGIT = re.compile("[0-9]")
_USUAL = re.compile(r"\d+|\d{4}([ .\-])(?:\d{4}\1){2,3}\d{1,4}|\d{4}([ .\-])\d{6}\2\d{4,5}|\d(?:([ .\-])\d)(?:\3\d)*")
"""Usual groups of a card's digits: one, of four, 4-6-4, 4-6-5, or all digits apart."""
_LUHN = bytes.maketrans(b"0123456789", bytes([0, 2, 4, 6, 8, 1, 3, 5, 7, 9]))
"""What each second digit adds to the Luhn sum: the sum of the digits of its double."""


_USUAL_START = r"(?=\d{13}|\d{4}([ .\-])(?:\d{4}\1){2}\d|\d{4}([ .\-])\d{6}\2\d{4}|\d([ .\-])(?:\d\3){11}\d)"
"""The first 13 digits in usual groups."""


def _card(match: re.Match[str]) -> tuple[int, int] | None:
    """The longest card number at the beginning of a match, which may run into other numbers."""
    return next(((start, end) for start, end, usual in _cards(match) if usual), None)


def _regrouped_card(match: re.Match[str]) -> tuple[int, int] | None:
    """The longest card number at the beginning of a match, if its digits are not grouped as usual."""
    return next(((start, end) for start, end, usual in _cards(match) if not usual), None)


def _cards(match: re.Match[str]) -> Iterator[tuple[int, int, bool]]:
    """[start, end) of each card number at the beginning of a match, the longest first, and whether its digits are
    grouped as usual. Points are between usual groups only: 154.892304753225 is a decimal."""
    text, start, string = match[0], match.start(), match.string
    compact = text.translate(_GAPS)
    for digits in range(len(compact), 12, -1):
        if not _CARD.fullmatch(compact, 0, digits) or not _is_luhn(compact[:digits]):
            continue
        end = digits if len(compact) == len(text) else [*_DIGIT.finditer(text)][digits - 1].end()
        usual, is_grouped = bool(_USUAL.fullmatch(text, 0, end)), not text[:end].isdigit()
        around = string[max(0, start - 2) : start], string[start + end : start + end + 2]
        if around[1][:1].isalnum() or (_is_decimal(*around) and not (usual and is_grouped)):
            continue
        if usual or "." not in text[:end]:
            yield start, start + end, usual


def _is_luhn(digits: str) -> bool:
    ascii_digits = digits.encode()
    plain = sum(ascii_digits[::-2]) - ord("0") * len(ascii_digits[::-2])
    return (plain + sum(ascii_digits[-2::-2].translate(_LUHN))) % 10 == 0


def _is_decimal(before: str, after: str) -> bool:
    """Whether digits between these two characters are a part of a decimal."""
    return (before[-1:] == "." and before[:1].isdigit()) or (after[:1] == "." and after[1:].isdigit())


@cache
def _iban_chars(country: str) -> int:
    """Length of a country's IBANs; 0 if it has none."""
    numdb: Any = import_module("stdnum.numdb")
    [(found, facts), *_] = numdb.get("iban").info(country)
    if found != country or not facts:
        return 0
    # The format after country and check digits, such as 8!n10!n.
    return 4 + sum(map(int, re.findall(r"(\d+)!", facts["bban"])))


def _iban(match: re.Match[str]) -> tuple[int, int] | None:
    """The IBAN at the beginning of a match, which may run into the next words."""
    text = match[0]
    length = _iban_chars(text[:2].upper())
    indexes = [index for index, char in enumerate(text) if char not in " .-"]
    if not length or len(indexes) < length:
        return None
    end = indexes[length - 1] + 1
    if text[end : end + 1].isalnum() or not _is_iban(text[:end]):
        return None
    return match.start(), match.start() + end


def _is_iban(text: str) -> bool:
    module: Any = import_module("stdnum.iban")
    try:
        return bool(module.validate(text.replace(".", ""), check_country=False))
    except module.ValidationError:
        return False


_CARD_PATTERN = r"(?<![^\W_])(?<!\+){}[1-69](?:[ .\-]?\d){{12,18}}(?![^\W_])"
_CARD_WORDS = "card,cards,visa,mastercard,amex,cc"

RULES = (
    Rule("CREDIT_CARD", _CARD_PATTERN.format(_USUAL_START), 1.0, _CARD_WORDS, span=_card),
    Rule(
        "CREDIT_CARD",
        _CARD_PATTERN.format(r"(?!\d+(?![ \-]?\d))(?=[\d \-]{13})"),
        0.1,
        _CARD_WORDS,
        stdnum_check("luhn"),
        span=_regrouped_card,
    ),
    Rule("IBAN_CODE", r"(?<![^\W_])[A-Za-z]{2}\d{2}(?:[ .\-]?[A-Za-z0-9]){11,30}", 1.0, "iban", span=_iban),
    number("ABA_ROUTING_NUMBER", r"\d{9}|\d{4}-\d{4}-\d", "us.rtn", 0.05, "aba,routing,rtn,bank transit"),
)
