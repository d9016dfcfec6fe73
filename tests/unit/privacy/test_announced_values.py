"""Addresses, places, numbers and account names that a text announces."""

from __future__ import annotations

import time

import pytest

from gliner_bento.privacy.announced_numbers import announced_numbers
from gliner_bento.privacy.announced_places import announced_places
from gliner_bento.privacy.near import Clues

PLACES = {
    "Ship to:\n[12 Oakfield Road, Truro TR1 3QJ]\nTotal: 12.00": "British",
    "Visit me at [4410 NW Cedar Hollow Dr, Apt 7, Boise, ID 83702], please.": "American",
    "Er wohnt [Lindenallee 7, 04109 Leipzig].": "German",
    "Post: [Hans-Georg-Meyer-Straße 5], [Alte Karl-Marx-Allee 7b] und [Große Ulrichstraße 3]": "German with hyphens",
    "te [Keizersgracht 123-II, 1015 CJ Amsterdam]. Przy [ul. Długiej 7/3, 00-238 Warszawa].": "numbers of flats",
    "Rua: [Rua Augusta 12, 1100-053 Lisboa]; [Storgatan 5, 114 55 Stockholm]. 5-7 and 3/4": "other postcodes",
    "J'habite au [14 bis rue des Lilas, 59100 Roubaix].\nMon mari": "a French postcode",
    "Vivo en [Calle Mayor 22, 3º B, 28013 Madrid]. Moro na [Rua das Flores, 123, Campinas].": "Iberian",
    "Flat: [42 Thornbury Mansions, Leith]; [3 Kauri Tce, Palmerston 4410]": "other words for streets",
    "Home address: [Block 5, Orchard Heights #03-11]\nPhone: none": "a field",
    "\nRechnungsnummer 20241\nOrder 77120\n[Augsburg 86150]\n": "numbers of orders beside a postcode",
    "City: [Leicester]  State: [OH]  ZIP: [44720]": "fields on a line",
    "我住在[杭州市西湖区文三路12号]。": "Chinese",
    "주소: [부산광역시 해운대구 우동 12]": "Korean",
    "Ich wohne in [Bremen], she lives in [Duluth, MN], живу в [Казани]": "residence",
    "Seen at [Fairmont Lakes Hospital] in spring": "a hospital",
    "im [Klinikum Nord], [Hôpital de Lyon]; at [Mercy General]. To [Newtown Road Surgery], re": "other hospitals",
    "referred to Plastic Surgery, to General Surgery; at General Motors; the clinic, To Day Surgery": "departments",
    "lives alone at [9 Copper Beeches, Stroud], or lives with a friend in [Leeds]": "who lives with whom",
    "He is from [Baton Rouge, LA 70802] and tired": "a city with its ZIP code",
    "Address: see above\nCity: none\nAddress: -\nState: unknown\nProperty: the old one": "no values",
    "We met via Email, 5 Minutes late; Hiring 3; version 10 Close to done": "no addresses",
    "street: string, city = get_city(), address: https://a.example/b": "code",
}
NUMBERS = {
    "Employee ID\t[K-55102]; Kundennr.: [44-1299], policy no. [20 881 7]": "fields",
    "Medical record number: [A-77120]; tax code: [99120041]": "records",
    "(VIN [WVWZZZ1JZ3W386752]), VIN: [1HGCM82633A004352]; le vin 2015": "a vehicle",
    "my PIN is [4821], PIN: [90210], pin code [1234]; CVV [123], cvc: [9876]": "PINs",
    "PIN 13, pin 2044, PIN 560001-2, pinned 1234, CVV 12.5, PIN 123456789": "other pins",
    "at ./home/[jmorrison]/a.py, ./Users/[ana.lima]/x 'C:\\Users\\[bo_ek]\\a.txt'": "folders of users",
    "./home/runner/work, ./Users/Shared/x, ./home/user/a, ./home/your-name/a, C:\\Users\\Public\\b": "no users",
    "Hospital no. [H-55102], NHI [ZKQ4417]; Accession [22-S-10934]": "records of hospitals",
    "Sort code: [20-41-77], sort code [204177], BLZ [860 100 90]; sort codes 12, sort code 20-4177": "sort codes",
    "NI number: [QQ 12 34 56 C], NI no. [AB123456D]; national insurance no. 12; NINO needed, Ni 20": "insurance",
    "session opened for [kgriffiths] from 1.2; Accepted password for [ada] from 1; failed login for root": "log-ins",
    "The session opened for us at 9, failed tests for the parser; session closed for lunch, by us": "other sessions",
    "my plate is [BD51 SMR]; Registration: [LK19 XTB]; Kennzeichen [B-AD 1842]; plate 12, reg is OK": "plates",
    "(chart #[00-88-213]), Pathology ref [S23-40817]; ADM NO: [A220193]; lab 2, chart # of": "records of laboratories",
    "Mum ([91]) fell; she (92 %) is sure": "an age in brackets",
    "a [93] y/o man; a [101]-year-old woman; she is [92]. Died of sepsis at [91]; aged [97]": "ages above 89",
    "he was 95 kg, BP was 92, at 98 %, aged 45, she is 91 % sure, a 90-year-old tower, 94.5 yo": "other numbers of 90",
    "NOK: son, [0803 555 7741] or [087-555-0199]; part 0803-555, 0.555 0199 1, 012 345 6789 0123": "phones",
    "电话是[13800138000]。 订单 138001380001; ask @[lena.k_9] or @[oto_b]; @app.route(1), `@a_b` or @SAX.": "chats",
    "@pt.fixture\r\ndef one(): ...\n\n@pt.fixture\ndef other(): ...\n\n@pt.fixture": "decorators",
    "login=[mira.k] password; username: [olek_22], TODO([jpark]): later": "account names",
    "the password of Mia is [hunter-22]. my pw is [tr0ub4dor], username is [bstev]": "a password in a sentence",
    "Your password is wrong. The password is required; the user is online, password: ********": "no password",
    "user: guest, login: required, username = get_user(), account: checking, user=default": "no account names",
    "Order no. 55120, invoice number: 88213, part no. 1209, policy no. 12, employee number: none": "other numbers",
}


