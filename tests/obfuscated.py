"""Numbers and addresses as people write them so that programs do not find them, or as line ends divide them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

NUMBERS = {  # kind: sentences, and numbers in groups with their usual separator
    "CREDIT_CARD": (
        ["Please charge {} this week.", "{} is what she dictated on the line."],
        ["4539 1488 0343 6467", "5425-2334-3010-9903", "3714 496353 98431", "6011 0009 9013 9424"],
    ),
    "IBAN_CODE": (
        ["The rent goes to {} as always.", "{} belongs to the landlord."],
        ["DE75 5121 0800 1245 1261 99", "NL91 ABNA 0417 1643 00", "FR76 3000 6000 0112 3456 7890 189"],
    ),
    "PHONE_NUMBER": (
        ["You can reach him at {} until six.", "phone: {}"],
        ["+49 30 9018 2001", "+1 503 555 0188", "(617) 555-0142", "+33 1 70 36 39 50"],
    ),
    "US_SSN": (["Her SSN is {} on the form.", "social security: {}"], ["401-55-8123", "523-45-6780"]),
    "UK_NHS": (["NHS no. {} was seen today."], ["943 476 5919"]),
}
ADDRESSES = {
    "EMAIL_ADDRESS": (
        ["Send it to {} before noon.", "{} has not answered"],
        ["grace.hopper@navy.example.org", "ops+eu@corp.example", "li@mail.co.uk"],
    ),
    "IP_ADDRESS": (["The login from {} failed.", "host {}"], ["203.0.113.77", "10.20.30.40"]),
}
UNSEEN = "\u034f\U000e0100\u3164\u115f\u180b\uffa0\u200b\u2060\u00ad\ufe0f\u0000\u202a"
MARKS = "\u0301\u0336\u20e3\u0338"


def every(char: str, mark: str) -> str:
    return "".join(one + mark for one in char)


def gaps(number: str, gap: str) -> str:
    return re.sub("[ -]", lambda _: gap, number)


def one_gap(number: str, gap: str, position: int) -> str:
    """With `gap` in place of one separator, which stays if it is a dash."""
    found = [*re.finditer("[ -]", number)]
    at = found[position % len(found)]
    return number[: at.start()] + ("-" if at[0] == "-" else "") + gap + number[at.end() :]


IN_GAPS = {
    "two spaces": "  ",
    "three spaces": "   ",
    "tab": "\t",
    "space and tab": " \t",
    "dash with spaces": " - ",
    "en dash with spaces": " \u2013 ",
    "slash": "/",
    "dot": ".",
    "middle dot": "\u00b7",
    "bullet": "\u2022",
    "underscore": "_",
    "bar": "|",
    "Braille": "\u2800",
    "ideographic space": "\u3000",
    "no-break entity": "&nbsp;",
    "numeric entity": "&#160;",
    "unseen entity": " &#x200b;",
    "minus": "\u2212",
}
LINE_ENDS = {"line end": "\n", "indented": "\n    ", "CRLF": "\r\n", "blanks and line end": "  \n", "quoted": "\n> "}
LINE_ENDS["line separator"] = "\u2028"
OF_ADDRESSES = {
    "at": ("@", " @ "),
    "line end": ("@", "@\n"),
    "[at]": ("@", "[at]"),
    " (at) ": ("@", " (at) "),
    " [AT] ": ("@", " [AT] "),
    "decimal": ("@", "&#64;"),
    "hexadecimal": ("@", "&#x40;"),
    "named": ("@", "&commat;"),
    "percent": ("@", "%40"),
    "JSON": ("@", "\\u0040"),
    "wide": ("@", "\uff20"),
    "[.]": (".", "[.]"),
    "(dot)": (".", "(dot)"),
    " [dot] ": (".", " [dot] "),
    "point": (".", "&#46;"),
    "ideographic": (".", "\u3002"),
}


def obfuscated(number: str) -> dict[str, str]:
    """The forms of a number or an address by kind of obfuscation."""
    random = Random(number)
    forms = {f"unseen {ord(char):x}": every(number[:-1], char) + number[-1] for char in UNSEEN}
    forms |= {f"mark {ord(mark):x}": every(number, mark) for mark in MARKS}
    at = random.randrange(1, len(number))
    forms["one unseen"] = number[:at] + random.choice(UNSEEN) + number[at:]
    forms["entities"] = "".join(f"&#{ord(char)};" if char.isalnum() else char for char in number)
    forms["wide"] = "".join(chr(ord(char) + 0xFEE0) if char.isalnum() else char for char in number)
    return forms


def cases() -> list[tuple[str, str, str, str]]:
    """Kind of data, kind of obfuscation, obfuscated form, text."""
    made = []
    for kind, (sentences, plain) in {**NUMBERS, **ADDRESSES}.items():
        for index, number in enumerate(plain):
            forms = obfuscated(number)
            if kind in NUMBERS:
                forms |= {name: gaps(number, gap) for name, gap in IN_GAPS.items()}
                forms |= {name: one_gap(number, gap, at + index) for at, (name, gap) in enumerate(LINE_ENDS.items())}
            else:
                forms |= {name: number.replace(*change) for name, change in OF_ADDRESSES.items() if change[0] in number}
            for at, (name, form) in enumerate(forms.items()):
                made.append((kind, name, form, sentences[at % len(sentences)].format(form)))
    return made


def missed(text: str, form: str, spans: Iterable[tuple[int, int]]) -> str:
    """The letters and digits of an obfuscated form in a text that no span covers."""
    covered = {index for start, end in spans for index in range(start, end)}
    start = text.index(form)
    return "".join(
        text[index] for index in range(start, start + len(form)) if text[index].isalnum() and index not in covered
    )
