"""Presidio's names of entity types, the label that the model reads for each, and other labels with the same meaning."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from gliner_bento.privacy.recognizers.find import FORMS

_COUNTRIES = {
    **{"AU": "Australian", "CA": "Canadian", "DE": "German", "ES": "Spanish", "FI": "Finnish", "IN": "Indian"},
    **{"IT": "Italian", "KR": "Korean", "NG": "Nigerian", "PH": "Philippine", "PL": "Polish", "SE": "Swedish"},
    **{"SG": "Singapore", "TH": "Thai", "TR": "Turkish", "UK": "UK", "US": "US", "ZA": "South African"},
}

_BY_NAME = {
    "ABA_ROUTING_NUMBER": "bank routing number",
    "AGE": "age",
    "API_KEY": "api key",
    "CA_POSTAL_CODE": "Canadian postal code",
    "CA_SIN": "Canadian social insurance number",
    "BE_NATIONAL_NUMBER": "Belgian national number",
    "BR_CPF": "Brazilian tax number CPF",
    "CH_AHV": "Swiss social security number",
    "CN_RESIDENT_ID": "Chinese resident id",
    "CREDIT_CARD": "credit card number",
    "CRYPTO": "cryptocurrency wallet address",
    "DATE_OF_BIRTH": "date of birth",
    "DATE_TIME": "date or time",
    "DE_SOCIAL_SECURITY": "German social security number",
    "EMAIL_ADDRESS": "email address",
    "FR_NIR": "French social security number",
    "IBAN_CODE": "iban",
    "IN_VOTER": "Indian voter id",
    "IP_ADDRESS": "ip address",
    "JWT": "json web token",
    "LOCATION": "location",
    "MAC_ADDRESS": "mac address",
    "MEDICAL_BIOLOGICAL_ATTRIBUTE": "vital sign or measurement",
    "MEDICAL_BIOLOGICAL_STRUCTURE": "body part",
    "MEDICAL_CLINICAL_EVENT": "clinical event",
    "MEDICAL_DISEASE_DISORDER": "disease",
    "MEDICAL_LICENSE": "medical license number",
    "MEDICAL_MEDICATION": "medication",
    "MEDICAL_THERAPEUTIC_PROCEDURE": "medical procedure",
    "MEDICAL_RECORD_NUMBER": "medical record number",
    "MX_CURP": "Mexican CURP",
    "NL_BSN": "Dutch citizen service number",
    "NRP": "nationality, religious or political group",
    "ORGANIZATION": "organization",
    "PASSWORD": "password",
    "PERSON": "person",
    "PHONE_NUMBER": "phone number",
    "PRIVATE_KEY": "private key",
    "UK_NHS": "NHS number",
    "UK_NINO": "UK national insurance number",
    "URL": "url",
    "US_BANK_NUMBER": "US bank account number",
    "US_CLAIM_NUMBER": "insurance claim number",
    "US_HEALTH_INSURANCE_MEMBER_ID": "health insurance member id",
    "US_ITIN": "US taxpayer number ITIN",
    "US_MBI": "Medicare beneficiary id",
    "US_NPI": "provider number NPI",
    "US_PRESCRIPTION_NUMBER": "prescription number",
    "US_SSN": "US social security number",
    "UUID": "uuid",
}

# Labels without the country, with the names that have them: DE_PLZ has the label "German postal code". `A/B _X, C_Y`
# stands for A_X, B_X and C_Y (`_names`).
_BY_COUNTRY = {
    "passport number": "US/UK/ES/IT/DE/IN/KR/PH/ZA _PASSPORT",
    "driver's license number": "US/IT/KR/ZA _DRIVER_LICENSE, UK_DRIVING_LICENCE, DE_FUEHRERSCHEIN",
    "license plate": "UK/IN/NG _VEHICLE_REGISTRATION, TR/ZA _LICENSE_PLATE, DE_KFZ",
    "identity card number": "IT_IDENTITY_CARD, DE_ID_CARD",
    "health insurance number": "AU_MEDICARE, DE_HEALTH_INSURANCE",
    "postal code": "UK_POSTCODE, DE_PLZ",
}

# Likewise, with the rest of the name at the end: DE_TAX_ID has the label "German tax number TAX ID".
_BY_COUNTRY_AND_ACRONYM = {
    "national id number": "ES_NIF, ES_NIE, PL_PESEL, SG_NRIC_FIN, IN_AADHAAR, FI_PERSONAL_IDENTITY_CODE, KR_RRN, "
    "KR_FRN, SE_PERSONNUMMER, TH_TNIN, TR_NATIONAL_ID, NG_NIN, ZA_ID_NUMBER, PH_UMID",
    "tax number": "AU_TFN, IN_PAN, IN_GSTIN, IT_FISCAL_CODE, DE_TAX_ID, DE_TAX_NUMBER, PH_TIN, IT_VAT_CODE, DE_VAT_ID",
    "business registration number": "AU_ABN, AU_ACN, SG_UEN, KR_BRN, SE_ORGANISATIONSNUMMER, DE_HANDELSREGISTER",
}


def _labels() -> dict[str, str]:
    labels = dict(_BY_NAME)
    for kind, names in _BY_COUNTRY.items():
        labels |= {name: f"{_COUNTRIES[name[:2]]} {kind}" for name in _names(names)}
    for kind, names in _BY_COUNTRY_AND_ACRONYM.items():
        labels |= {name: f"{_COUNTRIES[name[:2]]} {kind} {_words(name[3:])}" for name in _names(names)}
    return dict(sorted(labels.items()))


def _names(spelled: str) -> Iterable[str]:
    """The names in a list such as `A/B _X, C_Y`, which has A_X, B_X and C_Y."""
    for part in spelled.split(", "):
        countries, _, rest = part.partition(" ")
        yield from (country + rest for country in countries.split("/"))


def _words(name: str) -> str:
    return name.replace("_", " ")


PRESIDIO_LABELS: Mapping[str, str] = _labels()
"""The label of each of Presidio's names."""

