"""Whether what a model took for personal data can be some: for the labels that are redacted by default.

Durations, weekdays and times are no dates, results of measurements no addresses, ages and the numbers of orders no id
numbers, cities no personal data where nobody is mentioned, and diseases are not their discoverers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gliner_bento.privacy.name_words import NO_SURNAMES, WORD_NAMES, has_role, is_capitalised, is_particle, words_of
from gliner_bento.privacy.spans import LabeledSpan

SURE = 0.5
"""A person with a lower score needs the form of a full name."""
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
_ONLY_YEARS = re.compile(r"(?:(?:19|20)\d\d|\d{1,3}/(?:19|20)\d\d)(?:\s?(?:[-–/]|to|and|bis)\s?(?:19|20)?\d\d)?")
"""Years, and numbers with the year, such as 55/2024. Months are 1 to 12: see `_is_date`."""
_MONTH_OF_YEAR = re.compile(r"(?:0?[1-9]|1[0-2])/(?:19|20)\d\d")
_BUSINESS_DATE = re.compile(
    r"(?:invoice|order|purchase|delivery|due|start|end|valid(?:ity)?(?: (?:from|until|to))?|expir(?:y|es|ation)|"
    r"issued?|posted|"
    r"published|effective|last updated|updated|created|modified|meeting|inspection|deadline|payment|arrival|"
    r"departure|check-?in|"
    r"check-?out|booking|available from|loss|release|version|closing|starts?|ends?)(?: date| on|"
    r" by)?[ \t]{0,4}[:=]?[ \t]{0,6}\Z"
    r"|(?:appointment|claim|order|letter|invoice|contract|agreement|complaint|application|course|meeting|requests?|"
    r"booking)(?: [^\W\d_]{1,10}){0,3} (?:on|of|by|from|dated|until) (?:the )?\Z",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(?:[T ]\d{1,2})?:\d\d:\d\d")
"""Behind a date: it is the time of a line in a log."""
_VERSION = re.compile(r"(?:version |release |v ?)?\d{1,2}\.\d{1,2}(?:\.\d)?|(?:version|release) .*", re.IGNORECASE)
_MONTH_AND_YEAR = re.compile(r"[^\W\d_]{3,12}\.? (?:19|20)\d\d")
_PERSONAL_EVENT = re.compile(
    r"(?<![^\W_])(?:born|birth|dob|admi\w*|diagnos\w*|seen|surg\w*|operat\w*|discharg\w*|records?|visit\w*|hospital\w*|clinic|"
    r"treat\w*|"
    r"died|death|married|inject\w*|vaccin\w*|geb\w*|n[ée]e?|nacid[oa]|nat[oa])(?![^\W_])",
    re.IGNORECASE,
)
"""Before a month with its year, which alone says little."""
_WORD = re.compile(r"[^\W\d_]{3}|[\u0e00-\u0e7f\u2e80-\ud7ff]")
_PLACE_OR_THING = re.compile(
    r"(?:the )?(?:model|room|line|seat|row|desk|flight|release|version|step|page|table|figure|chapter|section|exit|"
    r"gate|"
    r"platform|class|grade|level|type|lot|item|part|stage|phase|bed|bay|port|node|day|week|order|warehouse|elevator|"
    r"lift|cvv|sku|ean|upc|isbn|"
    r"hall|track|lane|ward|zone|sector|unit|size|chapter|volume|number|no)\b(?!.*,)"
    r"|(?-i:[A-Z]{2,8})[ -]?[\d/-]{1,14}[A-Z]{0,2}\Z",
    re.IGNORECASE,
)
_BUSINESS_NUMBER = re.compile(
    r"(?:invoice|order|tracking|shipment|serial|ticket|issue|pull request|pr|bug|part|item|model|sku|ean|upc|isbn|"
    r"doi|version|release|"
    r"build|batch|lot|po|purchase order|reference|ref|receipt|flight|room|line|port|code|error|step|page|chapter|"
    r"section|size|"
    r"subtotal|total|amount|price|qty|quantity|balance|invoice reference|age|aged|score|scale|grade|level|phase|"
    r"stage|vat rate)"
    r"[\"']?(?:[ _-]?(?:no|nr|num|number|id|code))?\.?[\"']?[ \t]{0,4}[:=#]{0,2}[ \t]{0,4}[A-Z]{0,3}[ -]?#?\Z",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    r"[$€£¥]?\s?\d{1,3}(?:[,.' ]\d{3})*(?:[.,]\d{1,2})?\s?(?:%|[$€£¥]|[A-Z]{3}|mg|ml|kg|g|cm|mm|km|m|l|°.?)?"
)
_UNIT_BEHIND = re.compile(
    r"\s?(?:%|°|€|\$|£|(?:mg|mcg|µg|ml|mm|cm|km|kg|lbs?|eur|usd|gbp|chf|years?|yrs?|y/?o|months?|weeks?|days?|"
    r"hours?|minutes?|"
    r"pieces|pcs|tablets|puffs|units|items|texts|lines|bytes|percent)(?![^\W_]))",
    re.IGNORECASE,
)
_FOR = re.compile(
    r"(?<![^\W_])(?:for|by|with|patient|pt|client|regarding|re:|attn:?|c/o|mr\.?|mrs\.?|ms\.?|dr\.?) \Z", re.IGNORECASE
)
_MIN_DIGITS = 4
_TITLE = re.compile(r"(?:mrs?|ms|miss|dr|prof|professor|sir|madam|herr|frau|mme|se[nñ]ora?)\.?", re.IGNORECASE)
_EPONYM = re.compile(
    r"(?:['’]s?)?[ ](?:(?:[A-Z][a-z]{2,15}|coma) )?(?:[Ss]cale|scale|catheter|cyst|man(?:o?eu)vre|maneuver|"
    r"formula|criteria|classification|"
    r"contracture|palsy|gangrene|lymphoma|thyroiditis|ulcerative|phenomenon|esophagus|oesophagus|rings?|stain|"
    r"lactate|procedure|recording|"
    r"monitor|tube|score|staging|system|sign|reflex|nodes?|tumou?r|sarcoma|fracture|infusion|drip|theorem|equation|"
    r"distribution|effect|"
    r"process|angle|tremor|chorea|encephalopathy|anemia|anaemia|purpura|test)(?![^\W_])",
)
_POSSESSIVE_TESTS = re.compile(
    r"['’]s?[ ](?:score|test|sign|system|tube|procedure|recording|process|effect|fracture|tumou?r|infusion|drip|angle)"
)
"""May be of a patient: `Ann's test`."""
_IS_DISEASE = re.compile(r"[ ](?:disease|syndrome)(?![^\W_])")
_ELEMENT = re.compile(r"</?\Z")
_RESIDENCE = re.compile(
    r"(?:live[sd]?|living|resid\w+|from|born|based|home|mov(?:ed?|ing) (?:to|from)|address\w*|stay\w*|grew up|"
    r"hometown|native|relocat\w+|"
    r"city|town|zip|state|county|place|clinic|hospital|wohn\w+|habit\w+|viv\w+|\d{5}|born in)(?![^\W_])",
    re.IGNORECASE,
)
_PLACE_WORD = re.compile(
    r"(?:nach|von|bei|aus|à|en|de|a|da|em|naar|uit|till|från|til|fra|in|to|near|of|over|through|across|around|at|"
    r"via|visit(?:ed|s)?|towards?|between|and|the|outside|,)[ ]\Z",
    re.IGNORECASE,
)
_DAY = re.compile(r"(?:mon|tues?|wed|thu|thur|thurs|fri|sat|sun)(?:day)?\.?", re.IGNORECASE)
_TRAVEL = re.compile(
    r"(?:fl(?:ew|y|ies|ights?)|flying|went|go(?:es|ing)?|travel\w*|trips?|dr(?:ove|ive|iving)|trains?|holidays?|"
    r"vacations?|tour\w*|"
    r"bridges|museums?|streets|capital|river|university|battle|treaty) (?:to|in|from|of|through) \Z",
    re.IGNORECASE,
)
"""Before a place where somebody is for a while."""
_PLACE_BEHIND = re.compile(r"(?:,? and |, )[A-Z]|[ ](?:is|are|was|were|has|have|remain|county|coma|score)(?![^\W_])")
_NEAR = 60


def is_plausible(text: str, span: LabeledSpan, *, mentions_somebody: bool = True, sure: float = SURE) -> bool:
    """Whether a span of a text can be what its label says; True for a label without a check.

    mentions_somebody: whether the text has other personal data, or is about its writer. sure: a person with a lower
    score needs the form of a full name.
    """
    check = _CHECKS.get(span.label)
    if check is None:
        return True
    context = _Context(text, span, mentions_somebody, sure)
    return check(context)


class _Context:
    """A span and what is around it on the same line."""

    def __init__(self, text: str, span: LabeledSpan, mentions_somebody: bool, sure: float) -> None:
        self.whole, self.span, self.mentions_somebody, self.sure = text, span, mentions_somebody, sure
        self.text = text[span.start : span.end]
        self.before = text[max(0, span.start - _NEAR) : span.start].rpartition("\n")[2]
        self.behind = text[span.end : span.end + _NEAR].partition("\n")[0]


def _is_date(context: _Context) -> bool:
    text = context.text.strip()
    if _ONLY_YEARS.fullmatch(text) and not _MONTH_OF_YEAR.fullmatch(text) and not _is_of_birth(context):
        return False
    if _BUSINESS_DATE.search(context.before) or _CLOCK.match(context.behind) or _VERSION.fullmatch(text):
        return False
    if _MONTH_AND_YEAR.fullmatch(text) and not _PERSONAL_EVENT.search(context.before):
        return False
    return _CALENDAR.search(_DURATION.sub(" ", text)) is not None


def _is_of_birth(context: _Context) -> bool:
    return re.search(r"(?<![^\W_])(?:born|birth|dob|geb|née?|nacid|nat[oa])", context.before, re.IGNORECASE) is not None


def is_misread_person(text: str, span: LabeledSpan) -> bool:
    """Whether what a model took for an address has the form of a full name, behind a word such as "for"."""
    context = _Context(text, span, mentions_somebody=True, sure=SURE)
    is_read = span.label in ("street address", "city") and _FOR.search(context.before) is not None
    return is_read and _is_full_name(context) and not any(word.lower() in NO_SURNAMES for word in context.text.split())


def _is_street_address(context: _Context) -> bool:
    text = context.text
    has_number = any(char.isdigit() or char in _HAN_DIGITS for char in text)
    return _WORD.search(text) is not None and has_number and not _PLACE_OR_THING.match(text)


def _is_id_number(context: _Context) -> bool:
    text = context.text.strip()
    digits = sum(map(str.isdigit, text))
    if digits < _MIN_DIGITS or _BUSINESS_NUMBER.search(context.before) or _UNIT_BEHIND.match(context.behind):
        return False
    return _AMOUNT.fullmatch(text) is None or text.isdigit()


def _is_person(context: _Context) -> bool:
    text, words = context.text.strip(), context.text.split()
    if not words or _TITLE.fullmatch(text) or _ELEMENT.search(context.before) or _is_heading(context):
        return False
    has_no_capitals = text.islower()
    if has_no_capitals and context.whole != context.whole.lower():
        is_word = all(
            word.strip("'’s.,").rstrip("s") in WORD_NAMES or word in WORD_NAMES or word in _WORDS for word in words
        )
        if is_word or context.span.score < 0.7:
            return False
    if _is_eponym(context):
        return False
    return context.span.score >= context.sure or _is_full_name(context)


_WORDS = words_of("power dean doctor patient mother father nurse teacher man woman boy girl driver")


def _is_heading(context: _Context) -> bool:
    """Whether a text is one word in capitals at the beginning of a line, in a text that is not in capitals."""
    text = context.text.strip()
    return text.isalpha() and text.isupper() and len(text) > 3 and not context.before and not context.whole.isupper()


def _is_full_name(context: _Context) -> bool:
    """Whether a text has the form of a full name."""
    words = context.text.split()
    return (
        2 <= len(words) <= 5
        and "\n" not in context.text
        and any(len(word) > 2 for word in words)
        and all(
            (word[:1].isupper() and word[1:2] != ".") or is_particle(word) or re.fullmatch(r"[A-Z]\.", word)
            for word in words
        )
        and not has_role(" ".join(words))
        and not any(char.isdigit() for word in words for char in word)
    )


def _is_eponym(context: _Context) -> bool:
    """Whether a name is that of a disease, a score or a device."""
    if re.search(rf"(?:{_TITLE.pattern})[ ]\Z", context.before, re.IGNORECASE) or len(context.text.split()) > 1:
        return False
    if _IS_DISEASE.match(context.behind):
        return True
    return _EPONYM.match(context.behind) is not None and _POSSESSIVE_TESTS.match(context.behind) is None


def _is_city(context: _Context) -> bool:
    if _is_eponym(context):
        return False
    if _DAY.fullmatch(context.text) or _TRAVEL.search(context.before):
        return False
    if context.mentions_somebody or not is_capitalised(context.text):
        return True
    if _RESIDENCE.search(context.before) or _RESIDENCE.search(context.behind):
        return True
    return not (_PLACE_WORD.search(context.before) or _PLACE_BEHIND.match(context.behind))


_CHECKS: Mapping[str, Callable[[_Context], bool]] = {
    "date": _is_date,
    "street address": _is_street_address,
    "person": _is_person,
    "city": _is_city,
    "id number": _is_id_number,
}
