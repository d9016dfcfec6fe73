"""Social security, tax and other identity numbers, by python-stdnum's checks, their form, and the words near them."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import replace

from gliner_bento.privacy.recognizers.base import Check, Rule, number, stdnum_check

_SPELLED = 0.4  # score of a spelling that needs a word near it, without that word
_SEPARATOR = r"[ .\-]?"
_CHAR = re.compile(r"(\[[^\]]+\]|\\d|\w)(?:\{(\d+)\})?")
"""A character of a pattern, and how often it comes."""


def _identity(
    entity: str,
    usual: str,
    check: str | Check,
    score: float,
    words: str,
    *,
    spelled: str = "",
    spelled_check: str | Check = "",
    unchecked: bool = False,
) -> tuple[Rule, ...]:
    """The rules of an identity number.

    usual: pattern of a number as it is usually written, with this `score`. spelled: of further spellings, in upper and
    lower case; they need a word near them. spelled_check: of these, if they have another. unchecked: whether numbers
    with a wrong check digit are found right behind a word, because some that are in use have one.
    """
    any_spelling = f"(?i:{spelled or usual})"
    rules = [number(entity, usual, check, score, words)]
    if spelled:
        rules.append(replace(number(entity, any_spelling, spelled_check or check, _SPELLED, words), needs_word=True))
    if unchecked:
        rules.append(number(entity, any_spelling, "", 0.0, words))
    return tuple(rules)


def _grouped(*sizes: int) -> str:
    """The pattern of digits in groups of these sizes, with or without separators between them."""
    return _SEPARATOR.join(rf"\d{{{size}}}" for size in sizes)


def _apart(chars: str) -> str:
    """The pattern of a number whose characters may be grouped in any way. chars: such as `[XY]\\d{7}`."""
    return r"[ .\-/:]?".join(char for char, times in _CHAR.findall(chars) for _ in range(int(times or 1)))


def _compact(check: str | Check) -> Check:
    """The check of a number without separators, in upper case. check: a function, or a module of python-stdnum."""
    is_valid = stdnum_check(check) if isinstance(check, str) else check
    return lambda text: is_valid(re.sub(r"[\W_]", "", text).upper())


def _is_dea(text: str) -> bool:
    """Whether the check digit of a DEA registration number is right."""
    digits = [*map(int, text[2:])]
    return (sum(digits[0:6:2]) + 2 * sum(digits[1:6:2])) % 10 == digits[6]


@_compact
def _is_npi(digits: str) -> bool:
    """Whether the check digit is right, computed with the prefix 80840 (health, US); the rest must not be one digit."""
    return len(set(digits[1:9])) > 1 and stdnum_check("luhn")(f"80840{digits}")


@_compact
def _is_ssn(digits: str) -> bool:
    """Whether the ranges of SSNs include the number, and stdnum's list of numbers from advertisements does not."""
    return stdnum_check("us.ssn")(f"{digits[:3]}-{digits[3:5]}-{digits[5:]}")


@_compact
def _is_itin(digits: str) -> bool:
    """Whether the fourth and fifth digits are ones that the IRS gives out; stdnum lacks 50 to 65."""
    return 50 <= int(digits[3:5]) <= 65 or stdnum_check("us.itin")(digits)


@_compact
def _is_nif(text: str) -> bool:
    """Whether the letter is right. The zeros at the beginning may be missing."""
    return stdnum_check("es.dni")(text.zfill(9))


