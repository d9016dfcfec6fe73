"""Finds the words near a number, and codes that are recognized only by the word before them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from gliner_bento.recognizers.base import AFTER, CONTEXT_SCORE, PIECE_CHARS, Match, Rule

_NEAR_CHARS = 60
"""Maximum number of characters between the end of a word and a number that it is near."""

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DATE = (
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/. ]\d{{1,2}}[-/. ](?:\d{{4}}|\d\d)|"
    rf"\d{{1,2}}(?:st|nd|rd|th)?(?: of)?[ -]{_MONTH},?[ -]\d{{4}}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
)
_CODE = r"(?=(?:[^\d\s]{0,6}\d){4})[A-Za-z]{0,6}[-#/]?\d[A-Za-z\d]*(?:[-/][A-Za-z\d]+)*"

_GAP = (
    r"(?:[\s:=#.,(\[\"'/*-]|\b(?:numbers?|no|nr|num|n[o°º]|ids?|code|cards?|is|was|are|the|of|on|file|for|under|my|his|her|"
    r"their|your|our|us|as|with|holder|account|patient|policy|issued|reads|am|le|el|den|date|has)\b)"
)
"""What may be between a word and its code."""
_GAP_CHARS = 40
_CODE_CHARS = 200
"""Maximum length of a code. Longer ones are not matched, not even in part."""

RULES = tuple(
    Rule(entity, f"(?:{pattern}){AFTER}", 0.0, words, flags=re.IGNORECASE)
    for entity, pattern, words in (
        (
            "DATE_OF_BIRTH",
            _DATE,
            "date of birth,dob,d.o.b,birth date,birthdate,birthday,born,geboren,geb,geburtsdatum,née,né,nacido,nacida,"
            "nascita,naissance,nacimiento",
        ),
        (
            "MEDICAL_RECORD_NUMBER",
            _CODE,
            "medical record,medical records,mrn,patient id,patient number,patient no,chart number,chart no,"
            "hospital number,health record",
        ),
        (
            "US_HEALTH_INSURANCE_MEMBER_ID",
            _CODE,
            "insurance,health insurance,health plan,insurance id,insurance number,insurance policy,member id,"
            "member number,membership number,policy,policy number,policy no,subscriber,subscriber id,beneficiary,"
            "medicaid,medicare",
        ),
        (
            "US_BANK_NUMBER",
            r"\d(?:[ -]?\d){5,16}",
            "account,accounts,account number,account no,acct,a/c,bank account,checking account,savings account",
        ),
        ("US_PASSPORT", r"[A-Z]{0,2}\d{6,9}", "passport,passport number,passport no,passport#"),
        ("UK_PASSPORT", r"[A-Z]{2}\d{7}|\d{9}", "passport,passport number,passport no,passport#"),
        ("IN_PASSPORT", r"[A-Z]\d{7}", "passport,passport number,passport no,passport#"),
        (
            "US_DRIVER_LICENSE",
            _CODE,
            "driver's license,drivers license,driver license,driving licence,driver's licence,driving license,dl,"
            "license number,licence number,license no",
        ),
        (
            "UK_DRIVING_LICENCE",
            r"[A-Z9]{5}\d{6}[A-Z9]{2}[A-Z\d]{3}",
            "driving licence,driver's licence,licence number,driver number",
        ),
    )
)
"""Rules of codes without a check digit: their `score` is 0."""

SCORE = 0.6
"""The score of a code right after its word."""


class FoldedWords:
    """Where the words of `rules` are in a folded text.

    starts: where numbers begin in the text. context: words from outside the text, which count as near every match.
    """

    def __init__(self, rules: Iterable[Rule], text: str, starts: Sequence[int], context: Iterable[str] = ()) -> None:
        self._rule_ids: dict[str, set[int]] = {}  # by word: ids of the rules that have it
        self._words_of_rule: dict[int, list[tuple[int, int, str]]] = {}  # by id of a rule: end, start, word, in order
        for rule in rules:
            for word in filter(None, rule.words.split(",")):
                self._rule_ids.setdefault(word, set()).add(id(rule))
        joined = " ".join(context).lower()
        self._in_context = {word: rule_ids for word, rule_ids in self._rule_ids.items() if word in joined}
        if self._rule_ids:
            self._find(text, starts)

    def _find(self, text: str, starts: Sequence[int]) -> None:
        """Find the words that are shortly before a number."""
        regex = _regex_of(frozenset(self._rule_ids))
        end = 0
        for part_start, part_end in _parts_before(starts):
            for found in regex.finditer(text, part_start, part_end):
                if found.end() <= end:  # parts may overlap
                    continue
                end = found.end()
                for rule_id in self._rule_ids.get(found[0].lower(), ()):
                    self._words_of_rule.setdefault(rule_id, []).append((found.end(), found.start(), found[0]))

    def outside(self, rule: Rule) -> str:
        """A word of the rule that is in `context`; empty if there is none."""
        return next((word for word, rule_ids in self._in_context.items() if id(rule) in rule_ids), "")

    def near(self, rule: Rule, start: int) -> str:
        """The last word of the rule shortly before a match at `start`, else one that is in `context`, else empty."""
        words = self._words_of_rule.get(id(rule), ())
        last = bisect_right(words, (start, start, "")) - 1  # of the words that end at or before `start`
        if last >= 0 and words[last][0] >= start - _NEAR_CHARS:
            return words[last][2]
        return self.outside(rule)

    def behind(self, rule: Rule, text: str) -> Iterator[Match]:
        """The codes of a rule that follow its words, with nothing but `_GAP` between them."""
        for end, _, word in self._words_of_rule.get(id(rule), ()):
            gap = _GAP_REGEX.match(text, end, end + _GAP_CHARS)
            start = gap.end() if gap else end
            found = rule.regex.match(text, start, start + 2 * _CODE_CHARS)  # more, so that a longer code is not cut
            if found and found.end() - start <= _CODE_CHARS:
                yield Match(start, found.end(), rule.entity, SCORE, rule, SCORE - CONTEXT_SCORE, word)


_GAP_REGEX = re.compile(f"{_GAP}*", re.IGNORECASE)


@lru_cache(maxsize=64)
def _regex_of(words: frozenset[str]) -> re.Pattern[str]:
    """A regular expression for the longest of these words at a position."""
    listed = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.compile(rf"(?<![^\W_])(?:{listed})(?![^\W_])", re.IGNORECASE)


def _parts_before(starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[start, end) of the parts of a text that are shortly before numbers, each at most about `PIECE_CHARS` long."""
    begin = end = 0
    for start in starts:
        if start - _NEAR_CHARS > end or end - begin > PIECE_CHARS:
            yield begin, end
            begin = max(0, start - _NEAR_CHARS)
        end = start
    yield begin, end
