"""Numbers with check digits, by python-stdnum: cards, accounts, social security, tax and identity numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from gliner_bento.recognizers.base import Rule, number, stdnum_check

_CARD = re.compile(
    r"4(\d{12}|\d{15}|\d{18})|(5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3(0[0-59]|[689]\d)\d{11,16}|35\d{14,17}"
    r"|(5[06-8]\d|6\d\d)\d{10,16}|9792\d{12}|1\d{14}"
)
"""First digits and lengths of the brands: Visa, Mastercard, American Express, Diners, JCB, Maestro and the like, Troy,
UATP."""
_USUAL = re.compile(r"\d+|\d{4}([ .\-])(?:\d{4}\1){2,3}\d{1,4}|\d{4}([ .\-])\d{6}\2\d{4,5}|\d(?:([ .\-])\d)(?:\3\d)*")
"""Usual groups of a card's digits: one, of four, 4-6-4, 4-6-5, or all digits apart."""
_LUHN = {str(digit): (digit, 2 * digit if digit < 5 else 2 * digit - 9) for digit in range(10)}
"""What a digit adds to the Luhn sum: as it is, and doubled."""


def _card(match: re.Match[str]) -> tuple[int, int] | None:
    """The longest card number at the beginning of a match, which may run into other numbers."""
    return next(((start, end) for start, end, usual in _cards(match) if usual), None)


def _regrouped_card(match: re.Match[str]) -> tuple[int, int] | None:
    """The longest card number at the beginning of a match, if its digits are not grouped as usual."""
    return next(((start, end) for start, end, usual in _cards(match) if not usual), None)


def _cards(match: re.Match[str]) -> Iterator[tuple[int, int, bool]]:
    """[start, end) of each card number at the beginning of a match, the longest first, and whether its digits are
    grouped as usual. Points are between usual groups only: 154.892304753225 is a decimal."""
    text = match[0]
    compact, ends = re.sub(r"\D", "", text), []
    digits = checksum = doubled = 0  # Luhn sums of the digits so far: with the last digit as it is, and with it doubled
    for end, char in enumerate(text, start=1):
        if char in _LUHN:
            digits += 1
            checksum, doubled = doubled + _LUHN[char][0], checksum + _LUHN[char][1]
            if digits >= 13 and checksum % 10 == 0 and _CARD.fullmatch(compact, 0, digits):
                ends.append(end)
    start, string = match.start(), match.string
    for end in reversed(ends):
        usual, is_grouped = bool(_USUAL.fullmatch(text, 0, end)), not text[:end].isdigit()
        around = string[max(0, start - 2) : start], string[start + end : start + end + 2]
        if around[1][:1].isalnum() or (_is_decimal(*around) and not (usual and is_grouped)):
            continue
        if usual or "." not in text[:end]:
            yield start, start + end, usual


def _is_decimal(before: str, after: str) -> bool:
    """Whether digits between these two characters are a part of a decimal."""
    return (before[-1:] == "." and before[:1].isdigit()) or (after[:1] == "." and after[1:].isdigit())


@cache
def _iban_chars(country: str) -> int:
    """Length of a country's IBANs; 0 if it has none."""
    numdb: Any = import_module("stdnum.numdb")
    [(found, facts), *_] = numdb.get("iban").info(country)
    if found != country or not facts:
        return 0
    # The format after country and check digits, such as 8!n10!n.
    return 4 + sum(map(int, re.findall(r"(\d+)!", facts["bban"])))


def _iban(match: re.Match[str]) -> tuple[int, int] | None:
    """The IBAN at the beginning of a match, which may run into the next words."""
    text = match[0]
    length = _iban_chars(text[:2].upper())
    indexes = [index for index, char in enumerate(text) if char not in " -"]
    if not length or len(indexes) < length:
        return None
    end = indexes[length - 1] + 1
    if text[end : end + 1].isalnum() or not _is_iban(text[:end]):
        return None
    return match.start(), match.start() + end


def _is_iban(text: str) -> bool:
    module: Any = import_module("stdnum.iban")
    try:
        return bool(module.validate(text, check_country=False))
    except module.ValidationError:
        return False


