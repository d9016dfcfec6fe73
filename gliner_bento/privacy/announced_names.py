"""Names that a text announces, in many languages: behind a field such as `Surname:`, a phrase such as "my name is" or a
title, in greetings and above the end of a letter, and before an honorific such as さん. Models miss many in small
letters, forms, tables, code and scripts that they know little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from gliner_bento.privacy.name_words import (
    MEDICAL,
    NO_GIVEN_NAMES,
    PARTICLE,
    TITLES,
    WORD,
    WORD_START,
    is_full_name,
    is_particle,
    words_of,
)
from gliner_bento.privacy.near import Clues, has_fields, matches_near
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.6
_WHOSE = (
    "full|first|last|given|family|maiden|middle|birth|legal|patient|customer|client|contact|employee|applicant|tenant|"
    "landlord|owner|user|author|holder|member|student|child|mother|father|parent|guardian|spouse|recipient|sender|guest"
)
FIELDS = (
    rf"(?:(?:{_WHOSE})(?:['’]s)?[ _-]?)?names?(?:\(s\))?|surname|forename|applicant|account holder|beneficiary|"
    "next of kin|signed(?: for)? by|reported by|taxpayer|landlord|tenant|recipient|"
    "nachname|vorname|familienname|nom(?: de famille)?|prénom|nombres?|apellidos?|cognome|nome|sobrenome|naam|"
    "achternaam|voornaam|namn|efternamn|förnamn|navn|etternavn|fornavn|nimi|sukunimi|etunimi|imię|nazwisko|jméno|"
    "příjmení|"
    "soyadı?|họ tên|фио|имя|фамилия|отчество|ім'я|прізвище|όνομα|επώνυμο|姓名|ご?氏名|お名前|"
    "(?:お?客様|患者|顧客|契約者|担当者|会員)名|名前|"
    "联系人|聯絡人|申请人|"
    "申請人|이름|성명|الاسم|اسم|שם|नाम|নাম|பெயர்|ชื่อ|სახელი|անուն"
)
FIELD_PARTS = words_of(
    "name applicant holder beneficiary kin signed reported taxpayer landlord tenant recipient nom apellido "
    "cognome naam namn navn nimi nazwisko soyad"
)
"""Each field that is ASCII has one of these in it."""
_ROLES = (
    "to|from|ship to|bill to|sold to|deliver(?:ed)? to|issued to|assigned to|attn|attention|cc|owner|insured|"
    "policyholder|complainant|claimant|plaintiff|defendant|witness|driver(?: [a-d])?|employee|instructor|teacher|"
    "student|"
    "pupil|guest|visitor|resident|patient|client|customer|buyer|seller|borrower|donor|payee|payer|cardholder|passenger|"
    "traveller|traveler|contact(?: person)?|emergency contact|in case of emergency contact|parent|guardian|mother|"
    "father|"
    "spouse|husband|wife|son|daughter|child|brother|sister|partner|primary|contingent|"
    "(?:approved|prepared|submitted|received|reviewed|completed|requested|written|interviewed|seen|referred) by|"
    "received from|signed|signature|inspector|officer|adjuster|agent|treasurer|supervisor|manager|doctor|physician|"
    "family doctor|gp|dentist|nurse|therapist|provider|consultant|author|editor|sender|addressee|present|absent|"
    "attendees|participants|organi[sz]er|host|chair|secretary|lawyer|attorney|interpreter|reference|references|"
    "kunde|kundin|patientin|versicherte[rn]?|mieter(?:in)?|vermieter(?:in)?|ansprechpartner(?:in)?|absender|empfänger|"
    "destinataire|expéditeur|cliente|paciente|titular|titolare|intestatario|klient|pacjent|"
    "клиент|пациент|заказчик|получатель|отправитель|客户|顾客|患者|收件人|寄件人|担当者|お客様|고객명|고객|수신인|환자|"
    "العميل|المريض|לקוח|मरीज|ग्राहक|ลูกค้า|ผู้ป่วย"
)
"""Fields that may also have an office, a firm or a number: only what looks like a full name is one there."""
_PHRASES = (
    "my name is|my name['’]s|mein name ist|ich hei(?:ß|ss)e|je m['’]appelle|mon nom est|me llamo|mi nombre es|"
    "mi chiamo|il mio nome è|meu nome é|chamo-me|me chamo|mijn naam is|ik heet|jag heter|jeg heter|jeg hedder|"
    "nazywam się|mam na imię|jmenuji se|nimeni on|numele meu este|mă numesc|benim adım|adım|a nevem|"
    "(?:tôi|em|con|cháu|mình) tên là|"
    "tên tôi là|nama saya|ime mi je|zovem se|меня зовут|мене звати|казвам се|με λένε|ονομάζομαι|اسمي|שמי|मेरा नाम|"
    "আমার নাম|என் பெயர்|ฉันชื่อ|ผมชื่อ|我叫|我的名字是|私の名前は|(?:제 )?이름은|저는(?= ?[\uac00-\ud7a3]{2,4}입니다)"
)
_PHRASE_PARTS = (
    *("name is", "name's", "name’s", "name ist", "heisse", "appelle", "nom est", "llamo", "nombre es", "chiamo"),
    *("chamo", "naam is", "heet", "heter", "hedder", "jmenuji", "nimeni", "numele", "nevem", "nama saya", "ime mi"),
    "zovem",
)
"""Each phrase that is ASCII has one of these in it."""
_CJK = "\u3040-\u30ff\u4e00-\u9fff々\uac00-\ud7a3"
_CJK_NAME = rf"[{_CJK}]{{2,8}}?(?=です|と申|という|입니다|이고|이에요|예요|이라고|はは|[^{_CJK}]|\Z)|[{_CJK}]{{2,4}}"
_NAME = rf"(?:{_CJK_NAME}|{WORD}(?:[ \u00a0]{WORD}){{0,3}})"
_TITLE = rf"(?:{TITLES}\.?[ ]){{0,2}}"
_AFTER_FIELD = (
    r"(?: ?\([^()\n]{1,40}\))?[\"']?"
    r"\*{0,2}(?:[ ]?(?:[:：]\*{0,2}[ \t]{0,8}\*{0,2}|=[ \t]{0,8})|\t|>)[\"'“]?"  # **Name:** or Name: **Ada**, too
)
_FIELD = re.compile(
    rf"{WORD_START}(?<![^\W_][ ])(?:{FIELDS}){_AFTER_FIELD}(?=(?P<name>{_NAME})(?![\w(\[=]))", re.IGNORECASE
)
_ALONE = re.compile(
    rf"^[ \t]*{WORD_START}(?:{FIELDS})(?:[ ]{{2,12}}|[ \t]*\n[ \t]*)(?=(?P<name>{_NAME})[ \t]*(?:$|[ ]{{2}}))",
    re.IGNORECASE | re.MULTILINE,
)
"""A field, and its name behind wide blanks, or on the next line."""
_QUOTED = re.compile(
    rf"(?<![^\W_])(?=[^\W_]|[\"'])(?:{FIELDS}|(?:\"|')(?:first|last)(?=\"|')|author|owner|"
    rf"user)[\"']?[ ]?[:=][ ]?[\"'](?=(?P<name>{_NAME})[\"'<(])",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"[:=] ?[\"']")
"""A field in code, with its name in quotation marks."""
_ROLE = re.compile(
    rf"(?:(?<=[\n\t.;/|])|(?<=\n[ -])|(?<=[ ]{{2}})|(?<=, )|(?<=\. )|"
    rf"\A)[ ]?{WORD_START}(?:{_ROLES})(?:\(s\))?(?: ?\([^()\n]{{1,40}}\))?"
    rf"[ ]?[:：は][ \t]{{0,8}}\n?[ \t]{{0,4}}{_TITLE}(?=(?P<name>{_NAME}))",
    re.IGNORECASE,
)
_I_AM_PHRASES = "ich bin|je suis|ik ben|jag är|jeg er|jestem|(?:yo|io|eu) (?:soy|sono|sou)"
_I_AM = re.compile(rf"{WORD_START}(?:{_I_AM_PHRASES})[ ](?=(?P<name>{_NAME}))", re.IGNORECASE)
"""Before a full name: before a single word with a capital, it may be a profession or a nationality."""
_AM = re.compile(rf"{WORD_START}(?:soy|sono|sou(?: [ao])?)[ ](?=(?P<name>{WORD}(?:[ \u00a0]{WORD}){{0,3}}))")
"""In small letters: Soy Sauce is none."""
_I_AM_WORDS = words_of("bin suis ben jag jeg jestem soy sono sou")
_PHRASE = re.compile(rf"{WORD_START}(?:{_PHRASES})[ ]?(?=(?P<name>{_NAME}))", re.IGNORECASE)
_TITLED = re.compile(
    rf"{WORD_START}(?P<title>{TITLES})(?:\.[ \u00a0]?|[ \u00a0])(?=(?P<name>{WORD}(?:[ \u00a0]{WORD}){{0,2}}))",
    re.IGNORECASE,
)
_SMALL_TITLE = re.compile("dottor(?:e|essa)?|docteure?|doctora|doutora?|signora?|señora?|senhora?|monsieur|madame|pani")
"""Titles that other languages write in small letters; in English, some are words of a sentence."""
_TITLE_WORDS = words_of(
    "mr mrs ms mx miss dr prof professor sir dame rev reverend sgt sergeant capt captain officer nurse coach judge "
    "detective uncle aunt auntie herr herrn frau monsieur madame mme mlle senor sra srta signor signora sig dott dhr "
    "mevr mevrouw meneer pan pani senhor senhora dottor dottore dottoressa docteur docteure doctora doutor "
    "doutora doktor"
)
_GREETING_WORDS = words_of(
    "dear hi hello hey good liebe lieber hallo sehr guten bonjour bonsoir salut querido querida estimado estimada hola "
    "gentile caro cara ciao egregio prezado prezada beste geachte hej szanowny szanowna drogi droga"
)
_CLOSING_WORDS = words_of(
    "regards sincerely faithfully truly best cheers thanks thank wishes love yours respectfully gruss cordialement "
    "salutations atentamente saludo saludos saluti atenciosamente groet groeten hilsen pozdrawiam pozdravem signed"
)
"""In each match that is ASCII, one of these is a word."""
_GREETINGS = (
    r"(?:dear|hi|hello|hey|good (?:morning|afternoon|evening)|lieber?|hallo|"
    r"sehr geehrter?|guten (?:tag|morgen|abend)|chère?|bonjour|bonsoir|salut|querid[oa]|estimad[oa]|hola|gentile|"
    r"car[oa]|"
    r"ciao|egregio|prezad[oa]|olá|beste|geachte|hej|kära?|kjære|szanown[ya]|cześć|drog[ia]|vážen[ýá]|уважаем(?:ый|ая)|"
    r"дорог(?:ой|ая)|здравствуйте|привет|шановн(?:ий|а)|γεια σου|αγαπητ[έή])"
)
_GREETING = re.compile(
    rf"(?:^|(?<=[\n\"“>(.!?] )|(?<=[\"“>(]))[ \t]*{_GREETINGS}(?P<comma>,?)[ ]{_TITLE}"
    rf"(?=(?P<name>{_NAME})[ ]?(?:[,:!.\n–—-]|\Z))",
    re.IGNORECASE | re.MULTILINE,
)
_CLOSES = r"(?:kind|best|warm|warmest|many|with|yours|sincerely|thanks?|regards|cheers|mit|viele|bien|un|the)[ ,]"
_CLOSINGS = (
    r"(?:regards|sincerely|faithfully|truly|best|cheers|thanks|thank you|wishes|love|yours|respectfully|grü(?:ß|ss)en?|"
    r"gru(?:ß|ss)|cordialement|bien à vous|salutations|atentamente|saludos?|saluti|atenciosamente|groet(?:en)?|"
    r"hälsningar|hilsen|pozdrawiam|pozdravem|уважением|повагой|signed)"
)
_CLOSING = re.compile(
    r"(?:\A|\n|(?<=[.!?] ))[ \t]{0,4}"
    rf"(?:(?:[^\W\d_]{{1,14}}[ ,]{{1,2}}){{0,3}}{_CLOSINGS}|[-–—]{{1,3}})"
    rf"[,.!]{{0,2}}[ \t]{{0,4}}(?:\r?\n[ \t]{{0,4}}){{0,3}}(?<![a-zß])(?:[-–—~] ?)?(?!{_CLOSES})"
    rf"{_TITLE}"
    rf"(?=(?P<name>{WORD}(?:[ ]{WORD}){{0,3}})[ \t]{{0,4}}(?:\r?\n|,|\||\Z))",
    re.IGNORECASE,
)
_GREETS = re.compile(r"\s{0,4}(?:dear|hi|hello|hey)[ ]", re.IGNORECASE)
_LAST_WORDS = re.compile(rf"[.!?)](?:[ ]{{1,2}}|\s{{0,2}}\n)(?P<name>{WORD}(?:[ ]{WORD})?)\s{{0,4}}\Z")
_MAX_LAST_CHARS = 60
_NO_LAST_WORDS = _CLOSING_WORDS | words_of("bye ok okay yes no please soon sorry tomorrow sent yours")
_LISTED = re.compile(rf"(?:,|;| and| &)[ ]{_TITLE}(?=(?P<name>{WORD}(?:[ ]{WORD}){{0,3}}))", re.IGNORECASE)
_MAX_LISTED = 20
_HONORED = re.compile(
    r"(?P<own>[\u4e00-\u9fff々]{2,6}|[\u30a1-\u30ffー・]{2,16})(?=(?:と|って)(?:申し|もうし|言い|いい)ます)|"
    r"(?P<name>(?![客皆奥王神各貴同])[\u4e00-\u9fff々]{1,4}|[\u30a1-\u30ffー]{2,8})(?=さん|さま|様|氏|先生|女士|小姐)"
    r"|(?P<other>[\uac00-\ud7a3]{2,4})(?= ?씨| ?님)"
)
_PATRONYMIC = re.compile(
    r"(?<![^\W_])(?P<name>(?:[а-яёіїєґ]{2,20}[ ])?[а-яёіїєґ]{2,20}(?:ович|евич|ївна|івна|йович|овна|евна|инична)"
    r"(?:[ ][а-яёіїєґ]{1,20}(?:ов|ова|ев|ева|ин|ина|ский|ская|ко|ук|юк|ий|ая))?)(?![^\W_])",
    re.IGNORECASE,
)
_OF_FATHER = re.compile("(?:вич|вна|чна)", re.IGNORECASE)
"""Russian and Ukrainian names with that of the father."""
_SENTENCE_END = re.compile(r"(?<=[^\W\d_]{4})\.\s")
"""A shorter word with a point may be an initial or a title."""
NO_NAMES = re.compile(
    r"(?:str|string|text|char|varchar|int|none|null|nil|true|false|undefined|unknown|optional|required|n/?a|n\.a|"
    r"tbd|tba"
    r"|self|and|as above|ditto|anonymous|withheld|keine?|unbekannt|inconnu|ninguno|desconocido|aucun|нет"
    r"|value|default|test|example)(?![^\W_]).*|not (?:applicable|available|known|given|provided)|[nx]",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = "the|not|a|an|or|see|same"
_NO_NAMES_IN_SMALL_LETTERS = re.compile(
    rf"(?:{_WORDS})(?![^\W_]|\.).*|(?i:{_WORDS}) (?!{PARTICLE}(?![^\W_]))[a-z].*", re.DOTALL
)
"""As An Nguyen, Or Cohen and A. Turing are names, so is such a word with a capital before no small letter."""
_NEXT_FIELD, _NEXT_WORD = re.compile("[ ]?[:：]"), re.compile(r"[ ]\w")
_NOT_APPLICABLE = re.compile(r"n(?:/|\.| )?a\.?(?![^\W_])", re.IGNORECASE)
_NO_TITLED = words_of("president chairman chairwoman speaker minister ambassador pepper and or universe")


COLUMN = re.compile(
    r"(?:e-?mail|phone|telephone|mobile|fax|address|street|city|country|company|department|position|title|role|gender|sex|"
    r"age|born|dob|birth ?da(?:te|y)|date|status|amount|price|total|sum|balance|quantity|salary|"
    r"notes?|comment|id|no)s?\.?",
    re.IGNORECASE,
)
"""Titles of columns that have no names; in columns of names, what is below the last of them."""


def announced_names(clues: Clues) -> Iterable[LabeledSpan]:
    """The names that a text announces; spans may overlap. In linear time."""
    return dict.fromkeys((*_behind_words(clues), *_of_persons(clues)))


def _behind_words(clues: Clues) -> Iterator[LabeledSpan]:
    """Names behind fields and phrases, and before honorifics."""
    text, may_be_field = clues.text, clues.has_part(FIELD_PARTS)
    in_code = matches_near(_QUOTED, text, _QUOTE, before=40, behind=200)
    fields = _FIELD.finditer(text) if may_be_field and has_fields(text) else ()
    alone = _ALONE.finditer(text) if may_be_field else ()
    for match in chain(fields, alone, in_code):
        name, pattern = _before_next_field(match), match.re
        if pattern is _FIELD and (_NOT_APPLICABLE.match(text, match.start("name")) or _is_header(match)):
            continue
        if pattern is _ALONE and not is_full_name(name, min_words=1):
            continue
        is_whole = len(name) < len(match["name"]) or not _NEXT_WORD.match(text, match.end("name"))
        if name[:1].islower():
            words = " ".join(name.split(" ")[:2])
        elif pattern is _FIELD and not _has_case(name[:1]) and is_whole:
            words = name
        else:
            words = _capitalised(name)
        yield from _span(words, match.start("name"), name)
    for match in _PHRASE.finditer(text) if clues.has_part(_PHRASE_PARTS) else ():
        yield from _span(_capitalised(match["name"]), match.start("name"), match["name"])
    if text.isascii():
        return
    for match in _HONORED.finditer(text):
        group = match.lastgroup or ""
        yield from _span(match[group], match.start(group), match[group])
    for match in matches_near(_PATRONYMIC, text, _OF_FATHER, before=50, behind=30):
        yield from _span(match["name"], match.start("name"), match["name"])


def _of_persons(clues: Clues) -> Iterator[LabeledSpan]:
    """Full names in fields that may have other values, names behind titles, in greetings, and at the end of letters."""
    text = clues.text
    for match in _ROLE.finditer(text) if has_fields(text) else ():
        found: re.Match[str] | None = match
        for _ in range(_MAX_LISTED):
            name = _capitalised(_before_next_field(found)) if found else ""
            if not found or not is_full_name(name, min_words=2 if name.isascii() or name[:1].isupper() else 1):
                break
            yield from _span(name, found.start("name"), name)
            found = _LISTED.match(text, found.start("name") + len(name))
    last = _LAST_WORDS.search(text, max(0, len(text) - _MAX_LAST_CHARS)) if _GREETS.match(text) else None
    if last and is_full_name(last["name"], min_words=1):
        first = last["name"].split(" ")[0].lower()
        is_firm = last["name"].isupper() and not text.isupper()
        if last["name"][:1].isupper() and not is_firm and first not in _NO_LAST_WORDS and first not in NO_GIVEN_NAMES:
            yield from _span(last["name"], last.start("name"), last["name"])
    may_be_writer = clues.has_word(_I_AM_WORDS)
    patterns = (
        (_TITLED, 1, clues.has_word(_TITLE_WORDS)),
        (_GREETING, 1, clues.has_word(_GREETING_WORDS)),
        (_CLOSING, 1, clues.has_word(_CLOSING_WORDS) or clues.has_part("-–—")),
        (_I_AM, 2, may_be_writer),
        (_AM, 1, may_be_writer),
    )
    for pattern, min_words in ((pattern, min_words) for pattern, min_words, may_match in patterns if may_match):
        for match in pattern.finditer(text):
            name = _capitalised(match["name"])
            first = name.split(" ")[0].lower()
            is_name = is_full_name(name, min_words=min_words) and first not in _NO_TITLED
            is_name = is_name and not _is_behind_diagnosis(match, name)
            if pattern is _GREETING and (first in NO_GIVEN_NAMES or (match["comma"] and name != match["name"])):
                continue  # Hi, I need help
            is_title = pattern is not _TITLED or match["title"][:1].isupper() or _SMALL_TITLE.fullmatch(match["title"])
            if is_name and (is_title or name.isupper()):
                yield from _span(name, match.start("name"), name)


def _is_behind_diagnosis(match: re.Match[str], name: str) -> bool:
    """Whether a title in capitals is a diagnosis, and its name begins the next sentence: "moderate MR. Start"."""
    is_title = match.re is not _TITLED or match["title"] not in ("MR", "MS") or name.isupper()
    return not is_title and MEDICAL.search(match.string) is not None


def _is_header(match: re.Match[str]) -> bool:
    """Whether a field and its name are the titles of two columns, with a tab between them."""
    start, end = match.span("name")
    return match.string[start - 1] == "\t" and COLUMN.fullmatch(match.string, start, end) is not None


def _span(name: str, start: int, words: str) -> Iterator[LabeledSpan]:
    """The span of a name, if it is one. words: the name, and what follows it."""
    name = _SENTENCE_END.split(name)[0].rstrip(" .\u00a0'’\\")
    if name and not NO_NAMES.fullmatch(name) and not _NO_NAMES_IN_SMALL_LETTERS.fullmatch(words):
        yield LabeledSpan(start, start + len(name), "person", by_recognizer=True, score=_SCORE)


def _before_next_field(match: re.Match[str]) -> str:
    """The name of a match, without its last word if that is the next field, in a script without case."""
    name, blank, last = match["name"].rpartition(" ")
    is_field = blank and not _has_case(last) and _NEXT_FIELD.match(match.string, match.end("name"))
    return name if is_field else match["name"]


def _has_case(word: str) -> bool:
    return word.lower() != word.upper()


def _capitalised(words: str) -> str:
    """The words before one in small letters that is no particle of a name; at most two in a script without case."""
    kept: list[str] = []
    for word in words.split(" "):
        has_case = _has_case(word)
        if (has_case and word[:1].islower() and not is_particle(word)) or (not has_case and len(kept) == 2):
            break
        kept.append(word)
        if word.endswith((",", ".")) and len(word) > 4:
            break
    while kept and is_particle(kept[-1]) and kept[-1].islower():
        kept.pop()
    return " ".join(kept)
