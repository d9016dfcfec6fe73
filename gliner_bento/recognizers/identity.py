"""Social security, tax and other identity numbers, by python-stdnum's checks, their form, and the words near them."""

from __future__ import annotations

import re

from gliner_bento.recognizers.base import number, stdnum_check


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


_SSN = "ssn,ssns,ss#,social security,social"
_TAX = "tax,taxpayer,tin"

RULES = (
    number("US_SSN", r"\d{3}([- .])\d{2}\1\d{4}", _is_ssn, 0.5, _SSN),
    number("US_SSN", r"\d{9}|\d{5}-\d{4}|\d{3}-\d{6}", _is_ssn, 0.05, _SSN),
    number("US_ITIN", r"9\d\d([- ]?)\d{2}\1\d{4}", _is_itin, 0.4, "itin," + _TAX),
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
