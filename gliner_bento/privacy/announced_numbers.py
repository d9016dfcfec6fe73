"""Numbers and account names that a text announces by a field, such as `Customer no.: 20391` or `user=ada`, ages, and
phone numbers in the form of another country."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gliner_bento.privacy.name_words import WORD_START, words_of
from gliner_bento.privacy.near import Clues, has_fields, matches_near
from gliner_bento.privacy.spans import LabeledSpan

_SCORE = 0.6
_OWNERS = (
    "employee|personnel|staff|customer|client|member(?:ship)?|patient|student|pupil|account|acct|policy|card|case|file|"
    "claim|licen[cs]e|driver['’]?s? licen[cs]e|passport|badge|tax(?:payer)?|national|identity|insurance|"
    "social security|"
    "voter|health card|library card|registration|certificate|accession|chart|record|medical record|beneficiary|"
    "subscriber|group|visa|residence permit|payroll|loan|mortgage|enrol?lment|applicant|participant|donor|"
    "vehicle|license plate|number plate|plate|hospital|hosp[.]?|specimen|referral|encounter|episode|"
    "pathology|histology|laboratory|lab|sample|admission|adm"
)
_NUMBER = r"(?:[ _-]?(?:id(?:entification)?|no|nr|num|number|code|#|ref)\b\.?(?: ?(?:no|number)\b\.?)?|#)"
_FOREIGN = (
    r"(?:kunden|mitglieds?|personal|vertrags|versicherungs|versicherten|steuer|matrikel|ausweis|pass|patienten|"
    r"konto)[ -]?"
    r"(?:nummer|nr\.?)|kd\.?[ -]?nr\.?|pers\.?[ -]?nr\.?|(?:n°|numéro|nº|número|num\.) (?:de |d['’])?(?:client|"
    r"dossier|compte|"
    r"cliente|cuenta|contrato|contrat|póliza|adhérent|socio|employé|empleado|passeport|pasaporte)|ssn|mrn|nhs|nhi|urn|phn|(?-i:VIN)|"
    r"ohip|accession|dni|nie|"
    r"tax code|codice fiscale|cpf|rut|curp|nip|pesel|sozialversicherungsnummer|客户编号|会员号|学号|身份证号?|"
    r"会員番号|顧客番号|社員番号|"
    r"고객번호|회원번호|사번|номер (?:паспорта|полиса|договора|карты|счета)|паспорт|снилс|инн"
)
_CODE = r"(?=[^\s\d]{0,40}\d)(?:[^\W_]|(?<=[^\W_])[-/.#*](?=[^\W_])|(?<=\d)[ ](?=\d)){4,40}"
_NUMBERS = re.compile(
    rf"{WORD_START}(?:(?:{_OWNERS})(?:{_NUMBER}|(?=[ ]#))|{_FOREIGN})(?: ?\([^()\n]{{1,30}}\))?[\"']?\*{{0,2}}[ ]?"
    r"(?:[:：=#]|is|\t|"
    rf"[ ]{{1,12}})"
    rf"\*{{0,2}}[ \t]{{0,8}}[\"']?(?=(?P<value>{_CODE}))(?<![\d.,-])",
    re.IGNORECASE,
)
_NUMBER_PARTS = words_of(
    "employee personnel staff customer client member patient student pupil account acct policy card case file "
    "claim licen passport badge tax national identity insurance security voter registration certificate accession "
    "chart record beneficiary subscriber group visa residence payroll loan mortgage enrolment enrollment "
    "applicant participant donor vehicle plate nummer nr num. ssn mrn vin nhs nhi urn phn ohip dni nie codice cpf rut "
    "pathology histology lab sample adm "
    "curp nip pesel hosp specimen referral encounter episode "
    "n°"
)
"""Each match of `_NUMBERS` that is ASCII has one of these in it."""
_DIGITS = re.compile(r"\d{1,40}")
_SHORT = re.compile(
    rf"{WORD_START}(?:(?:sort ?code|bankleitzahl|blz)(?:[ ]is)?[ ]?[:=#]?[ ]{{0,4}}"
    rf"(?P<code>\d\d(?P<sign>[ -]?)\d\d(?P=sign)\d\d|\d{{3}} ?\d{{3}} ?\d\d)"
    r"|(?:(?:licen[cs]e|number|vehicle|car)[ ]?plates?|plates?|(?:vehicle[ ])?reg(?:istration)?(?:[ ](?:no|number|"
    r"mark))?\.?|kennzeichen|immatriculation|matr[ií]cula|targa)[ ]?(?:is|was|[:=#])?[ ]{1,4}"
    r"(?-i:(?=[A-Z -]{0,8}\d)(?=[\d -]{0,8}[A-Z])(?P<plate>[A-Z\d]{1,4}(?:[ -]?[A-Z\d]{1,4}){1,2}))"
    r"|(?:ni|nino|national insurance)(?:[ ](?:no|number))?\.?[ ]?[:=#]?[ ]{0,4}"
    r"(?-i:(?P<insurance>[A-Z]{2} ?\d\d ?\d\d ?\d\d ?[A-Z])))(?![\w-])",
    re.IGNORECASE,
)
_SHORT_PARTS = (
    "sort",
    "ni n",
    "ni:",
    "bankleitzahl",
    "blz",
    "plate",
    "reg",
    "kennzeichen",
    "immatriculation",
    "matricula",
    "targa",
    "insurance",
    "nino",
)
"""Sort codes of banks, and the plates of cars: too short to be looked for without such a word. British insurance
numbers also with the letters that examples have."""
_USERS = re.compile(
    WORD_START + r"(?:user(?:[ _-]?(?:name|id))?|login|log-?in|handle|nick(?:name)?|account|screen ?name|"
    r"skype(?: id)?|telegram|instagram|"
    r"benutzername|benutzer|utilisateur|usuario|utente|логин|пользователь|用户名|"
    r"ユーザー名|아이디)[\"']?[ ]?[:：=][ ]?[\"']?"
    r"@?(?=(?P<value>[^\W\d_](?:[^\W_]|[._-](?=[^\W_])){2,40}))(?P<end>)",
    re.IGNORECASE,
)
_NO_USERS = re.compile(
    r"(?:guest|admin|administrator|root|user|users|default|anonymous|none|null|nil|unknown|system|test|self|true|"
    r"false|str|string|int|"
    r"text|www|http|https|name|get|set|new|required|optional|active|inactive|n|na|checking|savings|current|closed|"
    r"open|request|session|"
    r"service|postgres|mysql|nobody|ubuntu|debian|node|git|daemon|id|the|this|that|my|your)(?![^\W_]).*",
    re.IGNORECASE | re.DOTALL,
)
_USER_IS = re.compile(
    r"(?<![^\W_])(?:user ?name|login|handle) is (?=(?P<value>[^\W\d_](?:[^\W_]|"
    r"[._-](?=[^\W_])){2,40})(?![^\W_]))",
    re.IGNORECASE,
)
_LOGINS = re.compile(
    r"(?:session (?:opened|closed)|(?:accepted|failed) [a-z]{3,20}) for (?:(?:invalid )?user )?"
    r"(?=(?P<value>[a-z][\w.-]{2,31})(?:[ ](?:from|by)[ ]|\())",
    re.IGNORECASE,
)
"""As daemons log them."""
_PASSWORDS = "(?:password|passphrase|passwd|passcode|passwort|pwd|pw|mot de passe|contraseña|senha|пароль)"
_PASSWORD_IS = re.compile(
    rf"{WORD_START}{_PASSWORDS}"
    r"(?: (?:of|for|von|de) [^\W_]{1,20})?"
    r"(?: (?:is|was|ist|est|es|é)|:)[ ]{1,2}[\"'“]?(?=(?P<value>[^\s\"'“”]{6,64}))",
    re.IGNORECASE,
)
_PASSWORD_WORDS = words_of("password passphrase passwd passcode passwort pwd pw mot senha")
_USER_WORDS = words_of("username user login handle")
"""In each match of `_PASSWORD_IS`, and `_USER_IS`, that is ASCII, one of these is a word."""
_NO_WORD = re.compile(r"\d|.[!@#$%^&*_+=-]")
"""What no word has, but many passwords."""
_AGES = re.compile(
    r"(?<![\d./,-])(?P<age>9\d|1[01]\d)(?:[ -]?(?:y/?o|yo)(?![^\W_])|[ -]years?[ -]old[ ](?:[a-z]+[ ])?(?:man|woman|"
    r"lady|"
    r"gentleman|male|female|patient|mother|father|grand\w+|aunt|uncle|widow\w*|resident|person)(?![^\W_]))"
    r"|(?<![^\W_])(?:aged?:?|(?:he|she|who|mother|father|grand[a-z]+|gran|nan|aunt|uncle|mum|mom|dad)(?:['’]s|"
    r"[ ](?:is|was|turned|turns)|(?=[ ]\())|(?:died|dead|passed away)(?:[ ]of[ ][a-z ]{1,40})?[ ]at(?:[ ]age)?)[ ]\(?"
    r"(?P<at>9\d|1[01]\d)(?![\d./,-]\d|\d|[ ]?(?:%|[a-z/]))",
    re.IGNORECASE,
)
"""Above 89: so few are as old that the age alone says who it is."""
_AGE_SIGN = re.compile("9[0-9]|1[01][0-9]")
_NATIONAL_PHONES = re.compile(r"(?<![\w.,/+-])0\d{1,4}[ -]\d{3,4}[ -]?\d{3,4}(?![\w+]|[ .,/-]\d)")
"""As they are written in many countries, whose regions the recognizer may not look for."""
_PHONE_DIGITS = range(9, 12)
_CHINESE_MOBILES = re.compile(r"(?<![\d.,/-])1[3-9]\d{9}(?![\d.,/-])")
_HAN = re.compile("[\u4e00-\u9fff]")
_HANDLES = re.compile(
    r"(?<![\w@/.`])@(?P<value>(?=\w*(?:[_\d]|\.\w))[a-z][\w.]{3,29}(?<!\.))(?![\w(/@\r\n]|\Z|"
    r"\.\w)",
    re.IGNORECASE,
)
"""With a sign or a digit inside, and in a sentence: `@app.route(`, or a line of its own, is of code."""
_GROUPS = re.compile(r"\d{1,4}(?: \d{1,4})+")
_GROUPS_BEFORE = re.compile(r"(?<![\w.,:/-])(?:\d{1,4} ){1,4}\Z")
_GROUPS_BEHIND = re.compile(r"(?: \d{1,4}){1,4}(?!\w|[.,:/-]\d)")
_MAX_GROUP_CHARS = 20
_HOME_FOLDERS = re.compile(
    r"(?:/home|/Users|[A-Za-z]:\\{1,2}Users)[/\\]{1,2}"
    r"(?=(?P<value>[^\W\d_][\w.-]{1,30}?)[/\\\"'\s,:)])"
)
_NO_HOMES = re.compile(
    r"(?:shared|public|all users|runner\w*|vagrant|ec2-user|builder?|jenkins|circleci|app|www-data|work\w*|"
    r"linuxbrew|pi|docker|developer|dev|you|your\w*|me|name|username|\w*user)",
    re.IGNORECASE,
)
"""Accounts of systems and of examples."""
_PINS = re.compile(
    r"(?<![^\W_])(?:(?:(?-i:PIN)|pin(?=[ ](?:code|number|is)))(?:[ -](?:code|number|no\.?))?[ ]?(?:is|was|[:=])?"
    r"[ ]{1,2}(?=(?P<pin>\d{4,8})(?![\w-]|[.,/]\d))|(?:cvv2?|cvc2?|card security code)[ ]?(?:is|was|[:=])?[ ]{0,2}"
    r"(?=(?P<code>\d{3,4})(?![\w-]|[.,/]\d)))",
    re.IGNORECASE,
)
_PIN_PARTS = ("pin", "cvv", "cvc", "card security")
_TODO = re.compile(r"(?<![^\W_])(?:todo|fixme|xxx|hack)\((?=(?P<value>[a-z][a-z0-9._-]{2,30})\))", re.IGNORECASE)


def announced_numbers(clues: Clues) -> Iterator[LabeledSpan]:
    """The numbers and account names that a text announces; spans may overlap. In linear time."""
    text, may_be_number = clues.text, clues.has_part(_NUMBER_PARTS)
    for match in matches_near(_NUMBERS, text, _DIGITS, before=100, behind=40) if may_be_number else ():
        start, end = match.span("value")
        if sum(map(str.isdigit, match["value"])) >= 3:
            yield LabeledSpan(start, end, "id number", by_recognizer=True, score=_SCORE)
    for match in _SHORT.finditer(text) if clues.has_part(_SHORT_PARTS) else ():
        group = next(name for name in ("code", "plate", "insurance") if match[name])
        yield LabeledSpan(*match.span(group), "id number", by_recognizer=True, score=_SCORE)
    for match in _PASSWORD_IS.finditer(text) if clues.has_word(_PASSWORD_WORDS) else ():
        value = match["value"].rstrip(".,;:)")
        if any(map(str.isalnum, value)) and _NO_WORD.search(value):
            end = match.start("value") + len(value)
            yield LabeledSpan(match.start("value"), end, "password", by_recognizer=True, score=_SCORE)
    for match in _PINS.finditer(text) if clues.has_part(_PIN_PARTS) else ():
        yield LabeledSpan(*match.span(match.lastgroup or ""), "password", by_recognizer=True, score=_SCORE)
    yield from _ages_phones_and_handles(text)
    patterns = (
        (_USERS, has_fields(text)),
        (_TODO, "(" in text),
        (_USER_IS, clues.has_word(_USER_WORDS)),
        (_LOGINS, clues.has_part(("session ", "accepted ", "failed "))),
        (_HOME_FOLDERS, clues.has_part(("/home", "users"))),
    )
    for pattern in (pattern for pattern, may_match in patterns if may_match):
        for match in pattern.finditer(text):
            start, end = match.span("value")
            is_other = pattern is _HOME_FOLDERS and _NO_HOMES.fullmatch(match["value"])
            if not is_other and not _NO_USERS.fullmatch(match["value"]) and text[end : end + 1] not in ("(", "[", "="):
                yield LabeledSpan(start, end, "username", by_recognizer=True, score=_SCORE)


def with_all_digits(text: str, span: LabeledSpan) -> LabeledSpan:
    """The span of groups of digits that a model found, with all groups of the number: `2 87 02 59 512 034 26`."""
    if not _GROUPS.fullmatch(text, span.start, span.end):
        return span
    before = _GROUPS_BEFORE.search(text, max(0, span.start - _MAX_GROUP_CHARS), span.start)
    behind = _GROUPS_BEHIND.match(text, span.end)
    return span.at(before.start() if before else span.start, behind.end() if behind else span.end)


def _ages_phones_and_handles(text: str) -> Iterator[LabeledSpan]:
    for match in matches_near(_AGES, text, _AGE_SIGN, before=80, behind=60):
        yield LabeledSpan(*match.span(match.lastgroup or "age"), "age", by_recognizer=True, score=_SCORE)
    for match in _CHINESE_MOBILES.finditer(text) if not text.isascii() and _HAN.search(text) else ():
        yield LabeledSpan(*match.span(), "phone number", by_recognizer=True, score=_SCORE)
    for match in _HANDLES.finditer(text) if "@" in text else ():
        yield LabeledSpan(*match.span("value"), "username", by_recognizer=True, score=_SCORE)
    for match in _NATIONAL_PHONES.finditer(text):
        if sum(map(str.isdigit, match[0])) in _PHONE_DIGITS:
            yield LabeledSpan(*match.span(), "phone number", by_recognizer=True, score=_SCORE)
