"""Generators of the built-in slots: dates, numbers, contact data and person names, each drawn from wide patterns."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence

from training.invented import city, company, invented_name

Words = Mapping[str, Sequence[str]]
Generator = Callable[[random.Random, Words], str]


def _digits(rng: random.Random, count: int) -> str:
    """`count` digits, the first not zero."""
    return str(rng.randint(1, 9)) + "".join(rng.choice(string.digits) for _ in range(count - 1))


def _fill(rng: random.Random, pattern: str) -> str:
    """A pattern with `#` replaced by digits and `@` by capital letters."""
    drawn = (rng.choice("123456789" if i == 0 else string.digits) if c == "#" else c for i, c in enumerate(pattern))
    return "".join(rng.choice(string.ascii_uppercase) if c == "@" else c for c in drawn)


def _plain(name: str) -> str:
    """A name as part of an e-mail address: lower case, letters only."""
    return "".join(c for c in name.lower() if c in string.ascii_lowercase)


def year(rng: random.Random, words: Words) -> str:
    """A year, mostly recent; never the reserved one."""
    value = rng.choice((rng.randint(1950, 2026), rng.randint(1800, 2026), rng.randint(1995, 2026)))
    return str(value if value != 1975 else 1976)


def date(rng: random.Random, words: Words) -> str:
    """A date in one of many formats; often a bare year."""
    day, month, when = str(rng.randint(1, 31)), rng.choice(words["month"]), year(rng, words)
    short, number = rng.choice(words["short month"]), rng.randint(1, 12)
    weekday = rng.choice(words["weekday"])
    forms = (
        when, when, when, when,
        f"{month} {when}", f"{month} {when}", f"{day} {month} {when}", f"{month} {day}, {when}", f"{month} {day}",
        f"{day} {month}", f"{weekday}", f"{weekday}", f"{weekday}, {month} {day}", f"{weekday}, {day} {month} {when}",
        f"{day}.{number}.{when}", f"{number:02}/{int(day):02}/{when}", f"{when}-{number:02}-{int(day):02}",
        f"{short} {day}, {when}", f"{day} {short}", month, f"early {when}", f"the {rng.choice(_DECADES)}",
        f"{day}th of {month}", f"next {weekday}", f"last {weekday}", f"Q{rng.randint(1, 4)} {when}",
        rng.choice(words["relative date"]), rng.choice(words["relative date"]), f"spring {when}", f"mid-{month}",
    )  # fmt: skip
    return rng.choice(forms)


_DECADES = ("1920s", "1930s", "1950s", "1960s", "1970s", "1980s", "1990s", "2000s", "19th century", "eighties")


def calendar_day(rng: random.Random, words: Words) -> str:
    """A day that fits behind "on"."""
    day, month, when = rng.randint(1, 31), rng.choice(words["month"]), year(rng, words)
    weekday = rng.choice(words["weekday"])
    forms = (
        weekday, weekday, weekday,
        f"{month} {day}", f"{day} {month} {when}", f"{month} {day}, {when}", f"{day} {month}",
        f"{weekday}, {month} {day}", f"{when}-{rng.randint(1, 12):02}-{day:02}",
        f"{day:02}.{rng.randint(1, 12):02}.{when}",
        f"the {day}th of {month}", f"{day:02}/{rng.randint(1, 12):02}/{when}",
    )  # fmt: skip
    return rng.choice(forms)


def time(rng: random.Random, words: Words) -> str:
    """A time of day."""
    hour, minute = rng.randint(1, 12), rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, rng.randint(0, 59)))
    half = rng.choice(("am", "pm", "a.m.", "p.m.", "AM", "PM"))
    forms = (
        f"{hour}:{minute:02} {half}", f"{hour} {half}", f"{hour}{half}", f"{rng.randint(0, 23):02}:{minute:02}",
        f"{hour}:{minute:02}", f"{hour} o'clock", "noon", "midnight", f"half past {hour}", f"{hour}:{minute:02}{half}",
        f"{rng.randint(0, 23)}:{minute:02} CET", f"quarter to {hour}",
    )  # fmt: skip
    return rng.choice(forms)


def number(rng: random.Random, words: Words) -> str:
    """A count, as digits or words."""
    value = rng.choice((rng.randint(2, 99), rng.randint(100, 9999), rng.randint(10_000, 900_000)))
    forms = (
        f"{value:,}", f"{value}", rng.choice(words["number word"]), f"{rng.randint(1, 99)} million",
        f"{rng.randint(2, 99)}", f"{rng.randint(1, 9)}.{rng.randint(1, 9)} billion",
    )  # fmt: skip
    return rng.choice(forms)


def money(rng: random.Random, words: Words) -> str:
    """An amount of money."""
    sign, big = rng.choice("$$$€€£¥"), rng.choice(words["big number"])
    whole = rng.choice((rng.randint(1, 99), rng.randint(100, 999), rng.randint(1000, 99_999)))
    point = f"{rng.randint(1, 99)}.{rng.randint(1, 9)}"
    forms = (
        f"{sign}{whole:,}", f"{sign}{whole:,}.{rng.randint(0, 99):02}", f"{sign}{point} {big}", f"{sign}{whole} {big}",
        f"{whole:,} {rng.choice(words['currency word'])}", f"{point} {big} {rng.choice(words['currency word'])}",
        f"{rng.choice(words['currency code'])} {whole:,}", f"{whole:,} {rng.choice(words['currency code'])}",
        f"{whole:,} €", f"{whole}{sign}", f"{sign} {whole:,}.{rng.randint(0, 99):02}", f"{sign}{point}bn",
        f"{sign}{rng.randint(1, 900)}m", f"US${point} {big}",
        f"{rng.choice(words['number word'])} {rng.choice(words['big number'])} {rng.choice(words['currency word'])}",
    )  # fmt: skip
    return rng.choice(forms)


def percent(rng: random.Random, words: Words) -> str:
    """A percentage."""
    value = rng.randint(1, 100)
    forms = (f"{value}%", f"{value}.{rng.randint(1, 9)}%", f"{value} percent", f"{value} per cent", f"{value} %")
    return rng.choice(forms)


_PHONES = (
    "+1 ###-###-####", "(###) ###-####", "###-###-####", "+44 20 #### ####", "0## #######", "+49 ## ########",
    "+33 # ## ## ## ##", "+34 ### ### ###", "+46 8 ### ## ##", "+81-3-####-####", "+91 ##### #####", "0#### ######",
    "+48 ### ### ###", "###.###.####", "555-####", "+1 (###) ###-####", "+55 11 #####-####", "+27 ## ### ####",
    "##########", "+39 0## #######", "1-800-###-####", "0800 ### ###", "+61 2 #### ####", "+234 ### ### ####",
)  # fmt: skip


def phone_number(rng: random.Random, words: Words) -> str:
    """A phone number of one of many countries."""
    return _fill(rng, rng.choice(_PHONES))


def email_address(rng: random.Random, words: Words) -> str:
    """An e-mail address."""
    first, last = _plain(rng.choice(words["first name"])), _plain(rng.choice(words["last name"]))
    if rng.random() < 0.4:
        first, last = map(_plain, invented_name(rng, words))
    box = rng.choice((
        f"{first}.{last}", f"{first}{last}", f"{first[:1]}.{last}", f"{first}_{last}", f"{first}{rng.randint(1, 99)}",
        rng.choice(words["mail box"]), f"{last}.{first}", f"{first[:1]}{last}", first, rng.choice(words["mail box"]),
    ))  # fmt: skip
    return f"{box}@{_host(rng, words) if rng.random() < 0.7 else rng.choice(words['mail domain'])}"


def _host(rng: random.Random, words: Words) -> str:
    """The name of a computer on the internet, mostly one that nobody has."""
    parts = [_plain(part) for part in invented_name(rng, words)]
    noun = rng.choice(words["web word"])
    name = rng.choice((parts[0], parts[1], parts[1] + noun, parts[0] + "-" + parts[1], noun + parts[0], noun))
    return name + rng.choice(words["top domain"])


def url(rng: random.Random, words: Words) -> str:
    """A web address."""
    host = _host(rng, words)
    path = rng.choice(("", "", rng.choice(words["web path"])))
    return rng.choice(("https://", "https://www.", "www.", "http://", "", "www.")) + host + path


def address(rng: random.Random, words: Words) -> str:
    """A street address, sometimes with a town and a postal code."""
    house = rng.randint(1, 400)
    street = f"{rng.choice(words['street name'])} {rng.choice(words['street kind'])}"
    foreign, city = rng.choice(words["european street"]), rng.choice(words["city"])
    if rng.random() < 0.5:
        foreign = invented_name(rng, words)[1] + rng.choice(words["street ending"])
        street = f"{invented_name(rng, words)[1]} {rng.choice(words['street kind'])}"
    forms = (
        f"{house} {street}", f"{house} {street}", f"{foreign} {house}", f"{house} {street}, {city}",
        f"{foreign} {house}, {_digits(rng, 5)} {city}", f"{house} {street}, {city} {_digits(rng, 5)}",
        f"{house} {street}, Apt {rng.randint(1, 40)}", f"{house}B {street}", f"{foreign} {house}, {city}",
    )  # fmt: skip
    return rng.choice(forms)


def zip_code(rng: random.Random, words: Words) -> str:
    """A postal code."""
    return _fill(rng, rng.choice(("#####", "#####", "#####-####", "@@# #@@", "####", "@#@ #@#", "### ##", "##-###")))


def credit_card_number(rng: random.Random, words: Words) -> str:
    """A credit card number (digits drawn at random)."""
    forms = ("4### #### #### ####", "5###-####-####-####", "4###############", "37## ###### #####")
    return _fill(rng, rng.choice(forms))


def iban(rng: random.Random, words: Words) -> str:
    """An IBAN (digits drawn at random)."""
    forms = ("DE## #### #### #### #### ##", "GB##@@@@##############", "FR## #### #### #### ####", "NL##@@@@##########",
             "ES######################", "PL## #### #### #### #### ####")  # fmt: skip
    return _fill(rng, rng.choice(forms))


def ip_address(rng: random.Random, words: Words) -> str:
    """An IPv4 address."""
    return ".".join(str(rng.randint(1, 254)) for _ in range(4))


def social_security_number(rng: random.Random, words: Words) -> str:
    """A social security number (digits drawn at random)."""
    return _fill(rng, rng.choice(("###-##-####", "###-##-####", "### ## ####")))


def age(rng: random.Random, words: Words) -> str:
    """An age."""
    value = rng.randint(3, 97)
    return rng.choice((f"{value}", f"{value}", f"{value} years old", f"{value}-year-old", f"{value} years"))


def username(rng: random.Random, words: Words) -> str:
    """A user name."""
    nick = rng.choice(words["nickname"])
    name = _plain(rng.choice(words["first name"]))
    first = rng.choice(words["first name"]).replace(" ", "")
    last = rng.choice(words["last name"]).replace(" ", "")
    if rng.random() < 0.4:  # handles made from names, as written in posts
        forms = (first, first + last, f"{first}_{last}", last, first[0] + last, (first + last).lower())
        return f"@{rng.choice(forms)}"
    return rng.choice((f"@{name}{rng.randint(1, 999)}", f"{nick}_{name}", f"@{nick}{name}", f"{name}.{nick}",
                       f"{nick}{rng.randint(10, 99)}", f"@{name}_{nick}"))  # fmt: skip


def person(rng: random.Random, words: Words) -> str:
    """A name: mostly first and last, sometimes with a title or initials, or only one of the two."""
    first, last = rng.choice(words["first name"]), rng.choice(words["last name"])
    draw = rng.random()
    if draw < 0.22:
        first, last = invented_name(rng, words)
    if draw < 0.66:
        name = f"{first} {last}"
    elif draw < 0.74:
        name = last
    elif draw < 0.84:
        name = first
    elif draw < 0.88:
        name = f"{first} {rng.choice(string.ascii_uppercase)}. {last}"
    elif draw < 0.91:
        name = f"{rng.choice(string.ascii_uppercase)}. {last}"
    elif draw < 0.95:
        name = f"{first} {rng.choice(words['first name'])} {last}"
    else:
        name = f"{first} {last}-{rng.choice(words['last name'])}"
    return name


def coded(kind: str) -> Generator:
    """The generator of a kind of code, from its patterns in `data/names.txt`."""
    return lambda rng, words: _fill(rng, rng.choice(words[f"{kind} pattern"]))


def academic_degree(rng: random.Random, words: Words) -> str:
    """A degree with its subject, as one name."""
    kind, subject = rng.choice(words["degree kind"]), rng.choice(words["degree subject"])
    link = rng.choice(("in", "in", "in", "of")) if " of" not in kind else "in"
    return f"{kind} {link} {subject}"


CODES = ("customer number", "product code", "reference number", "serial number", "tax number", "membership number",
         "invoice number", "order number")  # fmt: skip

GENERATORS: dict[str, Generator] = {
    "date": date, "calendar day": calendar_day, "year": year, "time": time, "money": money, "percent": percent,
    "number": number, "phone number": phone_number, "email address": email_address, "url": url, "address": address,
    "zip code": zip_code, "credit card number": credit_card_number, "iban": iban, "ip address": ip_address,
    "social security number": social_security_number, "age": age, "username": username, "person": person,
    "academic degree": academic_degree, "company": company, "city": city,
    **{kind: coded(kind) for kind in CODES},
}  # fmt: skip