DEFAULT_ENTITIES = (
    *("CREDIT_CARD", "CRYPTO", "DATE_TIME", "EMAIL_ADDRESS", "IBAN_CODE", "IP_ADDRESS", "LOCATION"),
    *("MEDICAL_LICENSE", "NRP", "ORGANIZATION", "PERSON", "PHONE_NUMBER", "UK_NHS", "URL"),
    *("US_BANK_NUMBER", "US_DRIVER_LICENSE", "US_ITIN", "US_PASSPORT", "US_SSN"),
)
"""The default entity types of a request: those of Presidio's recognizers for English, and organizations."""

_CHECK_DIGITS = frozenset(("DE_ID_CARD", "DE_PASSPORT", "NG_NIN"))
"""Entity types with check digits that no recognizer knows."""

_ALSO_FOR_MODEL = frozenset(("API_KEY", "PASSWORD"))
"""Entity types of which recognizers find only texts with a prefix, or with a name before them."""


_SYNONYMS = {  # by name, further labels that mean it, in the form that `plain` returns
    "ABA_ROUTING_NUMBER": "aba routing number,bank routing number,routing number",
    "API_KEY": "access key,access token,api token,auth token,secret key",
    "CREDIT_CARD": "card,card number,credit card,credit debit card,debit card,debit card number,payment card,"
    "payment card number",
    "CRYPTO": "bitcoin address,crypto wallet,crypto wallet address,cryptocurrency address,wallet address",
    "DATE_OF_BIRTH": "birth date,birthdate,birthday,dob",
    "EMAIL_ADDRESS": "e mail,e mail address,email,mail address",
    "IBAN_CODE": "iban number,international bank account number",
    "IP_ADDRESS": "ip",
    "IPv4": "ipv4,ipv4 address",
    "IPv6": "ipv6,ipv6 address",
    "MAC_ADDRESS": "mac",
    "MEDICAL_RECORD_NUMBER": "mrn,patient id",
    "PASSWORD": "passphrase,passwd,pwd",
    "PHONE_NUMBER": "cell phone number,fax,fax number,landline phone number,mobile,mobile number,mobile phone number,"
    "phone,telephone,telephone number",
    "URL": "link,web address,website",
    "US_BANK_NUMBER": "account number,bank account,bank account number",
    "US_DRIVER_LICENSE": "driver license,driver license number,driver s license,driver s license number",
    "US_HEALTH_INSURANCE_MEMBER_ID": "health insurance,health insurance id,health insurance id number,"
    "health insurance number,health plan beneficiary number,insurance number,insurance policy number,member id",
    "US_PASSPORT": "passport,passport number",
    "US_SSN": "social security number,social security,ssn",
}
_NATIONAL = "national id,national id number,national identification number,identity number"
_TAX = "tax id,tax number,tax identification number,taxpayer identification number"
_ALSO_NATIONAL_IDS = ("CN_RESIDENT_ID", "MX_CURP", "NL_BSN", "UK_NINO", "US_SSN")


@cache
def _entities_by_label() -> Mapping[str, Sequence[str]]:
    """The entity types that each label means. Labels are in the form that `plain` returns."""
    by_label: dict[str, list[str]] = {}
    for name, label in PRESIDIO_LABELS.items():
        known = {plain(name), plain(label), *_SYNONYMS.get(name, "").split(",")}
        if "national" in label or "social" in label or name in _ALSO_NATIONAL_IDS:
            known.update(_NATIONAL.split(","))
        if "tax" in label:
            known.update(_TAX.split(","))
        for synonym in known:
            by_label.setdefault(synonym, []).append(name)
    for form in ("IPv4", "IPv6"):
        by_label |= {synonym: [form] for synonym in _SYNONYMS[form].split(",")}
    return by_label


def plain(label: str) -> str:
    """A label in lower case, with spaces in place of all characters except letters and digits."""
    return re.sub(r"[\W_]+", " ", label).strip().lower()


def entities_of(label: str) -> Sequence[str]:
    """The entity types, or names of patterns such as IPv4, that a label of a request means."""
    return _entities_by_label().get(plain(label), ())


def label_of(name: str, configured: Mapping[str, str]) -> str:
    """The label of an entity type: the configured one, else Presidio's, else the name in lower case, with spaces."""
    return configured.get(name) or PRESIDIO_LABELS.get(name) or _words(name).lower()


PERSONAL_LABELS = (
    *("person", "phone number", "email address", "street address", "city", "date", "credit card number"),
    "id number",
)
"""The labels of personal data that are redacted by default; those that recognizers know are left to them
(`for_model`)."""

DECOYS = ("medical term", "country")
"""Labels that the model reads beside them, so that such words are not taken for personal data."""


def is_for_model(entity: str, recognizers: Collection[str]) -> bool:
    """Whether a model is asked for an entity type by default. It is not if a form, check digits or a word decide.

    recognizers: those that run; without the recognizer of a type, only the model can find its texts.
    """
    entity = FORMS.get(entity, entity)
    return entity in _ALSO_FOR_MODEL or (entity not in _CHECK_DIGITS and entity not in recognizers)


def for_model(labels: Iterable[str], recognizers: Collection[str]) -> list[str]:
    """Those of a list of default labels that a model is asked for. See `is_for_model`."""
    return [label for label in labels if all(is_for_model(entity, recognizers) for entity in entities_of(label))]
