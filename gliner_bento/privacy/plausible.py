"""Whether what a model took for personal data can be some: for the labels that are redacted by default.

Durations, weekdays and times are no dates, results of measurements no addresses, ages and the numbers of orders no id
numbers, cities no personal data where nobody is mentioned, and diseases are not their discoverers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gliner_bento.privacy.name_words import (
    MEDICAL,
    NO_SURNAMES,
    PERSON_VERBS,
    WORD_NAMES,
    has_role,
    is_capitalised,
    is_particle,
    words_of,
)
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
_TWO_NUMBERS, _MAX_MONTH = re.compile(r"(\d{1,2})\s?[-/.]\s?(\d{1,2})"), 12
_CALENDAR = re.compile(
    r"\d{4}"  # a year
    r"|\d{1,2}\s?[-/.]\s?\d{1,2}(?!\d)(?!\s?%)"
    r"|\d{1,2}(?:st|nd|rd|th|er|[.ºª])?(?: of| de)?[ -]?[^\W\d_]{3}"  # 3 May, 3rd of May, 3. Mai, 3 de mayo
    r"|[^\W\d_]{3}\.? \d{1,2}(?!\d|:\d)"  # May 3, but not Monday 09:20
    rf"|[\d{_HAN_DIGITS}][年月日년월일]"
)
_ONLY_YEARS = re.compile(r"(?:(?:1\d|20)\d\d|\d{1,3}/(?:19|20)\d\d)(?:\s?(?:[-–/]|to|and|bis)\s?(?:19|20)?\d\d)?")
"""Years, and numbers with the year, such as 55/2024. Months are 1 to 12: see `_is_date`."""
_MONTH_OF_YEAR = re.compile(r"(?:0?[1-9]|1[0-2])/(?:19|20)\d\d")
_BUSINESS_DATE = re.compile(
    r"(?<![^\W_])(?:(?:invoice|order|purchase|delivery|(?<!her )(?<!my )due|start|end|"
    r"valid(?:ity)?(?: (?:from|until|to))?|"
    r"expir(?:y|es|ation)|issued?|posted|published|effective|last updated|updated|created|modified|meeting|inspection|"
    r"deadline|payment|arrival|departure|check-?in|check-?out|booking|available from|date of loss|"
    r"loss(?= date)|release|version|closing|"
    r"starts?|ends?)(?: date| on| by)?[ \t]{0,4}[:=]?[ \t]{0,6}\Z"
    r"|(?:(?<![^\W_][ ])(?:from|to|until)|date of (?:incident|order|service|invoice))[ ]?:[ \t]{0,6}\Z"
    r"|(?:appointment|claim|order|letter|invoice|contract|agreement|complaint|application|course|meeting|requests?|"
    r"booking)(?: [^\W\d_]{1,10}){0,3} (?:on|of|by|from|dated|until) (?:the )?\Z)",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(?:[T ](?!00:00)\d{1,2})?:\d\d:\d\d")
"""Behind a date. Dates of birth have midnight, or the hour of it in another time zone."""
_LOGGED = re.compile(
    r"(?:\A(?:\[?(?-i:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?:?[ ])?|"
    r"(?<![^\W_])(?:time(?:stamp)?|ts|date|created|updated|at)[\"']?[ ]?[:=])[\[(<\"' \t]*\Z",
    re.IGNORECASE,
)
"""Before the date of a line in a log."""
_VERSION = re.compile(r"(?:(?:version |release |v ?)\d|\d{1,2}\.\d{1,2}\.\d(?!\d)).*", re.IGNORECASE)
_POINT = re.compile(r"\d{1,2}\.\d{1,2}")
_DAY_AND_MONTH = re.compile(r"(?:0?[1-9]|[12]\d|3[01])\.(?:0[1-9]|1[0-2])")
_VERSION_BEFORE = re.compile(
    r"(?<![^\W_])(?:version|release|v\.?|python|java|node|chapter|section|step|table|figure)[ ]?\Z", re.IGNORECASE
)
_MONTH_AND_YEAR = re.compile(r"[^\W\d_]{3,12}\.? (?:19|20)\d\d")
_PERSONAL_EVENT = re.compile(
    r"(?<![^\W_])(?:born|birth|dob|admi\w*|diagnos\w*|seen|surg\w*|operat\w*|discharg\w*|records?|visit\w*|hospital\w*|clinic|"
    r"treat\w*|"
    r"died|death|married|inject\w*|vaccin\w*|geb\w*|n[ée]e?|nacid[oa]|nat[oa])(?![^\W_])",
    re.IGNORECASE,
)
"""Before a month with its year, which alone says little."""
_BIRTH = (
    r"(?<![^\W_])(?:(?:born|birth\w*|d\.?o\.?b|geb(?:oren\w*|urts\w*)?|née?|nacid\w*|nacim\w*|nat[oa]|nascit\w*|nascim\w*|nascid\w*|naiss\w*|"
    r"geboor\w*|född\w*|født\w*|fød\w*|urodz\w*|naroz\w*|syntym\w*|рожд\w*|родил\w*|народ(?:ж|и)\w*|doğum\w*|died|death|"
    r"deceased|gest)(?![^\W_])|b\.(?= ))|生年月日|出生|생년월일|誕生"
)
_BORN = re.compile(rf"{_BIRTH}|[*†] ?\Z", re.IGNORECASE)
_BORN_BEHIND = re.compile(rf"[\s,;(|-]{{0,4}}(?:date of |year of )?(?:{_BIRTH})", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3}|[\u0e00-\u0e7f\u2e80-\ud7ff]")
_PLACE_OR_THING = re.compile(
    r"(?:the )?(?:model|room|line|seat|row|desk|flight|release|version|step|page|table|figure|chapter|section|exit|"
    r"gate|platform|class|grade|level|type|lot|item|part|stage|phase|bed|bay|port|node|day|week|order|warehouse|"
    r"elevator|lift|cvv|sku|ean|upc|isbn|hall|track|lane|ward|zone|sector|unit|size|volume|number|no)\b(?!.*,)"
    r"|(?!(?-i:[A-Z]{4,8}) \d{5}\Z)(?-i:[A-Z]{2,8})[ -]?[\d/-]{1,14}[A-Z]{0,2}\Z",
    re.IGNORECASE,
)
_STREET = re.compile(
    r"[ ](?:street|st|road|rd|avenue|ave|lane|drive|dr|court|ct|close|way|terrace|place|square|sq|boulevard|blvd|"
    r"crescent|grove|gardens|mews|quay|row|green|view|rise|walk|house|park|estate|parkway|highway|hwy|hill)(?![^\W_])"
    r"|(?<![^\W_])(?:rue|calle|via|viale|avenida|rua|ulica|ul\.)[ ]"
    r"|(?:straße|strasse|str\.?|gasse|allee|platz|weg|damm|ufer|straat|laan|gracht|gatan|gata|vägen|veien|vej|gade|katu|utca)"
    r"(?![^\W_])",
    re.IGNORECASE,
)
_DOSE = re.compile(
    r"\d ?(?:mg|mcg|µg|ml|mL|mmol|units|IU)(?![^\W_])|(?<![^\W_])(?:BD|BID|TDS|TID|QDS|OD|nocte|PRN)(?![^\W_])"
)
_RESULT = re.compile(
    r"[A-Z][a-z]{2,20} (?:flow|rate|pressure|counts?|score|scale|index|ratio|fraction|gap|volume|output|intake|"
    r"saturation|sats|levels?|clearance|time|temperature|pulse|weight|height|mass|glucose|sugars?|ha?emoglobin|"
    r"platelets|cholesterol|triglycerides|ferritin|iron|folate|albumin|bilirubin|creatinine|urea|urate|sodium|potassium|"
    r"calcium|phosphate|magnesium|chloride|bicarbonate|lactate|troponin|amylase|lipase|globulin|protein|cortisol) "
    r"\d{1,4}(?:\.\d)?|"
    r"[a-z]?[A-Z]{2,6} \d{1,3}(?:\.\d)?(?:, [a-z]?[A-Z]{2,6} \d{1,3}(?:\.\d)?)+"
    r"|(?P<systolic>[5-9]\d|[12]\d\d)/(?P<diastolic>[2-9]\d|1\d\d)|(?:B12|T[34]|D3|C[34]) \d{1,4}(?:\.\d)?"
)
"""Of measurements: Peak flow 210; eGFR 24, ACR 210; 150/95; B12 180."""
_BUSINESS_NUMBER = re.compile(
    r"(?<![^\W_])(?:invoice|order|tracking|shipment|serial|ticket|issue|pull request|pr|bug|part|item|model|sku|ean|"
    r"upc|isbn|doi|report|version|release|build|batch|lot|po|purchase order|reference|ref|receipt|flight|room|line|"
    r"port|code|error|step|page|chapter|section|size|subtotal|total|amount|price|qty|quantity|balance|age|aged|score|scale|"
    r"grade|level|phase|stage|vat rate)"
    r"[\"']?(?:[ _-]?(?:no|nr|num|number|id|code))?\.?[\"']?[ \t]{0,4}[:=#]{0,2}[ \t]{0,4}(?-i:[A-Z]{0,3})[ -]?#?\Z",
    re.IGNORECASE,
)
_OF_A_PERSON = re.compile(
    r"(?<![^\W_])(?:personal|person|tax|fiscal|patient|identity|identification|id|national|insurance|customer|client|"
    r"member\w*|employee|staff|student|pupil|medical|health|hospital|social|security|citizen\w*|resident|birth|passport|"
    r"driv\w+|licen[cs]e|account|policy|pension|payroll|voter|card|visa|case|file|chart|pin|zip|postal|post|nhs|"
    r"mother|father|his|her|their|my|your)(?:['’]s)?[\"']?[ _-]{0,2}\Z",
    re.IGNORECASE,
)
"""Before a word of `_BUSINESS_NUMBER`: personal code, patient reference."""
_AMOUNT = re.compile(
    r"[$€£¥]?\s?(?:\d{1,3}(?:[,.' ]\d{3})*|\d{4,6}(?=\s?[a-z%°]))(?:[.,]\d{1,2})?"
    r"\s?(?:%|[$€£¥]|[A-Z]{3}|mg|ml|kg|g|cm|mm|km|m|l|°.?)?"
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
_MAX_COUNT_DIGITS = 8
"""Of a number with a unit behind it."""
_PLATE = re.compile(
    r"(?<![^\W_])(?:plates?|registration|reg|licen[cs]e|vehicle|car|passport|kennzeichen|immatriculation|matr[ií]cula|targa)"
    r"(?:[ _-](?:no|nr|number|plate|id))?\.?[ ]?(?:[:=#]|is|was)?[ ]{0,4}\Z",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"\d{1,3}(?:(?:\.\d{3}){2,}|(?: \d{3}){2,})")
"""Identity numbers are written so; amounts of millions, mostly with a currency."""
_TITLE = re.compile(r"(?:mrs?|ms|miss|dr|prof|professor|sir|madam|herr|frau|mme|se[nñ]ora?)\.?", re.IGNORECASE)
_TITLE_BEFORE = re.compile(rf"(?:{_TITLE.pattern})[ ]\Z", re.IGNORECASE)
_ASKED = re.compile(
    r"(?<![^\W_])(?:met|meet|told|tell|asked?|thank(?:ed)?|married|named|called|call|text(?:ed)?|e?mail(?:ed)?|"
    r"mom|mum|mother|dad|father|brother|sister|wife|husband|son|daughter|friend|colleague|boss|neighbou?r|am|i['’]m|"
    r"this is)[ ]\Z",
    re.IGNORECASE,
)
"""Before a name in small letters that is also a word."""
_EPONYM = re.compile(
    r"(?:alzheimer|parkinson|huntington|hodgkin|cushing|hashimoto|raynaud|sj[öo]gren|beh[çc]et|m[ée]ni[èe]re|"
    r"klinefelter|marfan|tourette|asperger|burkitt|kaposi|wilms|ewing|dupuytren|fournier|bartholin|wernicke|korsakoff|"
    r"babinski|glasgow|apgar|gram|giemsa|ringer|holter|waldenstr[öo]m|crohn|rorschach|doppler|fallopian|"
    r"romberg|tinel|phalen|kernig|brudzinski|chvostek|trousseau|lachman|mcburney|virchow|gleason|"
    r"foley|swan-ganz|hickman|heimlich|valsalva|mantoux|schilling|coombs|pap)(?:['’]?s|['’])?[ ](?:(?:[A-Z][a-z]{2,15}|"
    r"coma) )?(?:disease|syndrome|scale|catheter|man(?:o?eu)vre|maneuver|criteria|classification|contracture|gangrene|"
    r"lymphoma|thyroiditis|phenomenon|stain|lactate|solution|recording|monitor|score|sign|reflex|nodes?|tumou?r|"
    r"sarcoma|cyst|gland|chorea|encephalopathy|procedure|test|smear|ultrasound|tube|point|line)(?![^\W_])"
    r"|(?:murphy|mcburney|tinel|phalen|romberg|kernig|brudzinski|babinski|gowers|lachman|"
    r"ortolani)(?:['’]?s)?(?:[ ]sign)?[ ]"
    r"(?:positive|negative|tender|present|absent|test)(?![^\W_])"
    r"|(?:bell['’]?s? palsy|baker['’]?s? cyst|barrett['’]?s? (?:o?esophagus|ulcer)|still['’]?s? disease|"
    r"(?:addison|wilson|paget|pott|kawasaki|lyme|graves|gaucher|hansen|pompe|fabry|legionnaires)(?:['’]?s|['’])?"
    r"[ ]disease|(?:down|turner|reye|lynch|edwards|patau|ehlers)(?:['’]s|['’])?[ ]syndrome|colles['’]?s? fracture|"
    r"(?:apgar|wells|waterlow|ranson|rockall|gleason|epworth|braden|barthel)s?[ ]\d|"
    r"murphy['’]?s? (?:sign|law)|moore['’]?s? law|bayes['’]?s? theorem|fisher['’]?s? exact|"
    r"(?:wells|geneva) score)(?![^\W_])",
    re.IGNORECASE,
)
"""Diseases, signs, tests and devices that have the names of those who found them; all other names may be patients'."""
_BARE_EPONYM = re.compile(
    r"(?:(?:['’]s?)?[ ](?:man(?:o?eu)vre|maneuver|theorem|equation)|[ ](?:(?:[A-Z][a-z]{2,15}|coma) )?"
    r"(?:[Ss]cale|formula|criteria|classification|distribution|stain))(?![^\W_])"
)
"""Behind a name of any science; what patients may have is behind a name without 's only."""
_IS_DISEASE = re.compile(r"[ ](?:disease|syndrome)(?![^\W_])")
_ELEMENT_BEHIND = re.compile(r"[ ]{1,4}[\w:-]{1,40}=|/?>(?!\s|\Z)")
_NO_PERSON = re.compile(
    r"(?-i:I|he|she|you|me)|i['’]m|we|they|us|him|her|them|it|who|"  # He and You are surnames, too
    r"olá|hola|bonjour|bonsoir|hallo|hello|ciao|hej|hei|"
    r"(?-i:NOK|ICU|ED|A&E|GP|OT|ENT|HDU|ITU|SHO|SpR|NAD|RUQ|LUQ|FY[12]|F[12])|ortho(?:paedics|pedics)?|physio(?:therapy)?|"
    r"haem|h?aematology|hematology|radiology|cardiology|neurology|oncology|gastro(?:enterology)?|derm(?:atology)?|maternity|"
    r"(?:ehlers-danlos|guillain-barr[eé]|stevens-johnson|creutzfeldt-jakob|charcot-marie-tooth|prader-willi|"
    r"wolff-parkinson-white|henoch-sch(?:ö|oe?)nlein|epstein-barr|mallory-weiss|zollinger-ellison|budd-chiari|"
    r"arnold-chiari|dandy-walker|sturge-weber|osgood-schlatter|lambert-eaton|li-fraumeni|peutz-jeghers|kayser-fleischer|"
    r"reed-sternberg|stokes-adams|brown-s[eé]quard)(?:['’]s)?|(?:crohn|hashimoto|raynaud|alzheimer|parkinson|sj(?:ö|o)gren|"
    r"tourette|asperger|m[eé]ni[eè]re|beh[çc]et|barrett|dupuytren|cushing)['’]s|graves['’]|"
    r"kund(?:e|in)|cliente?|patient(?:in)?|paciente|absender|empfänger|(?:ver)?mieter(?:in)?|destinataire|titular|"
    r"\w{3,20}(?:olol|statin|azole|cillin|mycin|floxacin|oxetine|triptan|gliptin|gliflozin|glutide|xaban|azepam|dipine|"
    r"thiazide|sartan|prazole|mab)",
    re.IGNORECASE,
)
"""Pronouns, greetings, departments, parties of a contract, diseases that are known by two names or in the genitive,
and drugs by their ends."""
_UNSURE = 0.3
_WORD_WITH_CAPITAL = re.compile(r"[A-Z][a-z]{2,20}")
_WITHIN_SENTENCE = re.compile(r"(?<![^\W_])[a-z]{1,20},?[ ]\Z")
_THING_BEFORE = re.compile(
    r"(?<![^\W_])(?:the|an?|at|in|on|his|her|their|my|your|our|its|this|that|these|those|into|via)[ ]\Z", re.IGNORECASE
)
_MORE_CAPITALS = re.compile(r"[ ]?[-/]|[ ][A-Z\d(]")
_HEADINGS = words_of(
    "address agenda allergies appendix assessment attachment attention balance bill caution certificate complaint "
    "conclusion confidential confirmation contact contract currency date declaration description details diagnosis "
    "discharge draft examination expenses findings form header history impression information introduction invoice "
    "items label medication medications memo memorandum minutes name note notes notice objective offer order overview "
    "page patient payment payslip plan preface problem prescription procedure receipt recipe record references report "
    "results schedule section statement subject subjective subtotal summary table terms ticket title total urgent "
    "vitals warning"
)
_RESIDENCE = re.compile(
    r"(?:live[sd]?|living|resid\w+|from|born|based|home|mov(?:ed?|ing) (?:to|from)|address\w*|stay\w*|grew up|"
    r"hometown|native|relocat\w+|"
    r"city|town|zip|state|county|place|clinic|hospital|wohn\w+|habit\w+|viv\w+|\d{5}|born in)(?![^\W_])",
    re.IGNORECASE,
)
_LIVING = re.compile(
    r"(?<![^\W_])(?:live[sd]?|living|resid\w+|born|based|home|mov(?:ed?|ing)|address\w*|hometown|native|relocat\w+|"
    r"wohn\w+|habit\w+|viv\w+)(?![^\W_])",
    re.IGNORECASE,
)
_PLACE_WORD = re.compile(
    r"(?:nach|von|bei|aus|à|en|de|a|da|em|naar|uit|till|från|til|fra|in|to|near|of|over|through|across|around|at|"
    r"via|visit(?:ed|s)?|towards?|between|and|the|outside|,)[ ]\Z",
    re.IGNORECASE,
)
_DAY = re.compile(r"(?:mon|tues?|wed|thu|thur|thurs|fri|sat|sun)(?:day)?\.?", re.IGNORECASE)
_DATE_BEHIND = re.compile(
    r"[.,]?[ ](?:\d{1,2}[./-]\d|\d{1,2}(?:st|nd|rd|th)? [A-Z][a-z]{2}|\d{4}-\d|[A-Z][a-z]{2,8} \d)"
)
"""Behind a weekday, which is a name elsewhere: of Sun, 34."""
_TRAVEL = re.compile(
    r"(?<![^\W_])(?:fl(?:ew|y|ies|ights?)|flying|went|go(?:es|ing)?|travel\w*|trips?|(?-i:dr(?:ove|ive|iving))|trains?|holidays?|"
    r"vacations?|tour\w*|"
    r"bridges|museums?|streets|capital|river|university|battle|treaty) (?:to|in|from|of|through) \Z",
    re.IGNORECASE,
)
"""Before a place where somebody is for a while."""
_PLACE_BEHIND = re.compile(rf", [A-Z]|,?[ ](?!(?:{PERSON_VERBS})(?![^\W_]))[a-z]{{2}}")
"""Within a sentence, unless it says what mostly persons do: the place may be one."""
_NEAR, _AROUND = 60, 1000


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
    """A span and what is around it on the same line. around: some of the text, to see whether it has capitals."""

    def __init__(self, text: str, span: LabeledSpan, mentions_somebody: bool, sure: float) -> None:
        self.span, self.mentions_somebody, self.sure = span, mentions_somebody, sure
        self.text = text[span.start : span.end]
        self.around = text[max(0, span.start - _AROUND) : span.end + _AROUND]
        self.near = text[max(0, span.start - _NEAR) : span.start]
        self.before = self.near.rpartition("\n")[2]
        self.behind = text[span.end : span.end + _NEAR].partition("\n")[0]


