"""Finds the words near a number, and codes that are recognized only by the word before them."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gliner_bento.privacy.recognizers.base import AFTER, CONTEXT_SCORE, Match, Rule
from gliner_bento.privacy.recognizers.folding import folded

_NEAR_CHARS = 60
"""Maximum number of characters between the end of a word and a number that it is near."""
_PART_CHARS = 8192
"""Characters that one call of `re` searches. They are few, because other threads cannot run meanwhile."""

_MONTH = (  # also German, Dutch, French, Spanish, Italian and Portuguese
    r"(?:jan|gen|ene|feb|f[eé]v|mar|mär|mrt|maa|apr|avr|abr|may|mai|mag|mei|jun|juin|giu|jul|juil|lug|aug|ao[uû]|ago|"
    r"sep|set|oct|okt|ott|out|nov|dec|d[eé]c|dez|dic)[^\W\d_]{0,7}\.?"
)
_DATE = (
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/. ]\d{{1,2}}[-/. ](?:\d{{4}}|\d\d)|"
    rf"\d{{1,2}}(?:st|nd|rd|th|er|[.º°])?(?: of| de)?[ -]{_MONTH},?(?: del?)?[ -]\d{{4}}|"
    rf"{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
)
_CODE = r"(?=(?:[^\d\s]{0,6}\d){4})[A-Za-z]{0,6}[-#/*]?\d[A-Za-z\d]*(?:(?:[-/]|\*{1,4})[A-Za-z\d]+)*"
_STATE_LICENSE = (
    r"[A-Z]{1,2}\d{4,14}[A-Z]?|\d{2}[A-Z]{3}\d{5,6}|\d{3}[A-Z]{2}\d{4}|\d{7,9}[A-Z]{1,2}|[A-Z]\d{3}(?:-\d{2,4}){2,4}"
)
_UK_LICENCE = (  # surname, year of birth, month (women: + 50), day, year, initials, with or without spaces
    r"(?:[A-Z]{5}|[A-Z]{4}9|[A-Z]{3}99|[A-Z]{2}999|[A-Z]9999)[ \-]?\d(?:[05][1-9]|[16][0-2])(?:0[1-9]|[12]\d|3[01])\d"
    r"[ \-]?[A-Z][A-Z9] ?[A-Z\d]{3}"
)

_GAP = (
    r"(?:[\s:=#.,(\[\"'/*_은는이가号码是为-]|\b(?:numbers?|no|nr|num|n[o°º]|numéro|n[uú]mero|nummer|numarası|ids?|code|cards?|is|was|are|the|of|on|file|for|under|my|his|her|"
    r"their|your|our|us|as|with|holder|account|patient|policy|issued|reads|am|le|el|il|em|op|den|date|has|es|est|ist)\b)"
)
"""What may be between a word and its code."""
_GAP_CHARS = 40
_ACRONYM_CHARS = 4
"""Maximum length of words that may be acronyms."""
_CODE_CHARS = 200
"""Maximum length of a code. Longer ones are not matched, not even in part."""

_PASSPORT = "passport,passport number,passport no,passport#"
_LICENSE = (
    "driver's license,driver license,driving license,driver's licence,driver licence,driving licence,dl,dl number,"
    "dl no,license number,licence number,license no,licence no"
)

RULES = tuple(
    Rule(entity, f"(?:{pattern}){AFTER}", 0.0, words, flags=re.IGNORECASE)
    for entity, pattern, words in (
        (
            "DATE_OF_BIRTH",
            _DATE,
            "date of birth,dob,birth date,birthdate,birthday,born,geboren,geb,geburtsdatum,née,né,nacido,nacida,"
            "nascita,naissance,nacimiento,nato,nata,nascido,nascida,nascimento,geboortedatum",
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
        ("US_PASSPORT", r"[A-Z]{0,2}\d{6,9}", _PASSPORT),
        ("UK_PASSPORT", r"[A-Z]{2}\d{7}|\d{9}", _PASSPORT),
        ("IN_PASSPORT", r"[A-Z]\d{2} ?\d{5}", _PASSPORT),
        ("UK_DRIVING_LICENCE", _UK_LICENCE, _LICENSE + ",driver number,dvla,license,licence"),
        ("US_DRIVER_LICENSE", _CODE, _LICENSE),
        ("US_DRIVER_LICENSE", _STATE_LICENSE, "license,licence"),
    )
)
"""Rules of codes without a check digit: their `score` is 0."""

SCORE = 0.6
"""The score of a code right after its word."""
OUTSIDE = _NEAR_CHARS + 1
"""The distance of a word that is not in the text."""


def named(match: Match, word: str, distance: int) -> Match:
    """The match of a code, with the score that its word gives it."""
    return match._replace(score=SCORE, base=SCORE - CONTEXT_SCORE, word=word, valid=None, distance=distance)


class FoldedWords:
    """Where the words of `rules` are in a folded text, with or without their spaces, dashes, apostrophes, and a plural
    "s".

    starts: where numbers begin in the text. context: words from outside the text, which count as near every match.
    """

    def __init__(self, rules: Iterable[Rule], text: str, starts: Sequence[int], context: Iterable[str] = ()) -> None:
        self._text = text
        self._words_of_rule: dict[int, list[tuple[int, int, str]]] = {}  # by id of a rule: end, start, word, in order
        index = _index_of(tuple((id(rule), rule.words) for rule in rules))
        self._rule_ids = index.rule_ids
        joined = " ".join(context).lower()
        self._outside = {rule_id: word for word, rule_id in reversed(index.words) if word in joined} if joined else {}
        if index.words:
            self._find(index.regex, starts)

    def _find(self, regex: re.Pattern[str], starts: Sequence[int]) -> None:
        """Find the words that are shortly before a number."""
        end = 0
        for part_start, part_end in _parts_before(starts):
            for found in regex.finditer(self._text, part_start, part_end):
                if found.end() <= end:  # parts may overlap
                    continue
                end = found.end()
                for rule_id in self._rule_ids.get(_plain(found[1]), ()):
                    self._words_of_rule.setdefault(rule_id, []).append((found.end(), found.start(), found[0]))

    def has(self, rule: Rule) -> bool:
        """Whether a word of the rule is in the text or in `context`."""
        return id(rule) in self._words_of_rule or id(rule) in self._outside

    def outside(self, rule: Rule) -> str:
        """A word of the rule that is in `context`; empty if there is none."""
        return self._outside.get(id(rule), "")

    def near(self, rule: Rule, start: int) -> tuple[str, int]:
        """The last word of the rule shortly before a match at `start`, and the characters between them, without those
        that may be between a word and its code; else a word in `context`; else the empty string."""
        words = self._words_of_rule.get(id(rule), ())
        last = bisect_right(words, (start, start, "")) - 1  # of the words that end at or before `start`
        if last >= 0 and words[last][0] >= start - _NEAR_CHARS:
            return words[last][2], max(0, start - self._skip_gap(words[last][0]))
        return self.outside(rule), OUTSIDE

    def behind(self, rule: Rule) -> Iterator[Match]:
        """The codes of a rule that follow its words, with nothing but `_GAP` between them; and codes of the same form
        that are listed after such a code."""
        for end, _, word in self._words_of_rule.get(id(rule), ()):
            match = self._code(rule, self._skip_gap(end))
            form = match and self._form(match)
            while match and self._form(match) == form:
                yield named(match, word, 0)
                listed = _LISTED.match(self._text, match.end, match.end + _GAP_CHARS)
                match = self._code(rule, listed.end()) if listed else None

    def _skip_gap(self, end: int) -> int:
        gap = _GAP_REGEX.match(self._text, end, end + _GAP_CHARS)
        return gap.end() if gap else end

    def _code(self, rule: Rule, start: int) -> Match | None:
        """The code of a rule that begins at `start`."""
        found = rule.regex.match(self._text, start, start + 2 * _CODE_CHARS)  # more, so that a longer code is not cut
        return rule.of(found) if found and found.end() - start <= _CODE_CHARS else None

    def _form(self, match: Match) -> str:
        return re.sub("[^\\W\\d_]", "a", re.sub("[0-9]", "0", self._text[match.start : match.end]))


_GAP_REGEX = re.compile(f"{_GAP}*", re.IGNORECASE)
_LISTED = re.compile(r"\s*(?:[,;/&]|and|or|und|oder|et|ou|y|o|e)\s*", re.IGNORECASE)


_NO_SPACES = "[\u0e00-\u0e7f\u2e80-\ud7ff\uf900-\ufaff]"
"""Characters of languages that write no space between words, or endings right behind them: Thai, Chinese, Korean."""
_WHOLE_WORD = rf"(?:(?<![^\W_])|(?={_NO_SPACES}))({{}})(?:s?(?![^\W_])|(?<={_NO_SPACES}))"


def _plain(word: str) -> str:
    """The word in lower case, without accents, spaces, dashes and points."""
    return re.sub(r"[\s._\-'’]", "", folded(unicodedata.normalize("NFD", word.lower())).text)


def _spelled(words: str) -> str:
    """A regular expression for a word or several. An acronym may have points: N.I.F."""
    parts = (
        r"\.?".join(part) if part.isalpha() and len(part) <= _ACRONYM_CHARS else re.escape(part).replace("'", "['’]?")
        for part in re.split("[ -]", words)
    )
    return r"[\s._\-]{0,2}".join(parts)


@dataclass(frozen=True)
class _Index:
    """The words of some rules. words: each with the id of its rule. rule_ids: by word, as `_plain` returns it.
    regex: of the longest word at a position, which is its first group."""

    words: Sequence[tuple[str, int]]
    rule_ids: Mapping[str, set[int]]
    regex: re.Pattern[str]


@lru_cache(maxsize=64)
def _index_of(rules: tuple[tuple[int, str], ...]) -> _Index:
    """rules: the id and the words of each."""
    words = [(word, rule_id) for rule_id, listed in rules for word in filter(None, listed.split(","))]
    rule_ids: dict[str, set[int]] = {}
    for word, rule_id in words:
        rule_ids.setdefault(_plain(word), set()).add(rule_id)
    read = {folded(spelled).text for word, _ in words for spelled in (word, unicodedata.normalize("NFD", word))}
    by_char: dict[str, list[str]] = {}  # by their first character, so that few are tried
    for word in sorted(read, key=len, reverse=True):
        by_char.setdefault(word[0], []).append(_spelled(word))
    any_word = "|".join(f"(?={re.escape(char)})(?:{'|'.join(spelled)})" for char, spelled in by_char.items())
    return _Index(words, rule_ids, re.compile(_WHOLE_WORD.format(any_word), re.IGNORECASE))


def _parts_before(starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[start, end) of the parts of a text that are shortly before numbers, each at most about `_PART_CHARS` long."""
    begin = end = 0
    for start in starts:
        if start - _NEAR_CHARS > end or end - begin > _PART_CHARS:
            yield begin, end
            begin = max(0, start - _NEAR_CHARS)
        end = start
    yield begin, end
