"""Phone numbers. The package phonenumbers decides which are valid or possible in the regions of a request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from gliner_bento.privacy.recognizers.base import Match, Rule

ENTITY = "PHONE_NUMBER"
_MAX_CHECKED = 2_000
"""Maximum checks by phonenumbers in a text (30 us each, per region). Further numbers are judged by their form alone."""

_VALID, _POSSIBLE, _WEAK = 0.75, 0.5, 0.3
"""Scores of a valid number, of a text in the form of a phone number, and of digits that may also be something else."""

_WORDS = (
    "phone,phones,phone number,telephone,tel,mobile,cell,cellphone,fax,call,calls,called,dial,ring,text,sms,whatsapp,"
    "reach,contact,hotline,line,office,my number is,toll free,emergency,mobil,telefon,handy,büro,téléphone,portable,"
    "appelez,teléfono,móvil,llámame,llame,telefono,cellulare"
)
_RULE = Rule(
    ENTITY,
    r"(?<![^\W_])(?<!\+)(?:[+(]|(?<!\d[.:/ \-])\d)"  # does not continue a word, or a number with separators
    r"(?:[ ./()\-]{0,3}\d){6,16}(?: ?(?:x|ext\.?|extension|#) ?\d{1,6})?"  # digits, extension
    r"(?![^\W_]|@|[.:]\d)",  # not before a letter, a digit, @, decimals or minutes
    _POSSIBLE,
    _WORDS,
    flags=re.ASCII | re.IGNORECASE,
    is_outer=True,
)
RULES = (_RULE,)

_NORTH_AMERICAN = re.compile(r"(?:1[ .\-]?)?(?:\(\d{3}\) ?|\d{3}([ .\-]))\d{3}[ .\-]\d{4}")
_NO_PHONE = re.compile(
    r"\d{1,2}[./\- ]\d{1,2}[./\- ]\d{4}|\d{4}[./\-]\d\d?[./\-]\d\d?|\d{4}-\d{4}|\d+\.\d+"  # dates, years, decimals
    r"|\d{1,3}(?:\.\d{1,3}){3}|\d{3}[ .\-]\d\d[ .\-]\d{4}"  # IP addresses, social security numbers
)
_DECIMAL = re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")


_DIALED = re.compile(r"[+(]*[\d ./()\-]*(?: ?(?i:x|ext\.?|extension|#) ?\d{1,6})?")


def may_be_phone(text: str) -> bool:
    """Whether a text could be a phone number of any region: 7 to 15 digits, with or without separators; no date."""
    number = text.strip(" ()")
    without_extension = re.split("(?i)[xe#]", number, maxsplit=1)[0]
    digits = sum(map(str.isdigit, without_extension))
    return 7 <= digits <= 15 and bool(_DIALED.fullmatch(number)) and not _NO_PHONE.fullmatch(number)


def regions() -> Sequence[str]:
    """Codes of all regions."""
    return sorted(_library().SUPPORTED_REGIONS)


def _library() -> Any:
    """The package phonenumbers; importing it takes 50 ms."""
    return import_module("phonenumbers")


def is_valid(match: Match) -> bool:
    """Whether phonenumbers says that a phone number of `Phones` is valid."""
    return match.score >= _VALID


def needs_word(match: Match, text: str) -> bool:
    """Whether a phone number of `Phones` in a text counts only if a word such as "call" is near: digits alone."""
    return not is_valid(match) and text[match.start : match.end].isdigit()


def _is_row(number: str, digits: str) -> bool:
    """Whether a number is a row of a table: several decimals, or only zeros and ones."""
    return len(_DECIMAL.findall(number)) > 1 or not digits.strip("01")


class Phones:
    """Finds phone numbers. of_regions: regions whose numbers need no country code."""

    def __init__(self, of_regions: Sequence[str]) -> None:
        self._regions = of_regions
        self._checks_left = _MAX_CHECKED

    def matches(self, text: str, starts: Sequence[int]) -> Iterator[Match]:
        """The phone numbers in a text that is folded, in order. starts: where numbers begin in the text."""
        end = 0
        for start in starts:
            found = _RULE.regex.match(text, start) if start >= end else None
            if found and (scored := self._scored(found[0])):
                number, score = scored
                end = start + len(number)
                first = start + (number[0] == "(" and ")" not in number)  # behind a bracket of the sentence
                yield Match(first, end, ENTITY, score, _RULE, base=score, valid=True if score == _VALID else None)

    def _scored(self, matched: str) -> tuple[str, float] | None:
        """The phone number in a matched text, and its score; None if there is no phone number. Of two numbers with a
        slash between them, this is the first, unless both together are one valid number."""
        first = matched.partition(" / ")[0]
        for number in dict.fromkeys((matched, first)):
            score = self._score(number)
            if score == _VALID or (score and number == first):
                return number, score
        return None

    def _score(self, number: str) -> float:
        """The score of a number; 0 if it is no phone number."""
        without_extension = re.split("(?i)[xe#]", number, maxsplit=1)[0]
        digits = re.sub(r"\D", "", without_extension)
        if not 7 <= len(digits) <= 15 or _NO_PHONE.fullmatch(number.strip("()")) or _is_row(number, digits):
            return 0.0
        if number[0] == "+":
            return self._best(f"+{digits}", (None,)) or _POSSIBLE
        if digits.startswith("00"):  # as "+", before a country code
            return self._best(f"+{digits[2:]}", (None,)) if digits[2] != "0" else 0.0
        if not re.search(r"\d[ ./()\-]+\d", number):  # no separators
            return _WEAK if len(digits) >= 9 else 0.0
        north_american = _NORTH_AMERICAN.fullmatch(re.split("(?i) ?[xe#]", number, maxsplit=1)[0])
        if north_american or number[0] in "(0":  # separated like a phone number of a region
            return self._best(digits, self._regions)
        return _WEAK if len(digits) >= 10 or re.fullmatch(r"\d{3}[ .\-]\d{4}", number) else 0.0

    def _best(self, number: str, of_regions: Sequence[str | None]) -> float:
        """The best score of a number in one of the regions; 0 if it is neither valid nor possible in any of them."""
        if self._checks_left <= 0:
            return _POSSIBLE
        self._checks_left -= 1
        library, best = _library(), 0.0
        for region in of_regions:
            try:
                parsed = library.parse(number, region)
            except library.NumberParseException:
                continue
            if library.is_valid_number(parsed):
                return _VALID
            if library.is_possible_number(parsed):
                best = _POSSIBLE
        return best