@pytest.mark.parametrize(
    ("find", "marked"),
    [
        *((announced_places, marked) for marked in PLACES),
        *((announced_numbers, marked) for marked in NUMBERS),
    ],
    ids=[*PLACES.values(), *NUMBERS.values()],
)
def test_values_that_are_announced(find, marked):
    text = marked.replace("[", "").replace("]", "")
    expected = [part.split("]")[0] for part in marked.split("[")[1:]]
    covered = {index for span in find(Clues(text)) for index in range(span.start, span.end)}
    values = {text.index(value) for value in expected}
    assert {start for start in covered if start - 1 not in covered} >= values
    shown = "".join(char if index in covered else "\0" for index, char in enumerate(text))
    assert [part for part in shown.split("\0") if part] == expected


def cpu_s(find, text):
    began_s = time.thread_time()
    list(find(Clues(text)))
    return time.thread_time() - began_s


def costs_at_most(times, find, text, plain):
    """Whether `text` takes less than so many times the CPU time of `plain`, each the least of some tries: other work
    on the machine only adds to it."""
    tries = [(cpu_s(find, text), cpu_s(find, plain)) for _ in range(10)]
    return min(one for one, _ in tries) < times * min(one for _, one in tries)


def test_words_with_hyphens_cost_as_much_as_words_with_blanks():
    """Nine times as much if each hyphen may divide words in several ways. CPU time, for a mistake in the number of
    ways: nothing finer."""
    assert costs_at_most(4, announced_places, ("A-" * 55 + "1 ") * 100, ("A " * 55 + "1 ") * 100)


def test_numbers_without_blanks_between_them_take_linear_time():
    """As in `test_words_with_hyphens_cost_as_much_as_words_with_blanks`; a hundred times as much in quadratic time."""
    assert costs_at_most(10, announced_numbers, "nhs:1-" * 20_000, "nhs:1- " * 20_000)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("at Fjellveien 12, 9010 Tromsø. The alarm", "Fjellveien 12, 9010 Tromsø"),
        ("at 12 Elm Street, Bude. The man", "12 Elm Street, Bude"),
        ("at 3 Quay St., St. Ives TR1 3QJ. We", "3 Quay St., St. Ives TR1 3QJ"),
    ],
)
def test_an_address_ends_with_the_sentence(text, address):
    assert [text[span.start : span.end] for span in announced_places(Clues(text))] == [address]
