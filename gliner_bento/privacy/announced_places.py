"""Addresses and places of residence that a text announces: behind a field such as `Address:`, a phrase such as "I live
in", or in the form of an address. Models cut them at line ends, commas and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gliner_bento.privacy.name_words import WORD_START, has_role, words_of
from gliner_bento.privacy.near import Clues, has_fields, matches_near
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.6
_CAPITAL = r"[^\W\d_a-zß-öø-ÿа-яα-ω]"
_CAPITALISED = rf"{_CAPITAL}[^\W\d_]{{0,30}}(?:[.'’-][^\W\d_]{{1,30}}){{0,3}}(?:(?<![^\W\d_]{{4}})\.)?"
"""With the point of St. and Mt., but not that of a sentence."""
_UNHYPHENATED = rf"{_CAPITAL}[^\W\d_]{{0,30}}(?:[.'’][^\W\d_]{{1,30}}){{0,3}}\.?"
"""Before a hyphen that is not a part of it: with hyphens, each run of words could be divided in many ways."""
_STREETS = (
    r"(?:street|st|road|rd|avenue|ave|lane|ln|drive|dr|court|ct|close|row|way|terrace|place|pl|square|sq|boulevard|"
    r"blvd|"
    r"crescent|cres|grove|gardens|mews|quay|circle|cir|trail|trl|parkway|pkwy|highway|hwy|walk|rise|hill|view|gate|"
    r"green|"
    r"parade|esplanade|loop|ridge|alley|wharf|plaza|turnpike|pike|mansions|heights|hts|tce|pde|cct|gdns|villas|croft)"
)
_UNIT = (
    r"(?i:(?:apt|apartment|flat|unit|suite|ste|floor|room|no|ward|blk|block|p\.?o\.? box|#)\.? ?#?\w{1,6}"
    r"|\d{1,2} ?[ºª°](?: ?[a-z](?![^\W_]))?)"  # 3º B
)
_ZIP = (
    r"(?:[A-Z]{2}[ ,]{1,2}\d{5}(?:-\d{4})?|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d"
    r"|(?:\d{2}-\d{3}|\d{3} \d{2}|\d{4,5}-\d{3})(?!\d)|(?:[A-Z]{1,2}-)?\d{4,6}(?: [A-Z]{2})?)"
)
"""A ZIP code with its state, a British, a Canadian, or another postcode."""
_HOUSE = r"\d{1,4}(?:[ ]?[a-zA-Z]|[ ]?[-/][ ]?(?:\d{1,4}|[IVX]{1,4})[a-zA-Z]?)?"
"""A number with a letter, as 7b, or with that of a flat, as 7/3 and 12-II."""
_CITY = rf"{_CAPITALISED}(?:[ ](?:am|im|an der|ob der|upon|on|of|the|de|la|le|sur|{_CAPITALISED})){{0,3}}"
_TAIL = (
    rf"(?:(?:,? {_UNIT})?(?:,[ ]?|[ ]|,?[ \t]{{0,4}}\r?\n[ \t]{{0,4}})"
    rf"(?:{_ZIP}(?:[ ]{_CITY})?|{_CITY}(?:,? {_ZIP}|, [A-Z]{{2}}(?: \d{{5}}(?:-\d{{4}})?)?(?![^\W_])|(?=[,.;)\n?!]|"
    rf"$))))"
)
"""What may follow a street: a unit, and a city, a postcode, or both, also on the next line."""
_STREET_FORMS = re.compile(
    rf"(?<![^\W_])(?=[\w#])(?:(?<![\d.,/-])(?:{_UNIT},? )?\d{{1,5}}[A-Za-z]?(?:[-/]\d{{1,5}}[A-Za-z]?)?,? "
    rf"(?:(?:{_CAPITALISED}|\d{{1,3}}(?:st|nd|rd|"
    rf"th)) ){{1,4}}(?i:{_STREETS})(?![^\W_])\.?(?P<tail>{_TAIL}){{0,2}}(?:,? {_UNIT})?"
    rf"|(?:{_CAPITALISED}[ ]){{0,3}}(?:{_UNHYPHENATED}-){{0,4}}(?![a-zà-ÿ])[^\W\d_]{{0,30}}"
    rf"(?i:straße|strasse|str\.|gasse|allee|platz|weg|damm|ufer|straat|laan|gracht|"
    rf"gatan|gata|gaten|vägen|veien|vej|gade|katu|utca)[ ]{_HOUSE}(?![^\W_])(?:{_TAIL}){{0,2}}"
    rf"|(?:\d{{1,4}}(?: ?(?:bis|ter))?,? )?(?i:(?-i:Via)|rue|avenue|boulevard|bd|chemin|impasse|"
    rf"allée|calle|c/|"
    rf"avenida|avda\.?|paseo|plaza|viale|"
    rf"piazza|corso|rua|travessa|ul\.|ulica|aleja|al\.|ulice|strada|bulevardul)[ ](?:(?:de|du|des|la|le|les|del|"
    rf"della|delle|dei|do|da|dos|das|di|l['’])[ ]?){{0,3}}"
    rf"(?:{_CAPITALISED}[ ]?){{1,4}}(?:,? ?(?:nº|n°|no\.?|nr\.?)? ?{_HOUSE}(?![^\W_]))?(?:{_TAIL}){{0,2}}"
    rf"|(?i:ул\.?|улиц[аеы]|вул\.?|вулиц[яі]|проспект|пр\.|"
    rf"переулок)[ ](?P<russian>[^\W\d_][^\W\d_-]{{0,30}}(?:[ ][^\W\d_-]{{1,30}})?,? "
    rf"(?:(?:д|дом|буд)\.? ?)?\d{{1,4}}[а-я]?"
    rf"(?:,? (?:кв|квартира)\.? ?\d{{1,4}})?)"
    rf"|{_CITY}, [A-Z]{{2}} \d{{5}}(?:-\d{{4}})?(?!\d))"
    rf"|[\u4e00-\u9fff]{{2,12}}?[省市区區県縣都府州][\u4e00-\u9fff々]{{1,20}}"
    rf"(?:\d{{1,5}}(?:[-－号號番丁目室楼栋之]{{1,2}}\d{{0,5}}){{0,4}})?"
    rf"|[\uac00-\ud7a3]{{2,8}}(?:시|도)(?: [\uac00-\ud7a3]{{1,8}}(?:시|군|구|읍|면|"
    rf"동)){{1,2}}(?: [\uac00-\ud7a3\d]{{1,12}}(?:로|길|가))?(?: \d{{1,5}}(?:-\d{{1,5}})?)?"
)
_STREET_WORDS = words_of(
    f"{_STREETS[3:-1].replace('|', ' ')} via rue avenue boulevard bd chemin impasse calle c avenida avda paseo plaza "
    "viale piazza corso rua travessa ul ulica aleja al ulice strada bulevardul"
)
_STREET_ENDS = words_of(
    "strasse str. gasse allee platz weg damm ufer straat laan gracht gatan gata gaten veien vej gade katu utca"
)
_STATE = re.compile(r", [A-Z]{2} \d{5}")
"""Each match of `_STREET_FORMS` that is ASCII has one of these words, of these ends of words, or this."""
_ADDRESS_FIELDS = (
    "(?:(?:home|street|postal|mailing|billing|shipping|delivery|old|new|permanent|current|work|business|full|"
    "registered|"
    "residential|present|property)[ _-]?)?address(?: ?(?:line ?)?[12])?|residence|resides at|property|street|domicile|"
    "anschrift|adresse|wohnort|straße|strasse|dirección|domicilio|indirizzo|residenza|endereço|morada|adres|adress|"
    "osoite|"
    "lakcím|адрес|адреса|διεύθυνση|住所|ご住所|住址|地址|주소|العنوان|عنوان|כתובת|पता|ঠিকানা|ที่อยู่|địa chỉ"
)
_CITY_FIELDS = (
    "(?:city|town|place of (?:birth|residence)|birthplace|zip(?: ?code)?|post ?code|postal code|state|county|province|"
    "postcode and city|city and postcode|city[,/ ]{1,2}state(?:[,/ ]{1,2}zip)?|hometown|ort|wohnort|geburtsort|"
    "plz(?:[/, ]{1,3}ort)?|ville|"
    "code postal|lieu de naissance|ciudad|lugar de nacimiento|città|luogo di nascita|cidade|stad|plaats|miasto|"
    "город|місто)"
)
_FIELD_END = r"(?:\(s\))?(?: ?\([^()\n]{1,40}\))?[\"']?\*{0,2}[ ]?(?:[:：=]|\t|は)\*{0,2}[ \t]{0,8}\n?[ \t]{0,4}[\"'“]?"
_VALUE = r"[^\s:：;\"”|<>{}](?:(?![ ]{2}|\t| [^\W\d_]{1,20}:)[^\n;\"”|<>{}。，、]){0,100}"
_ADDRESS_FIELD = re.compile(
    rf"{WORD_START}(?<![^\W_][ ])(?:{_ADDRESS_FIELDS}){_FIELD_END}(?=(?P<value>{_VALUE}))", re.IGNORECASE
)
_CITY_FIELD = re.compile(rf"{WORD_START}(?<![^\W_][ ]){_CITY_FIELDS}{_FIELD_END}(?=(?P<value>{_VALUE}))", re.IGNORECASE)
_HOMES = (
    r"(?:live[sd]? (?:(?:alone|here|together|there|with [a-z ]{1,30}) )?(?:in|at|on)|living (?:alone )?(?:in|at)|"
    r"resid(?:es?|ing|ed) (?:in|at)|grew up in|born in|"
    r"native of|resident of|"
    r"wohn(?:e|t|haft) in(?: der)?|leb(?:e|t) in|komme aus|habite(?:z)? (?:à|au|en)|vi[st] à|demeurant(?: au| à)?|"
    r"vivo en|vive en|"
    r"resido en|vivo a|abit[oa] (?:a|in)|residente (?:a|in)|moro em|mora em|resido em|woon(?:t)? in|bor i|bo[r]? på|"
    r"mieszka(?:m)? w|"
    r"bydlím v|asun|sống (?:ở|tại)|tinggal di|"
    r"жив(?:у|ёт|ет|ем) (?:в|на(?: улице)?)|проживает (?:в|по адресу)|мешка(?:ю|є) в|живу у|μένω στ(?:η|ο|ην|ον)|"
    r"(?:و?أسكن|و?أعيش|و?يسكن) في|من سكان|(?:גר|גרה|מתגורר|מתגוררת) ב|住在|อาศัยอยู่(?:ที่|ใน)|"
    r"(?:مرحبا، )?أنا [\u0600-\u06ff]{2,12} [\u0600-\u06ff]{2,12} من)"
)
_LIVES = re.compile(
    rf"{WORD_START}{_HOMES}[ ]?"
    rf"(?=(?P<value>(?-i:[\d\W]{{0,8}}{_CITY}(?:, [A-Z]{{2}}(?![^\W_])(?: \d{{5}})?|, {_CITY}(?=[,.;!?\n]|$| and))?)"
    r"|[\u0600-\u06ff]{2,15}(?: [\u0600-\u06ff]{2,15})?|[\u0590-\u05ff]{2,15}(?: [\u0590-\u05ff]{2,15})?"
    r"|[\u4e00-\u9fff]{2,20}|[\u0e00-\u0e7f]{2,20}|[а-яё][а-яё-]{2,20}(?:, (?:дом|д\.?) ?\d{1,4})?))",
    re.IGNORECASE,
)
_LIVES_WORDS = words_of(
    "live lives lived living reside resides residing resided grew born native resident wohne wohnt wohnhaft lebe lebt "
    "komme habite habitez vivo vive resido abito abita residente moro mora woon woont bor mieszka mieszkam tinggal"
)
_LIVES_PARTS = ("demeurant", "asun")
"""Each match of `_LIVES` that is ASCII has one of these words or parts of words."""
_NONE = re.compile(
    r"(?:n/?a|none|unknown|see|same|as|not|-+|_+|tbd|unchanged|null|string|str|text|required|optional|default|true|"
    r"false|"
    r"the|your|our|http\S*|\S+@\S+)(?![^\W_]).*|[\W_]+",
    re.IGNORECASE | re.DOTALL,
)
_POSTCODE_LINE = re.compile(
    rf"\r?\n[ \t]{{0,4}}(?=(?P<value>(?:{_ZIP}[ ]{_CITY}|{_CITY},? {_ZIP}))[ \t]{{0,4}}(?:\r?\n|\Z))"
)
_POSTCODE_BEHIND = re.compile(rf"(?:(?:,? {_UNIT})?,[ ]?|,?[ \t]{{0,4}}\r?\n[ \t]{{0,4}}){_ZIP}[ ]{_CITY}")
_NUMBER = re.compile(r"\d[\d ]{0,20}|丁目")
_MAX_BEFORE = 12
_HOSPITAL = re.compile(
    rf"(?<![^\W_])(?:St\.? )?(?:{_CAPITALISED}(?:'s|’s)? ){{1,4}}(?:Hospital|Clinic|Medical Center|Medical Centre|"
    rf"Health Cent(?:er|re)|Medical Practice|Care Home|Birth Cent(?:er|re)|"
    r"Dialysis Center|Infirmary|Nursing Home|Hospice|Rehab(?:ilitation)? Center)(?![^\W_])"
    rf"|(?<![^\W_])(?:(?:Universitäts)?[Kk]lini(?:kum|k)|Uni(?:versitäts)?klinik(?:um)?|Krankenhaus|Hôpital|Clinique|CHU|"
    rf"Ospedale|Policlinico|Hospital|Clínica|Szpital)[ ](?:(?:de|du|des|la|of|San|St\.)[ ]){{0,2}}{_CAPITALISED}"
    rf"(?:[ ]{_CAPITALISED}){{0,2}}"
    rf"|(?<![^\W_])(?:[Aa]t|[Ff]rom|[Tt]o|[Vv]ia)[ ](?P<named>(?:{_CAPITALISED}(?:'s|’s)? ){{1,3}}(?:(?<!General )"
    rf"(?<!ic )(?<!al )(?<!ar )(?<!Day )(?<!Hand )Surgery|General|Memorial)(?![^\W_])(?![ ][A-Z]))"
)
"""By a word of what it is, in front of its name in other languages; "General" and the like only behind "at"."""


_HOSPITAL_WORDS = words_of(
    "hospital clinic center centre infirmary nursing hospice practice care klinikum klinik krankenhaus clinique chu "
    "ospedale policlinico szpital uniklinik universitatsklinikum surgery general memorial"
)


def announced_places(clues: Clues) -> Iterable[LabeledSpan]:
    """The addresses and places that a text announces; spans may overlap. In linear time."""
    return dict.fromkeys((*_addresses(clues), *_places(clues)))


def _addresses(clues: Clues) -> Iterator[LabeledSpan]:
    text = clues.text
    may_be_street = clues.has_word(_STREET_WORDS) or clues.has_part(_STREET_ENDS) or _STATE.search(text)
    for match in matches_near(_STREET_FORMS, text, _NUMBER, before=120, behind=160) if may_be_street else ():
        start, end = match.span("russian") if match["russian"] else match.span()
        start += _before_place(text[start:end])
        if any(char.isdigit() for char in match[0]) or "丁目" in match[0]:
            yield from _span(text, start, end, "street address")
    for match in _POSTCODE_LINE.finditer(text) if "\n" in text else ():
        if not (has_role(match["value"]) or "nummer " in match["value"]):
            yield from _span(text, *match.span("value"), "street address")
    for match in _ADDRESS_FIELD.finditer(text) if has_fields(text) else ():
        value = match["value"]
        if value[:1].isupper() or any(char.isdigit() for char in value[:12]) or not value.isascii():
            yield from _span(text, *match.span("value"), "street address")


def _before_place(text: str) -> int:
    """The number of characters before the place in a Chinese or Japanese address that begins within a sentence."""
    return max(text.find(char, 0, _MAX_BEFORE) for char in "在于是は") + 1


def _places(clues: Clues) -> Iterator[LabeledSpan]:
    text = clues.text
    for match in _CITY_FIELD.finditer(text) if has_fields(text) else ():
        value = match["value"]
        if (
            len(value) <= 40
            and (value[:1].isupper() or value[:1].isdigit() or not value.isascii())
            and not has_role(value)
        ):
            yield from _span(text, *match.span("value"), "city")
    may_be_home = clues.has_word(_LIVES_WORDS) or clues.has_part(_LIVES_PARTS)
    for match in _LIVES.finditer(text) if may_be_home else ():
        value = match["value"]
        if value[:1].isupper() or value[:1].isdigit() or not value.isascii():
            yield from _span(text, *match.span("value"), "city")
    for match in _HOSPITAL.finditer(text) if clues.has_word(_HOSPITAL_WORDS) else ():
        yield from _span(text, *match.span(match.lastgroup or 0), "organization")


def with_postcode(text: str, span: LabeledSpan) -> LabeledSpan:
    """The span of a street that a model found, with the postcode and the city behind it."""
    behind = _POSTCODE_BEHIND.match(text, span.end)
    return span.at(span.start, behind.end() - behind[0].endswith(".")) if behind else span


def _span(text: str, start: int, end: int, label: str) -> Iterator[LabeledSpan]:
    """The span of a place without the punctuation behind it, if it is one."""
    while end > start and not text[end - 1].isalnum():
        end -= 1
    if end - start > 1 and not _NONE.fullmatch(text, start, end):
        yield LabeledSpan(start, end, label, by_recognizer=True, score=_SCORE)