def _is_date(context: _Context) -> bool:
    text = context.text.strip()
    if not _is_of_birth(context) and (_is_other_date(context, text) or _is_version(context, text)):
        return False
    return _CALENDAR.search(_DURATION.sub(" ", text)) is not None


def _is_of_birth(context: _Context) -> bool:
    """Whether a word of birth or death is before a date, also at the end of the line above, or right behind it."""
    before = context.before if context.before.strip() else context.near.rstrip().rpartition("\n")[2]
    return _BORN.search(before) is not None or _BORN_BEHIND.match(context.behind) is not None


def _is_other_date(context: _Context, text: str) -> bool:
    """Whether a date is only a year or a month, that of a business matter, or of a line in a log."""
    numbers = _TWO_NUMBERS.fullmatch(text)
    if numbers and min(int(numbers[1]), int(numbers[2])) > _MAX_MONTH:  # a dose of two drugs, a score
        return True
    if _ONLY_YEARS.fullmatch(text) and not _MONTH_OF_YEAR.fullmatch(text):
        return True
    if _MONTH_AND_YEAR.fullmatch(text) and not _PERSONAL_EVENT.search(context.before):
        return True
    is_logged = _CLOCK.match(context.behind) is not None and _LOGGED.search(context.before) is not None
    business = _BUSINESS_DATE.search(context.before)
    return is_logged or (business is not None and not _PERSONAL_EVENT.search(context.before, business.start()))


