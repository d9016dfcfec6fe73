"""Social security, tax and other identity numbers, by python-stdnum's checks, their form, and the words near them."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import replace

from gliner_bento.privacy.recognizers.base import Check, Rule, number, stdnum_check

_SPELLED = 0.4  # score of a spelling that needs a word near it, without that word
_SEPARATOR = r"[ .\-]?"


def _identity(
    entity: str, usual: str, check: str | Check, score: float, words: str, *, spelled: str = "", unchecked: bool = False
) -> tuple[Rule, ...]:
    """The rules of an identity number.

    usual: pattern of a number as it is usually written, with this `score`. spelled: of further spellings, in upper and
    lower case; they need a word near them. unchecked: whether numbers with a wrong check digit are found right behind
    a word, because some that are in use have one.
    """
    any_spelling = f"(?i:{spelled or usual})"
    rules = [number(entity, usual, check, score, words)]
    if spelled:
        rules.append(replace(number(entity, any_spelling, check, _SPELLED, words), needs_word=True))
    if unchecked:
        rules.append(number(entity, any_spelling, "", 0.0, words))
    return tuple(rules)


def _grouped(*sizes: int) -> str:
    """The pattern of digits in groups of these sizes, with or without separators between them."""
    return _SEPARATOR.join(rf"\d{{{size}}}" for size in sizes)


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


_is_hetu = stdnum_check("fi.hetu", allow_temporary=True)

_SSN = "ssn,ss#,social security,social"
_TAX = "tax,taxpayer,tin"
_ITIN = "itin," + _TAX
_SIN = "sin,social insurance,nas,assurance sociale"
_PERSONNUMMER = "personnummer,personnr,pnr,samordningsnummer,swedish id,personal identity number,personal identity code"
_RRN = "rrn,resident registration,korean,주민등록번호,주민번호"

_DEA = r"(?i:[A-HJ-MPR-UX][A-Z9])\d{7}"
_MBI_LETTER, _MBI_ANY = "[AC-HJKMNP-RT-Y]", r"[AC-HJKMNP-RT-Y\d]"
_MBI = rf"[1-9]{_MBI_LETTER}{_MBI_ANY}\d{{0}}{_MBI_LETTER}{_MBI_ANY}\d{{0}}{_MBI_LETTER}{{{{2}}}}\d\d"
_NINO = r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]{0}(?:\d{{6}}|\d\d{0}\d\d{0}\d\d){0}[A-D]"
_NIR = r"\d\d{0}(?:0[1-9]|1[0-3]|20|3\d|4[0-2]|[5-9]\d){0}(?!00)(?:\d\d|2(?i:[AB])){0}\d{{3}}{0}\d{{3}}{0}\d\d"
_FISCAL_CODE = r"[A-Z]{6}N{2}[A-Z]N{2}[A-Z]N{3}[A-Z]".replace("N", r"[\dLMNP-V]")  # a letter may stand for a digit

RULES = (
    number("US_SSN", r"\d{3}([- .])\d{2}\1\d{4}", _is_ssn, 0.5, _SSN),
    number("US_SSN", r"\d{9}|\d{5}-\d{4}|\d{3}-\d{6}", _is_ssn, 0.05, _SSN),
    number("US_ITIN", r"9\d\d([- ]?)\d{2}\1\d{4}", _is_itin, 0.4, _ITIN),
    number("US_ITIN", r"9\d\d-\d{6}|9\d{4}-\d{4}", _is_itin, 0.05, _ITIN),
    number("US_NPI", r"[12]\d{3}([- ]?)\d{3}\1\d{3}", _is_npi, 0.1, "npi,provider,national provider"),
    number("MEDICAL_LICENSE", _DEA, _is_dea, 0.6, "dea,medical,license"),
    number("MEDICAL_LICENSE", _DEA, "", 0.0, "dea,medical license,medical licence"),
    *_identity("US_MBI", _MBI.format("-?"), "", 0.5, "medicare,mbi,beneficiary,cms,medicaid,hicn",
               spelled=_MBI.format("[ -]?")),
    number("CA_SIN", r"\d{3}([- ])\d{3}\1\d{3}", "ca.sin", 0.4, _SIN),
    number("CA_SIN", r"\d{9}|\d{3}\.\d{3}\.\d{3}", _compact("ca.sin"), 0.05, _SIN),
    number("UK_NHS", r"\d{3}([- ]?)\d{3}\1\d{4}", "gb.nhs", 0.4, "nhs,national health,health services"),
    *_identity("UK_NINO", _NINO.format(" ?"), "", 0.5, "national insurance,nino,ni number,ni no",
               spelled=_NINO.format(_SEPARATOR)),
    *_identity("ES_NIF", r"\d{8}-?[A-HJ-NP-TV-Z]", _is_nif, 1.0,
               "dni,nif,identificación,identificacion,documento nacional de identidad",
               spelled=r"\d{1,2}\.?\d{3}\.?\d{3}[ \-]?[A-HJ-NP-TV-Z]"),
    *_identity("ES_NIE", r"[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]", _compact("es.nie"), 1.0, "nie,extranjero,extranjería",
               spelled=r"[XYZ][ \-]?\d\.?\d{3}\.?\d{3}[ \-]?[A-HJ-NP-TV-Z]"),
    *_identity("IT_FISCAL_CODE", f"(?i:{_FISCAL_CODE})", "it.codicefiscale", 1.0,
               "fiscale,codice fiscale,cf", unchecked=True),
    number("IT_VAT_CODE", r"(?:(?i:IT) ?)?\d{11}", _compact("it.iva"), 0.2, "iva,piva,p.iva,vat,vat id"),
    *_identity("DE_VAT_ID", r"DE ?\d{9}", _compact("de.vat"), 1.0,
               "ust,ust-id,ust-idnr,ust-id-nr,umsatzsteuer,umsatzsteuer-id,umsatzsteuer-identifikationsnummer,"
               "umsatzsteueridentifikationsnummer,vat,vat id",
               spelled=f"DE{_SEPARATOR}{_grouped(3, 3, 3)}", unchecked=True),
    number("DE_TAX_ID", r"\d{2}([ /]?)\d{3}\1\d{3}\1\d{3}", _compact("de.idnr"), 0.2,
           "steuer,steuer-id,steueridentifikationsnummer,idnr," + _TAX),
    *_identity("FR_NIR", "[12] ?" + _NIR.format(" ?"), _compact("fr.nir"), 1.0, "nir,sécurité sociale,sécu",
               spelled=f"[1-478]{_SEPARATOR}" + _NIR.format(_SEPARATOR)),
    number("PL_PESEL", _grouped(2, 2, 2, 5), _compact("pl.pesel"), 0.4, "pesel"),
    number("NL_BSN", r"\d{9}|\d{4}[. ]\d{2}[. ]\d{3}|\d{3}[. ]\d{3}[. ]\d{3}", _compact("nl.bsn"), 0.05,
           "bsn,burgerservicenummer,sofi,sofinummer"),
    number("BE_NATIONAL_NUMBER", _grouped(2, 2, 2, 3, 2), _compact("be.nn"), 0.4,
           "rijksregister,national,niss,insz,rijksregisternummer,registre national"),
    number("CH_AHV", r"756[. ]?\d{4}[. ]?\d{4}[. ]?\d{2}", _compact("ch.ssn"), 1.0, "ahv,avs"),
    number("FI_PERSONAL_IDENTITY_CODE", r"\d{6}(?i:[-+A-FU-Y]\d{3}[0-9A-Y])", _is_hetu, 1.0,
           "hetu,henkilötunnus,personbeteckning,personal identity code"),
    number("SE_PERSONNUMMER", r"(?:\d{2})?\d{6}[-+]\d{4}", "se.personnummer", 0.5, _PERSONNUMMER),
    number("SE_PERSONNUMMER", r"(?:\d{2})?\d{6} ?\d{4}", "se.personnummer", 0.1, _PERSONNUMMER),
    number("TR_NATIONAL_ID", rf"(?!0){_grouped(3, 3, 3, 2)}", _compact("tr.tckimlik"), 0.4,
           "kimlik,tckn,tc no,turkish id,türk kimlik,nüfus cüzdanı"),
    *_identity("IN_PAN", r"[A-Za-z]{5}\d{4}[A-Za-z]", "in_.pan", 0.5, "pan,permanent account",
               spelled="[A-Z]{5} ?[0-9]{4} ?[A-Z]", unchecked=True),
    number("IN_AADHAAR", r"\d{4}([ :\-]?)\d{4}\1\d{4}", _compact("in_.aadhaar"), 0.4, "aadhaar,aadhar,uidai"),
    *_identity("IN_GSTIN", r"\d{2}[A-Z]{5}\d{4}[A-Z][A-Z\d]Z[A-Z\d]", "in_.gstin", 1.0, "gst,gstin,gst registration",
               spelled=r"(?!00|3[89])[0-3]\d[A-Z]{5}\d{4}[A-Z][A-Z1-9]Z[A-Z\d]", unchecked=True),
    *_identity("IN_VOTER", r"[A-Za-z]{3}\d{7}", "in_.epic", 0.3, "voter,voter id,epic,election,elector",
               unchecked=True),
    number("AU_ABN", r"\d{2}([ \-]?)\d{3}\1\d{3}\1\d{3}", _compact("au.abn"), 0.2, "abn,business number"),
    number("AU_ACN", _grouped(3, 3, 3), _compact("au.acn"), 0.05, "acn,company number"),
    number("AU_TFN", _grouped(3, 3, 3), _compact("au.tfn"), 0.05, "tfn,tax file"),
    *_identity("SG_NRIC_FIN", r"[STFGM]\d{7}[A-Z]", "", 0.3, "nric,fin", spelled=r"[STFGM]\d{7}[A-Z]"),
    number("TH_TNIN", r"(?!.[ \-]?(?:0|28|29|59|6[89]|7[89]|8[7-9]|9[7-9]))\d([ \-]?)\d{4}\1\d{5}\1\d{2}\1\d",
           "th.pin", 0.3, "thai,tnin,pin,เลขประจำตัวประชาชน,เลขบัตรประชาชน,รหัสปชช"),
    number("KR_RRN", r"\d{6}-?\d{7}", "kr.rrn", 0.4, _RRN),
    number("KR_RRN", r"\d{6}-?[1-4]\d{6}", _has_date, 0.0, _RRN),
    number("KR_BRN", r"\d{3}([ \-]?)\d{2}\1\d{5}", _is_brn, 0.4,
           "brn,business registration,사업자등록번호,사업자번호"),
    number("CN_RESIDENT_ID", r"\d{17}[\dXx]", "cn.ric", 1.0, "resident identity"),
    number("ZA_ID_NUMBER", _grouped(6, 4, 2, 1), _is_za_id, 0.4, "id,identity,rsa id,resident number"),
    number("BR_CPF", r"\d{3}\.\d{3}\.\d{3}-\d{2}", "br.cpf", 1.0, "cpf"),
    number("BR_CPF", _grouped(3, 3, 3, 2), _compact("br.cpf"), 0.1, "cpf"),
    number("MX_CURP", r"(?i:[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z\d]\d)", "mx.curp", 1.0, "curp"),
)  # fmt: skip