def _is_dea(text: str) -> bool:
    """Whether the check digit of a DEA registration number is right."""
    digits = [*map(int, text[2:])]
    return (sum(digits[0:6:2]) + 2 * sum(digits[1:6:2])) % 10 == digits[6]


def _is_npi(text: str) -> bool:
    """Whether the check digit is right. It is computed with the prefix 80840 (health, US)."""
    return stdnum_check("luhn")(f"80840{text}")


def _dashed(text: str) -> str:
    digits = re.sub(r"\D", "", text)
    return f"{digits[:3]}-{digits[3:5]}-{digits[5:]}"


def _is_ssn(text: str) -> bool:
    """Whether the ranges of SSNs include the number, and stdnum's list of numbers from advertisements does not."""
    return stdnum_check("us.ssn")(_dashed(text))


def _is_itin(text: str) -> bool:
    """Whether the fourth and fifth digits are ones that the IRS gives out; stdnum lacks 50 to 65."""
    group = int(_dashed(text)[4:6])
    return 50 <= group <= 65 or stdnum_check("us.itin")(_dashed(text))


_is_hetu = stdnum_check("fi.hetu", allow_temporary=True)


_CARD_PATTERN = r"(?<![^\W_])(?<!\+)[1-69](?:[ .\-]?\d){12,18}(?![^\W_])"
_CARD_WORDS = "card,cards,visa,mastercard,amex,cc"
_SSN = "ssn,ssns,ss#,social security,social"
_TAX = "tax,taxpayer,tin"