def _is_version(context: _Context, text: str) -> bool:
    """Whether numbers with points are a version or a quantity, not a day with its month."""
    if _VERSION.fullmatch(text):
        return True
    if not _POINT.fullmatch(text):
        return False
    is_day = _DAY_AND_MONTH.fullmatch(text) and not _VERSION_BEFORE.search(context.before)
    return not is_day or _UNIT_BEHIND.match(context.behind) is not None


def is_misread_person(text: str, span: LabeledSpan) -> bool:
    """Whether what a model took for an address has the form of a full name, behind a word such as "for"."""
    if span.label not in ("street address", "city"):
        return False
    context = _Context(text, span, mentions_somebody=True, sure=SURE)
    is_read = _FOR.search(context.before) is not None
    return is_read and _is_full_name(context) and not any(word.lower() in NO_SURNAMES for word in context.text.split())


def _is_result(text: str) -> bool:
    """Whether a text is the result of a measurement. A diastolic pressure is below the systolic one."""
    match = _RESULT.fullmatch(text)
    return match is not None and (not match["systolic"] or int(match["diastolic"]) < int(match["systolic"]))


def _is_counted(context: _Context) -> bool:
    """Whether an address is only a word and a number, which is rather a result in a medical text, or a price."""
    text = context.text.strip()
    if text.islower() and _IN_SMALL_LETTERS.fullmatch(text):
        return True
    if not _WORD_AND_NUMBER.fullmatch(text):
        return False
    return MEDICAL.search(context.around) is not None or _CENTS.match(context.behind) is not None