@_compact
def _is_brn(digits: str) -> bool:
    """Whether the check digit is right, which python-stdnum does not look at."""
    weighted = sum(weight * int(digit) for weight, digit in zip((1, 3, 7, 1, 3, 7, 1, 3, 5), digits, strict=False))
    return stdnum_check("kr.brn")(digits) and (weighted + 5 * int(digits[8]) // 10 + int(digits[9])) % 10 == 0


@_compact
def _has_date(digits: str) -> bool:
    """Whether a number begins with a date: YYMMDD, of any century."""
    year, month, day = (int(digits[index : index + 2]) for index in (0, 2, 4))
    return 1 <= month <= 12 and 1 <= day <= monthrange(2000 + year, month)[1]


@_compact
def _is_za_id(digits: str) -> bool:
    """Whether check digit and date are right. python-stdnum refuses the numbers of refugees."""
    return _has_date(digits) and digits[10] in "012" and stdnum_check("luhn")(digits)


@_compact
def _is_personnummer(digits: str) -> bool:
    """Whether check digit and date are right; 60 more is the day of a coordination number."""
    *month, day = digits[-8:-6], int(digits[-6:-4])
    date = digits[-10:-8] + month[0] + f"{day - 60 if day > 60 else day:02}"
    return _has_date(date) and stdnum_check("luhn")(digits[-10:])


def _is_hetu(text: str) -> bool:
    """Whether the check character is right. The dash may be missing."""
    compact = re.sub("[ .]", "", text).upper()
    with_dash = f"{compact[:6]}-{compact[6:]}" if len(compact) == 10 else compact
    return stdnum_check("fi.hetu", allow_temporary=True)(with_dash)


@_compact
def _is_organization(digits: str) -> bool:
    """Whether the check digit is right, and the third and fourth digits are no month, as those of a person are."""
    return int(digits[-8:-6]) >= 20 and stdnum_check("luhn")(digits[-10:])


@_compact
def _is_medicare(digits: str) -> bool:
    """Whether the ninth digit of an Australian Medicare number is right."""
    weighted = sum(weight * int(digit) for weight, digit in zip((1, 3, 7, 9) * 2, digits, strict=False))
    return weighted % 10 == int(digits[8])


@_compact
def _is_kvnr(text: str) -> bool:
    """Whether the check digit of a German health insurance number is right; its letter stands for 01 to 26."""
    return stdnum_check("luhn")(f"{ord(text[0]) - ord('A') + 1:02}{text[1:]}")


@_compact
def _is_pension_number(text: str) -> bool:
    """Whether the check digit of a German pension insurance number is right; its letter stands for 01 to 26."""
    digits = f"{text[:8]}{ord(text[8]) - ord('A') + 1:02}{text[9:]}"
    products = (
        weight * int(digit) for weight, digit in zip((2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1), digits, strict=False)
    )
    return sum(sum(divmod(product, 10)) for product in products) % 10 == int(digits[12])


_SSN = "ssn,ss#,social security,social"
_TAX = "tax,taxpayer,tin"
_ITIN = "itin," + _TAX
_SIN = "sin,social insurance,nas,assurance sociale"
_PERSONNUMMER = (
    "personnummer,personnummret,personnr,persnr,pnr,samordningsnummer,swedish id,personal identity number,"
    "personal identity code"
)
_RRN = "rrn,resident registration,korean,주민 등록 번호,주민 번호"

_DEA = r"(?i:[A-HJ-MPR-UX][A-Z9])\d{7}"
_MBI_LETTER, _MBI_ANY = "[AC-HJKMNP-RT-Y]", r"[AC-HJKMNP-RT-Y\d]"
_MBI = rf"[1-9]{_MBI_LETTER}{_MBI_ANY}\d-?{_MBI_LETTER}{_MBI_ANY}\d-?{_MBI_LETTER}{{2}}\d\d"
_NINO_PREFIX = "(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]"
_NINO = rf"{_NINO_PREFIX} ?(?:\d{{6}}|\d\d ?\d\d ?\d\d) ?[A-D]"
_NIR = r"[12] ?\d\d ?(?:0[1-9]|1[0-3]|20|3\d|4[0-2]|[5-9]\d) ?(?!00)(?:\d\d|2(?i:[AB])) ?\d{3} ?\d{3} ?\d\d"
_FISCAL_CODE = r"[A-Z]{6}#{2}[A-Z]#{2}[A-Z]#{3}[A-Z]".replace("#", r"[\dLMNP-V]")  # a letter may stand for a digit

RULES = (
    number("US_SSN", r"\d{3}([- .])\d{2}\1\d{4}", _is_ssn, 0.5, _SSN),
    number("US_SSN", r"\d{9}|\d{5}-\d{4}|\d{3}-\d{6}", _is_ssn, 0.05, _SSN),
    number("US_ITIN", r"9\d\d([- .]?)\d{2}\1\d{4}", _is_itin, 0.4, _ITIN),
    number("US_ITIN", r"9\d\d-\d{6}|9\d{4}-\d{4}", _is_itin, 0.05, _ITIN),
    number("US_NPI", r"[12]\d{3}([- ]?)\d{3}\1\d{3}", _is_npi, 0.1, "npi,provider,national provider"),
    number("MEDICAL_LICENSE", _DEA, _is_dea, 0.6, "dea,medical,license"),
    number("MEDICAL_LICENSE", _DEA.replace(r"\d", r"[ \-]?\d", 1), "", 0.0,
           "dea,dea registration,medical license,medical licence"),
    *_identity("US_MBI", _MBI, "", 0.5, "medicare,mbi,beneficiary,cms,medicaid,hicn",
               spelled=_apart(rf"[1-9]{_MBI_LETTER}{_MBI_ANY}\d{_MBI_LETTER}{_MBI_ANY}\d{_MBI_LETTER}{{2}}\d{{2}}")),
    number("CA_SIN", r"\d{3}([- ])\d{3}\1\d{3}", "ca.sin", 0.4, _SIN),
    number("CA_SIN", r"\d{9}|\d{3}\.\d{3}\.\d{3}", _compact("ca.sin"), 0.05, _SIN),
    number("UK_NHS", r"\d{3}([- .]?)\d{3}\1\d{4}", _compact("gb.nhs"), 0.4, "nhs,national health,health services"),
    *_identity("UK_NINO", _NINO, "", 0.5, "national insurance,nat insurance,nino,ni,ni number,ni no",
               spelled=_NINO_PREFIX + _SEPARATOR + _apart(r"\d{6}[A-D]")),
    *_identity("ES_NIF", r"\d{8}-?[A-HJ-NP-TV-Z]", _is_nif, 1.0,
               "dni,nif,identificación,documento de identidad,documento nacional de identidad",
               spelled=rf"(?:\d{_SEPARATOR})?" + _apart(r"\d{7}[A-HJ-NP-TV-Z]")),
    *_identity("ES_NIE", r"[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]", _compact("es.nie"), 1.0, "nie,extranjero,extranjería",
               spelled=_apart(r"[XYZ]\d{7}[A-HJ-NP-TV-Z]")),
    *_identity("IT_FISCAL_CODE", f"(?i:{_FISCAL_CODE})", "it.codicefiscale", 1.0,
               "fiscale,codice fiscale,cod fisc,cf",
               spelled=_apart(_FISCAL_CODE), unchecked=True),
    *_identity("IT_VAT_CODE", r"(?:(?i:IT) ?)?\d{11}", _compact("it.iva"), 0.2, "iva,piva,p.iva,vat,vat id",
               spelled=rf"(?:IT{_SEPARATOR})?" + _apart(r"\d{11}")),
    *_identity("DE_VAT_ID", r"DE ?\d{9}", _compact("de.vat"), 1.0,
               "ust,ust-id,ust-idnr,ust-id-nr,umsatzsteuer,umsatzsteuer-id,umsatzsteuer-identifikationsnummer,"
               "umsatzsteueridentifikationsnummer,umsatzsteuernummer,vat,vat id,vatin",
               spelled="DE" + _SEPARATOR + _apart(r"\d{9}"), unchecked=True),
    number("DE_TAX_ID", r"\d{2}([ ./\-]?)\d{3}\1\d{3}\1\d{3}", _compact("de.idnr"), 0.2,
           "steuer,steuer-id,steuer-idnr,steueridentifikationsnummer,identifikationsnummer,idnr," + _TAX),
    number("DE_TAX_NUMBER", r"\d{2,3}([ /]?)\d{3,4}\1\d{4,5}", _compact("de.stnr"), 0.05,
           "steuernummer,steuer-nr,st-nr,finanzamt"),
    *_identity("DE_SOCIAL_SECURITY", r"\d{8}[A-Z]\d{3}", _is_pension_number, 0.5,
               "rentenversicherung,rentenversicherungsnummer,rvnr,sozialversicherungsnummer,sv-nummer,vsnr,"
               "versicherungsnummer", spelled=_apart(r"\d{8}[A-Z]\d{3}")),
    *_identity("DE_HEALTH_INSURANCE", r"[A-Z]\d{9}", _is_kvnr, 0.4,
               "krankenversicherung,krankenversicherungsnummer,krankenversichertennummer,kvnr,kv-nr,krankenkasse,"
               "versichertennummer,versicherten-nr,gesundheitskarte", spelled=_apart(r"[A-Z]\d{9}")),
    *_identity("FR_NIR", _NIR, _compact("fr.nir"), 1.0, "nir,sécurité sociale,sécu,insee,carte vitale",
               spelled=_apart(r"[1-478]\d{5}[\dAB]\d{8}")),
    number("PL_PESEL", _grouped(2, 2, 2, 5), _compact("pl.pesel"), 0.4, "pesel"),
    number("NL_BSN", r"\d{9}|\d{4}[. ]\d{2}[. ]\d{3}|\d{3}[. \-]\d{3}[. \-]\d{3}", _compact("nl.bsn"), 0.05,
           "bsn,burger service nummer,sofi,sofinummer"),
    number("BE_NATIONAL_NUMBER", _grouped(2, 2, 2, 3, 2), _compact("be.nn"), 0.4,
           "rijksregister,national,niss,insz,rijksregisternummer,registre national,rrn"),
    number("CH_AHV", _grouped(3, 4, 4, 2).replace(r"\d{3}", "756", 1), _compact("ch.ssn"), 1.0, "ahv,avs"),
    *_identity("FI_PERSONAL_IDENTITY_CODE", r"\d{6}(?i:[-+A-FU-Y]\d{3}[0-9A-Y])", _is_hetu, 1.0,
               "hetu,henkilötunnus,henkilötunnukseni,personbeteckning,personal identity code",
               spelled=r"\d\d[ .]?\d\d[ .]?\d\d(?: ?[-+A-FU-Y])? ?\d{3} ?[0-9A-Y]"),
    number("SE_PERSONNUMMER", r"(?:\d{2})?\d{6}[-+]\d{4}", "se.personnummer", 0.5, _PERSONNUMMER),
    *_identity("SE_PERSONNUMMER", r"(?:\d{2})?\d{6} ?\d{4}", "se.personnummer", 0.1, _PERSONNUMMER,
               spelled=rf"(?:\d\d{_SEPARATOR})?" + _apart(r"\d{10}"), spelled_check=_is_personnummer),
    number("SE_ORGANISATIONSNUMMER", r"(?:16)?\d{6}[ \-]?\d{4}", _is_organization, 0.1,
           "organisationsnummer,organisationsnr,orgnr,org nr,org number,swedish company"),
    number("TR_NATIONAL_ID", rf"(?!0){_grouped(3, 3, 3, 2)}", _compact("tr.tckimlik"), 0.4,
           "kimlik,tckn,tc no,turkish id,türk kimlik,nüfus cüzdanı"),
    *_identity("IN_PAN", r"[A-Za-z]{5}\d{4}[A-Za-z]", "in_.pan", 0.5, "pan,permanent account",
               spelled=r"[A-Z]{5}[ \-]?\d{4}[ \-]?[A-Z]", unchecked=True),
    number("IN_AADHAAR", r"\d{4}([ :.\-]?)\d{4}\1\d{4}", _compact("in_.aadhaar"), 0.4, "aadhaar,aadhar,uidai"),
    *_identity("IN_GSTIN", r"\d{2}[A-Z]{5}\d{4}[A-Z][A-Z\d]Z[A-Z\d]", "in_.gstin", 1.0, "gst,gstin,gst registration",
               spelled="(?!00|3[89])" + _apart(r"[0-3]\d[A-Z]{5}\d{4}[A-Z][A-Z1-9]Z[A-Z\d]"), unchecked=True),
    *_identity("IN_VOTER", r"[A-Za-z]{3}\d{7}", "in_.epic", 0.3, "voter,voter id,epic,election,elector",
               spelled=r"[A-Z]{3}[ \-]?\d{7}", unchecked=True),
    number("AU_ABN", r"\d{2}([ .\-]?)\d{3}\1\d{3}\1\d{3}", _compact("au.abn"), 0.2, "abn,business number"),
    number("AU_ACN", _grouped(3, 3, 3), _compact("au.acn"), 0.05, "acn,company number"),
    number("AU_MEDICARE", r"[2-6]\d{3}[ \-]?\d{5}[ \-]?\d(?:[ /\-]?[1-9])?", _is_medicare, 0.1, "medicare"),
    number("AU_TFN", _grouped(3, 3, 3), _compact("au.tfn"), 0.05, "tfn,tax file"),
    *_identity("SG_NRIC_FIN", r"[STFGM]\d{7}[A-Z]", "", 0.3, "nric,fin,ic,foreign identification",
               spelled=_apart(r"[STFGM]\d{7}[A-Z]")),
    *_identity("SG_UEN", r"(?:19|20)\d{7}[A-Z]|[RST]\d\d[A-Z]{2}\d{4}[A-Z]", "sg.uen", 0.4,
               "uen,unique entity,singapore company,acra",
               spelled=r"\d{8,9}[ \-]?[A-Z]|[RST]\d\d[ \-]?[A-Z]{2}[ \-]?\d{4}[ \-]?[A-Z]"),
    number("TH_TNIN", r"(?!.[ \-]?(?:0|28|29|59|6[89]|7[89]|8[7-9]|9[7-9]))\d([ \-]?)\d{4}\1\d{5}\1\d{2}\1\d",
           "th.pin", 0.3, "thai,tnin,pin,เลขประจำตัวประชาชน,เลขบัตรประชาชน,รหัสปชช"),
    number("KR_RRN", r"\d{6}[\- ]?\d{7}", _compact("kr.rrn"), 0.4, _RRN),
    number("KR_RRN", r"\d{6}[\- ]?[1-4]\d{6}", _has_date, 0.0, _RRN),
    number("KR_FRN", r"\d{6}[\- ]?[5-8]\d{6}", _has_date, 0.0,
           "frn,foreigner registration,alien registration,외국인 등록 번호"),
    *_identity("KR_BRN", r"\d{3}([ \-]?)\d{2}\1\d{5}", _is_brn, 0.4,
               "brn,business registration,사업자 등록 번호,사업자 번호", spelled=_grouped(3, 2, 5)),
    *_identity("CN_RESIDENT_ID", r"\d{17}[\dXx]", "cn.ric", 1.0, "resident identity,resident id,身份证",
               spelled=_apart(r"\d{17}[\dX]")),
    number("ZA_ID_NUMBER", _grouped(6, 4, 2, 1), _is_za_id, 0.4, "id,identity,rsa id,resident number"),
    number("BR_CPF", r"\d{3}\.\d{3}\.\d{3}-\d{2}", "br.cpf", 1.0, "cpf"),
    number("BR_CPF", _grouped(3, 3, 3, 2), _compact("br.cpf"), 0.1, "cpf"),
    *_identity("MX_CURP", r"(?i:[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z\d]\d)", _compact("mx.curp"), 1.0, "curp",
               spelled=_apart(r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z\d]\d")),
)  # fmt: skip