RULES = (
    Rule("CREDIT_CARD", _CARD_PATTERN, 1.0, _CARD_WORDS, span=_card),
    Rule("CREDIT_CARD", _CARD_PATTERN, 0.1, _CARD_WORDS, stdnum_check("luhn"), span=_regrouped_card),
    Rule("IBAN_CODE", r"(?<![^\W_])[A-Za-z]{2}\d{2}(?:[ \-]?[A-Za-z0-9]){11,30}", 1.0, "iban", span=_iban),
    number("US_SSN", r"\d{3}([- .])\d{2}\1\d{4}", _is_ssn, 0.5, _SSN),
    number("US_SSN", r"\d{9}|\d{5}-\d{4}|\d{3}-\d{6}", _is_ssn, 0.05, _SSN),
    number("US_ITIN", r"9\d\d([- ]?)\d{2}\1\d{4}", _is_itin, 0.4, "itin," + _TAX),
    number("ABA_ROUTING_NUMBER", r"\d{9}|\d{4}-\d{4}-\d", "us.rtn", 0.05, "aba,routing,rtn,bank transit"),
    number("US_NPI", r"[12]\d{9}", _is_npi, 0.1, "npi,provider,national provider"),
    number("MEDICAL_LICENSE", r"(?i:[A-HJ-MPR-UX][A-Z9])\d{7}", _is_dea, 0.6, "dea,medical,license"),
    number("US_MBI", r"[1-9][AC-HJKMNP-RT-Y][AC-HJKMNP-RT-Y\d]\d-?[AC-HJKMNP-RT-Y][AC-HJKMNP-RT-Y\d]\d-?"
           r"[AC-HJKMNP-RT-Y]{2}\d{2}", "", 0.5, "medicare,mbi,beneficiary"),
    number("CA_SIN", r"\d{3}([- ])\d{3}\1\d{3}", "ca.sin", 0.4, "sin,social insurance"),
    number("CA_SIN", r"\d{9}", "ca.sin", 0.05, "sin,social insurance"),
    number("UK_NHS", r"\d{3}([- ]?)\d{3}\1\d{4}", "gb.nhs", 0.4, "nhs,national health,health services"),
    number("UK_NINO", r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]( ?)\d\d\1\d\d\1\d\d\1[A-D]", "", 0.5, "insurance,nino"),
    number("ES_NIF", r"\d{8}-?[A-HJ-NP-TV-Z]", "es.dni", 1.0, "dni,nif,identificación"),
    number("ES_NIE", r"[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]", "es.nie", 1.0, "nie"),
    number("IT_FISCAL_CODE", r"(?i:[A-Z]{6}\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z])", "it.codicefiscale", 1.0, "fiscale,cf"),
    number("IT_VAT_CODE", r"(?:IT ?)?\d{11}", "it.iva", 0.2, "iva,piva,vat"),
    number("DE_VAT_ID", r"DE ?\d{9}", "de.vat", 1.0, "ust,vat"),
    number("DE_TAX_ID", r"\d{2}( ?)\d{3}\1\d{3}\1\d{3}", "de.idnr", 0.2, "steuer,steuer-id,idnr," + _TAX),
    number("FR_NIR", r"[12] ?\d{2} ?\d{2} ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d{2}", "fr.nir", 1.0, "sécurité sociale"),
    number("PL_PESEL", r"\d{11}", "pl.pesel", 0.4, "pesel"),
    number("NL_BSN", r"\d{9}|\d{4}[. ]\d{2}[. ]\d{3}", "nl.bsn", 0.05, "bsn,burgerservicenummer,sofi"),
    number("BE_NATIONAL_NUMBER", r"\d{2}\.?\d{2}\.?\d{2}[- ]?\d{3}[. ]?\d{2}", "be.nn", 0.4,
           "rijksregister,national,niss,insz,rijksregisternummer"),
    number("CH_AHV", r"756\.?\d{4}\.?\d{4}\.?\d{2}", "ch.ssn", 1.0, "ahv,avs"),
    number("FI_PERSONAL_IDENTITY_CODE", r"\d{6}[-+A-FU-Y]\d{3}[0-9A-Y]", _is_hetu, 1.0, "hetu,henkilötunnus"),
    number("SE_PERSONNUMMER", r"(?:\d{2})?\d{6}[-+]\d{4}", "se.personnummer", 0.5, "personnummer"),
    number("SE_PERSONNUMMER", r"(?:\d{2})?\d{10}", "se.personnummer", 0.1, "personnummer"),
    number("TR_NATIONAL_ID", r"[1-9]\d{10}", "tr.tckimlik", 0.4, "kimlik,tckn"),
    number("IN_PAN", r"[A-Za-z]{5}\d{4}[A-Za-z]", "in_.pan", 0.5, "pan,permanent account"),
    number("IN_AADHAAR", r"\d{4}([ -]?)\d{4}\1\d{4}", "in_.aadhaar", 0.4, "aadhaar,uidai"),
    number("IN_GSTIN", r"\d{2}[A-Z]{5}\d{4}[A-Z][A-Z\d]Z[A-Z\d]", "in_.gstin", 1.0, "gst,gstin"),
    number("IN_VOTER", r"[A-Za-z]{3}\d{7}", "in_.epic", 0.3, "voter,epic,election"),
    number("AU_ABN", r"\d{2} ?\d{3} ?\d{3} ?\d{3}", "au.abn", 0.2, "abn,business number"),
    number("AU_ACN", r"\d{3}( ?)\d{3}\1\d{3}", "au.acn", 0.05, "acn,company number"),
    number("AU_TFN", r"\d{3}( ?)\d{3}\1\d{3}", "au.tfn", 0.05, "tfn,tax file"),
    number("SG_NRIC_FIN", r"[STFGM]\d{7}[A-Z]", "", 0.3, "nric,fin"),
    number("TH_TNIN", r"\d(-?)\d{4}\1\d{5}\1\d{2}\1\d", "th.pin", 0.3, "thai,tnin,pin"),
    number("KR_RRN", r"\d{6}-?\d{7}", "kr.rrn", 0.4, "rrn,resident registration,korean"),
    number("KR_BRN", r"\d{3}-\d{2}-\d{5}", "kr.brn", 0.4, "brn,business registration"),
    number("CN_RESIDENT_ID", r"\d{17}[\dXx]", "cn.ric", 1.0, "resident identity"),
    number("ZA_ID_NUMBER", r"\d{13}", "za.idnr", 0.4, "id,identity"),
    number("BR_CPF", r"\d{3}\.\d{3}\.\d{3}-\d{2}", "br.cpf", 1.0, "cpf"),
    number("BR_CPF", r"\d{11}", "br.cpf", 0.1, "cpf"),
    number("MX_CURP", r"[A-Z]{4}\d{6}[HM][A-Z]{5}[A-Z\d]\d", "mx.curp", 1.0, "curp"),
)  # fmt: skip
