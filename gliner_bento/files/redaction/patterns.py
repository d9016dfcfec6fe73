"""Pattern rules: e-mail addresses, phone numbers, IBANs and card numbers, the last two by their checksums.

They read a folded text: any space, dash or digit of Unicode is an ASCII one, and invisible characters are left out.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gliner_bento.files.redaction.spans import Span, merged

_IBAN_CHARS = {
    **{"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29},
    **{"BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29},
    **{"ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28},
    **{"HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20},
    **{"LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19},
    **{"MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29},
    **{"PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24},
    **{"SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20},
    "YE": 30,
}
"""Length of an IBAN by country, as registered with SWIFT."""


def is_iban(text: str) -> bool:
    """Whether the text is an IBAN of ISO 13616: the country's length, and the check digits."""
    code = re.sub(r"[ \-]", "", text).upper()
    if _IBAN_CHARS.get(code[:2]) != len(code):
        return False
    return int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1


def _iban_at(match: re.Match[str]) -> int:
    """Characters of the IBAN at the beginning of the match, which may run into the next words; 0: none."""
    text = match[0]
    wanted = _IBAN_CHARS.get(text[:2].upper(), 0)
    seen = 0
    for position, char in enumerate(text):
        seen += char not in " -"
        if seen == wanted:
            code, after = text[: position + 1], text[position + 1 : position + 2]
            return len(code) if not after.isalnum() and is_iban(code) else 0
    return 0


def _card_at(match: re.Match[str]) -> int:
    """Characters of the longest card number at the beginning of the match, which may run into other numbers: 13 to 19
    digits, the last of which is the check digit of ISO/IEC 7812."""
    text = match[0]
    digits = end = checksum = other = 0  # other: of the Luhn sum where the next digit is the last
    for position, char in enumerate(text):
        if char.isdigit():
            digits += 1
            checksum, other = other + int(char), checksum + int(char) * 2 - 9 * (char > "4")
            if digits >= 13 and checksum % 10 == 0 and not text[position + 1 : position + 2].isdigit():
                end = position + 1
    return end


def _phone_at(match: re.Match[str]) -> int:
    """Characters of the match if it is international, or has a leading 0 or an area code; 7 to 15 digits; no date."""
    text = match[0]
    if not 7 <= sum(map(str.isdigit, text)) <= 15 or re.fullmatch(r"\d{2}[./\-]\d{2}[./\-]\d{4}", text):
        return 0
    return len(text) if text[0] in "+(0" or re.fullmatch(r"\d{3}[ .\-]\d{3}[ .\-]\d{4}", text) else 0


@dataclass(frozen=True, slots=True)
class _Rule:
    """chars: returns the length of what was found at the beginning of a match, 0 if nothing."""

    label: str
    pattern: re.Pattern[str]
    chars: Callable[[re.Match[str]], int]


_RULES = (
    _Rule(
        "email address",
        re.compile(
            r"(?<![\w.+\-])[\w.!#$%&'*+/=?^`{|}~\-]{1,64}@(?:[^\W_](?:[\w\-]{0,61}[^\W_])?\.)+[^\W\d_]{2,24}(?![^\W_])"
        ),
        lambda match: len(match[0]),
    ),
    _Rule("iban", re.compile(r"(?<![^\W_])[A-Za-z]{2}\d{2}(?:[ \-]?[A-Za-z0-9]){11,30}"), _iban_at),
    _Rule("credit card number", re.compile(r"(?<![^\W_])(?<!\+)[2-6](?:[ .\-]?\d){12,18}(?![^\W_])"), _card_at),
    _Rule(
        "phone number",
        re.compile(r"(?<![^\W_])(?<!\+)(?:\+|(?<!\d\.)[(\d])(?:[ ./()\-]{0,3}\d){6,15}(?![^\W_]|@)"),
        _phone_at,
    ),
)

PATTERN_LABELS = tuple(rule.label for rule in _RULES)
"""The labels of what the rules find."""


def find_patterns(text: str) -> list[Span]:
    """What the rules find, in order, without overlaps; of overlapping findings, the earlier rule's."""
    taken: list[Span] = []
    folded, places = _folded(text)
    for rule in _RULES:
        found = [span for span in _found(rule, folded) if _is_free(span, taken)]
        taken = merged([*taken, *found])
    return [Span(places[one.start], places[one.end - 1] + 1, one.label) for one in taken]


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """The text that the rules read, and where each of its characters is in `text`."""
    if text.isascii():
        return text, range(len(text))
    table = {ord(char): _fold(char) for char in set(text) if not char.isascii()}
    if "" not in table.values():
        return text.translate(table), range(len(text))
    return text.translate(table), [place for place, char in enumerate(text) if table.get(ord(char), char)]


def _fold(char: str) -> str:
    """One character, or none."""
    kind = unicodedata.category(char)
    if kind == "Cf" or "\ufe00" <= char <= "\ufe0f":  # format characters, variation selectors
        return ""
    if kind in ("Zs", "Pd") or char == "\u2212":
        return " " if kind == "Zs" else "-"
    if kind == "Nd":
        return str(unicodedata.decimal(char))
    plain = unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 else char


def _found(rule: _Rule, text: str) -> Iterator[Span]:
    position = 0
    while match := rule.pattern.search(text, position):
        chars = rule.chars(match)
        if chars:
            yield Span(match.start(), match.start() + chars, rule.label)
        position = match.start() + (chars or 1)


def _is_free(span: Span, taken: list[Span]) -> bool:
    """taken: in order, without overlaps."""
    following = bisect_right(taken, span.start, key=lambda one: one.end)
    return following == len(taken) or span.end <= taken[following].start