_WORD_AND_NUMBER = re.compile(
    r"(?:[A-Z]{2,4} )?[^\W\d_][^\W_]{1,20}(?:-[^\W\d_]{1,20})? \d{1,4}(?: (?:bd|od|tds|qds|bid|tid|nocte|daily))?"
)
_IN_SMALL_LETTERS = re.compile(r"[a-zß-öø-ÿ]\w{1,20} \d{1,4}|\d{1,4} [^\W\d_]{1,20}")
"""As "tiene 81" and "26 tuổi"."""
_CENTS = re.compile(r"[.,]\d\d(?!\d)")


def _is_street_address(context: _Context) -> bool:
    text = context.text
    if not _WORD.search(text):
        return False
    is_street = _STREET.search(text) is not None
    if not is_street and (_DOSE.search(text) or _is_result(text.strip()) or _is_counted(context)):
        return False
    has_number = any(char.isdigit() or char in _HAN_DIGITS for char in text)
    return (has_number or (is_street and "," in text)) and (is_street or not _PLACE_OR_THING.match(text))


def _is_id_number(context: _Context) -> bool:
    text = context.text.strip()
    digits = sum(map(str.isdigit, text))
    if digits < _MIN_DIGITS:
        return digits > 1 and _PLATE.search(context.before) is not None
    if _is_result(text):
        return False
    business = _BUSINESS_NUMBER.search(context.before)
    if business and not _OF_A_PERSON.search(context.before, 0, business.start()):
        return False
    if digits <= _MAX_COUNT_DIGITS and _UNIT_BEHIND.match(context.behind):
        return False
    return text.isdigit() or _GROUPED.fullmatch(text) is not None or _AMOUNT.fullmatch(text) is None


