"""Names that a text announces, in many languages: behind a field such as `Surname:` or a phrase such as "my name is",
and before an honorific such as さん. Models miss many in small letters, tables, code and scripts that they know little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.6
_WHOSE = (
    "full|first|last|given|family|maiden|middle|birth|legal|patient|customer|client|contact|employee|applicant|tenant|"
    "landlord|owner|user|author|holder|member|student|child|mother|father|parent|guardian|spouse|recipient|sender|guest"
)
_FIELDS = (
    rf"(?:(?:{_WHOSE})(?:['’]s)?[ _-]?)?names?|surname|forename|applicant|account holder|beneficiary|next of kin|"
    "signed(?: for)? by|reported by|taxpayer|landlord|tenant|recipient|"
    "nachname|vorname|familienname|nom(?: de famille)?|prénom|nombres?|apellidos?|cognome|nome|sobrenome|naam|"
    "achternaam|voornaam|namn|efternamn|förnamn|navn|etternavn|fornavn|nimi|sukunimi|etunimi|imię|nazwisko|jméno|příjmení|"
    "soyadı?|họ tên|фио|имя|фамилия|ім'я|прізвище|όνομα|επώνυμο|姓名|氏名|お名前|名前|联系人|聯絡人|申请人|申請人|"
    "이름|성명|الاسم|שם|नाम|ชื่อ"
)
_PHRASES = (
    "my name is|my name['’]s|mein name ist|ich hei(?:ß|ss)e|je m['’]appelle|mon nom est|me llamo|mi nombre es|"
    "mi chiamo|il mio nome è|meu nome é|chamo-me|me chamo|mijn naam is|ik heet|jag heter|jeg heter|jeg hedder|"
    "nazywam się|mam na imię|jmenuji se|nimeni on|numele meu este|mă numesc|benim adım|tôi tên là|nama saya|"
    "меня зовут|мене звати|με λένε|ονομάζομαι|اسمي|שמי|मेरा नाम|ฉันชื่อ|ผมชื่อ|我叫|我的名字是|私の名前は|제 이름은"
)
_CJK = "\u3040-\u30ff\u4e00-\u9fff々\uac00-\ud7a3"
_CJK_NAME = rf"[{_CJK}]{{2,8}}?(?=です|と申|という|입니다|이고|이에요|예요|이라고|はは|[^{_CJK}]|\Z)|[{_CJK}]{{2,4}}"
_WORD = r"[^\W\d_][^\s\"“”<>,;:=*|/(){}\[\]!?。、，；।]{0,40}"
_NAME = rf"(?:{_CJK_NAME}|{_WORD}(?:[ \u00a0]{_WORD}){{0,3}})"
_FIELD = re.compile(
    rf"(?<![^\W_])(?<![^\W_][ ])(?:{_FIELDS})[\"']?"
    r"\*{0,2}(?:[ ]?(?:[:：]\*{0,2}[ \t]{0,8}\*{0,2}|=[ \t]{0,8})|\t)[\"'“]?"  # **Name:** or Name: **Ada**, too
    rf"(?=(?P<name>{_NAME})(?![\w(\[=]))",
    re.IGNORECASE,
)
_PHRASE = re.compile(rf"(?<![^\W_])(?:{_PHRASES})[ ]?(?=(?P<name>{_NAME}))", re.IGNORECASE)
_HONORED = re.compile(
    r"(?P<name>[\u4e00-\u9fff々]{1,4}|[\u30a1-\u30ffー]{2,8})(?=さん|さま|様|氏|先生|女士|小姐)"
    r"|(?P<other>[\uac00-\ud7a3]{2,4})(?= ?씨| ?님)"
)
_SENTENCE_END = re.compile(r"(?<=[^\W\d_]{4})\.\s")
"""A shorter word with a point may be an initial or a title."""
_NO_NAMES = re.compile(
    r"(?:str|string|text|char|varchar|int|none|null|nil|true|false|undefined|unknown|optional|required|n/?a|tbd|self|and"
    r"|value|default|test|example)(?![^\W_]).*|not applicable",
    re.IGNORECASE | re.DOTALL,
)
_PARTICLE = r"(?:van|von|der|den|de|da|di|do|dos|del|della|la|le|bin|ibn|al|el|zu|ter|ten|y|e|d['’].*)"
_PARTICLES = re.compile(_PARTICLE, re.IGNORECASE)
_WORDS = "the|not|a|an|or|see|same"
_NO_NAMES_IN_SMALL_LETTERS = re.compile(
    rf"(?:{_WORDS})(?![^\W_]|\.).*|(?i:{_WORDS}) (?!{_PARTICLE}(?![^\W_]))[a-z].*", re.DOTALL
)
"""As An Nguyen, Or Cohen and A. Turing are names, so is such a word with a capital before no small letter."""


def announced_names(text: str) -> Iterator[LabeledSpan]:
    """The names that a text announces; spans may overlap. In linear time."""
    for match in _FIELD.finditer(text):
        name = match["name"]
        words = " ".join(name.split(" ")[:2]) if name[:1].islower() else _capitalised(name)
        yield from _span(words, match.start("name"), name)
    for match in _PHRASE.finditer(text):
        yield from _span(_capitalised(match["name"]), match.start("name"), match["name"])
    for match in _HONORED.finditer(text):
        group = match.lastgroup or ""
        yield from _span(match[group], match.start(group), match[group])


def _span(name: str, start: int, words: str) -> Iterator[LabeledSpan]:
    """The span of a name, if it is one. words: the name, and what follows it."""
    name = _SENTENCE_END.split(name)[0].rstrip(" .\u00a0'’\\")
    if name and not _NO_NAMES.fullmatch(name) and not _NO_NAMES_IN_SMALL_LETTERS.fullmatch(words):
        yield LabeledSpan(start, start + len(name), "person", by_recognizer=True, score=_SCORE)


def _capitalised(words: str) -> str:
    """The words before one in small letters that is no particle of a name; at most two in a script without case."""
    kept: list[str] = []
    for word in words.split(" "):
        has_case = word.lower() != word.upper()
        if (has_case and word[:1].islower() and not _PARTICLES.fullmatch(word)) or (not has_case and len(kept) == 2):
            break
        kept.append(word)
    return " ".join(kept)
