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
_DURATION = re.compile(rf"\d\s?-?\s?(?:{_UNITS})(?![^\W\d_])|(?<![^\W\d_])(?:{_UNITS}) \d", re.IGNORECASE)
_CALENDAR = re.compile(
    r"\d{4}"  # a year
    r"|\d{1,2}\s?[-/.]\s?\d{1,2}(?!\d)(?!\s?%)"
    r"|\d{1,2}(?:st|nd|rd|th|er|[.ºª])?(?: of| de)?[ -]?[^\W\d_]{3}"  # 3 May, 3rd of May, 3. Mai, 3 de mayo
    r"|[^\W\d_]{3}\.? \d{1,2}(?!\d)"  # May 3
    r"|\d[年月日년월일]"
)
_WORD = re.compile(r"[^\W\d_]{3}|[\u0e00-\u0e7f\u2e80-\ud7ff]")
_TITLE = re.compile(r"(?:mrs?|ms|miss|dr|prof|professor|sir|madam|herr|frau|mme|se[nñ]ora?)\.?", re.IGNORECASE)


def _is_date(text: str) -> bool:
    return _CALENDAR.search(text) is not None and _DURATION.search(text) is None


def _is_street_address(text: str) -> bool:
    return _WORD.search(text) is not None and any(map(str.isdigit, text))


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