def _is_person(context: _Context) -> bool:
    text, words = context.text.strip(), context.text.split()
    if (
        not any(map(str.isalpha, text))
        or _TITLE.fullmatch(text)
        or _is_element(context)
        or _is_heading(context)
        or _is_eponym(context)
        or _NO_PERSON.fullmatch(text)
        or _is_disease(context)
        or _is_drug(context)
        or _is_clause(context, words)
        or (_DAY.fullmatch(text) and _DATE_BEHIND.match(context.behind))
    ):
        return False
    if text.lower() in WORD_NAMES and _ORDER.match(context.behind) and _SENTENCE_BEGINS.search(context.before):
        return False
    if text.islower() and any(map(str.isupper, context.around)) and _is_in_small_letters(context, words):
        return False
    if context.span.score >= context.sure or _is_full_name(context) or _is_in_sentence(context) or _is_quoted(context):
        return True
    return text[:1].isupper() and text.lower() in WORD_NAMES and _PAST_TENSE.match(context.behind) is not None


_ORDER = re.compile(
    r"[ ](?:the|an?|all|each|every|any|this|that|these|those|your|my|our|it|them|through|into|away)(?![^\W_])"
)
_SENTENCE_BEGINS = re.compile(r"(?:\A|[.!?:;•*-]|\d\.)[ \"“(]*\Z")
"""Around a name that is also a verb there: "Mark each box", "Will the shop open?"."""
_PAST_TENSE = re.compile(r"[ ][a-z]{2,12}ed(?![^\W_])")
"""Behind a name that is also a word, of which a model is not sure: "Ginger added"."""


