"""Whether what a model took for personal data can be some: for the labels that are redacted by default.

Durations, weekdays and times are no dates, results of measurements no addresses, and a title is no name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_UNITS = (
    r"(?:sec(?:ond)?|min(?:ute)?|h(?:ou)?r|hour|day|night|week|month|year|tag|stunde|woche|monat|jahr|jour|heure|"
    r"semaine|an|d[ií]a|hora|semana|mes|a[nñ]o)(?:s|n|e|en|es)?|mois"
)
_HAN_DIGITS = "一二三四五六七八九十〇零"
_NUMBER = r"(?<!\d)(?<!\d[-./,])(?:\d{1,3}(?:[.,]\d{3})+|\d{1,6}(?:[.,]\d)?)"
"""Not a part of 12.03.1985."""
_RANGE = r"(?<!\d)(?<!\d[-./,])\d{1,3}(?:[.,]\d)?\s?(?:[-–/]|to|or|and|bis|oder|und|à|ou|et|a|o|y)\s?\d{1,3}(?:[.,]\d)?"
_DURATION = re.compile(
    rf"(?:{_RANGE}|{_NUMBER})\s?-?\s?(?:{_UNITS})(?![^\W\d_])"  # 2 days, 2-3 days
    rf"|(?<![^\W\d_])(?:{_UNITS})\s(?=\d)",  # day 2: without the number, which may be of a date
    re.IGNORECASE,
)
_CALENDAR = re.compile(
    r"\d{4}"  # a year
    r"|\d{1,2}\s?[-/.]\s?\d{1,2}(?!\d)(?!\s?%)"
    r"|\d{1,2}(?:st|nd|rd|th|er|[.ºª])?(?: of| de)?[ -]?[^\W\d_]{3}"  # 3 May, 3rd of May, 3. Mai, 3 de mayo
    r"|[^\W\d_]{3}\.? \d{1,2}(?!\d)"  # May 3
    rf"|[\d{_HAN_DIGITS}][年月日년월일]"
)
_WORD = re.compile(r"[^\W\d_]{3}|[\u0e00-\u0e7f\u2e80-\ud7ff]")
_TITLE = re.compile(r"(?:mrs?|ms|miss|dr|prof|professor|sir|madam|herr|frau|mme|se[nñ]ora?)\.?", re.IGNORECASE)


def _is_date(text: str) -> bool:
    return _CALENDAR.search(_DURATION.sub(" ", text)) is not None


def _is_street_address(text: str) -> bool:
    return _WORD.search(text) is not None and any(char.isdigit() or char in _HAN_DIGITS for char in text)


def _is_name(text: str) -> bool:
    return _TITLE.fullmatch(text.strip()) is None


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "date": _is_date,
    "street address": _is_street_address,
    "person": _is_name,
}


def is_plausible(text: str, label: str) -> bool:
    """Whether a text can be what its label says; True for a label without a check."""
    check = _CHECKS.get(label)
    return check is None or check(text)