def _is_disease(context: _Context) -> bool:
    """Whether a name is that of a disease in the genitive, whose ending the model left out."""
    ending = _GENITIVE.match(context.behind)
    return ending is not None and _NO_PERSON.fullmatch(context.text + ending[0]) is not None


_GENITIVE = re.compile(r"['’]s?(?![^\W_])")


def _is_drug(context: _Context) -> bool:
    """Whether a word is what somebody takes: "one tablet of Eliquis", "taking Yasmin"."""
    return (
        " " not in context.text
        and _TAKEN.search(context.before) is not None
        and not _NOT_TAKEN.match(context.behind)
        and MEDICAL.search(context.around) is not None
    )


_TAKEN = re.compile(
    r"(?<![^\W_])(?:(?:tablets?|dos(?:es?|age)|injections?|puffs?|drops|mg|course) of|(?:am|is|are|was|be(?:en)?) on|"
    r"take[ns]?|taking|started(?: on)?|switch(?:ed)? to|allergic to|nimmt|nehme|prend[eos]?|toma|tomo)[ ]\Z"
)
_NOT_TAKEN = re.compile(r"['’]s|[ ](?:to|home|for an?)(?![^\W_])")
"""Behind somebody who is taken to the doctor."""


def _is_clause(context: _Context, words: list[str]) -> bool:
    """Whether words are rather a verb and what is around it, as in "Puede tomar ibuprofeno": one of several has a
    capital, and it is not the last."""
    return (
        len(words) > 1
        and context.span.score < _SURE_WORDS_OF_CLAUSE
        and words[-1][:1].islower()
        and not is_particle(words[-1])
        and sum(word[:1].isupper() for word in words) == 1
    )


_SURE_WORDS_OF_CLAUSE = 0.87


def _is_in_small_letters(context: _Context, words: list[str]) -> bool:
    """Whether words in small letters are no name, in a text that has capitals."""
    if len(words) == 1 and _ASKED.search(context.before):
        return False
    is_word = all(
        word.strip("'’s.,").rstrip("s") in WORD_NAMES or word in WORD_NAMES or word in _WORDS for word in words
    )
    if len(words) == 1:
        return is_word or context.span.score < _SURE_IN_SMALL_LETTERS
    if words[0] in _DETERMINERS or has_role(context.text) or _WORDS.issuperset(words):
        return context.span.score < _SURE_WORDS
    is_asked = _ASKED.search(context.before) is not None and not is_word
    return context.span.score < (SURE if is_asked else _SURE_SEVERAL)


_WORDS = words_of(
    "power dean doctor patient mother father nurse teacher man woman boy girl driver pope king queen bishop priest "
    "prince "
    "princess judge president minister sheriff mayor captain baby child husband wife son daughter"
)
_DETERMINERS = words_of(
    "the a an my your his her our their this that these those each every some any no another all both"
)
_SURE_IN_SMALL_LETTERS, _SURE_SEVERAL, _SURE_WORDS = 0.7, 0.9, 0.95
"""Of one word; of several words, whose scores are higher; of those that are rather no name, such as "the old man"."""


def _is_quoted(context: _Context) -> bool:
    """Whether a model that is not sure takes a value in quotation marks for a person, as in SQL."""
    return (
        context.span.score >= _UNSURE
        and _WORD_WITH_CAPITAL.fullmatch(context.text) is not None
        and _QUOTED.search(context.before) is not None
        and context.behind[:1] == context.before[-1:]
    )


_QUOTED = re.compile(r"[(,=][ ]?['\"]\Z")


def _is_in_sentence(context: _Context) -> bool:
    """Whether a model that is not sure takes a word for a person that has a capital within a sentence, as no other word
    has. In a medical text, it may be a drug."""
    return (
        context.span.score >= _UNSURE
        and _WORD_WITH_CAPITAL.fullmatch(context.text) is not None
        and _WITHIN_SENTENCE.search(context.before) is not None
        and not _THING_BEFORE.search(context.before)
        and not _MORE_CAPITALS.match(context.behind)
        and not MEDICAL.search(context.around)
    )


def _is_element(context: _Context) -> bool:
    """Whether a word is the name of an element of HTML or XML, and not a name in angle brackets."""
    text = context.text.strip()
    if not context.before.endswith(("<", "</")) or not (text.islower() or text.isupper()) or " " in text:
        return False
    return context.before.endswith("/") or _ELEMENT_BEHIND.match(context.behind) is not None


def _is_heading(context: _Context) -> bool:
    """Whether a text is a word of `_HEADINGS` in capitals at the beginning of a line, in a text that has small letters.
    Others may be surnames."""
    text = context.text.strip()
    return (
        text.isupper()
        and text.lower() in _HEADINGS
        and not context.before.strip()
        and any(map(str.islower, context.around))
    )


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
    if " " in context.text.strip():
        return False
    behind = context.behind
    is_one = _IS_DISEASE.match(behind) or _BARE_EPONYM.match(behind) or _EPONYM.match(context.text + behind)
    return is_one is not None and not _TITLE_BEFORE.search(context.before)


def _is_city(context: _Context) -> bool:
    if _is_eponym(context):
        return False
    if _DAY.fullmatch(context.text) or (_TRAVEL.search(context.before) and not _LIVING.search(context.before)):
        return False
    if context.mentions_somebody or not is_capitalised(context.text):
        return True
    if _RESIDENCE.search(context.before) or _LIVING.search(context.behind):
        return True
    return not (_PLACE_WORD.search(context.before) or _PLACE_BEHIND.match(context.behind))


_CHECKS: Mapping[str, Callable[[_Context], bool]] = {
    "date": _is_date,
    "street address": _is_street_address,
    "person": _is_person,
    "city": _is_city,
    "id number": _is_id_number,
}
