"""Conversations about made-up people, and a double of a language model that changes placeholders as those models do.

The double sees redacted texts only. Its replies say what they are after restoring.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from stdnum import iban, luhn

PLACEHOLDER = re.compile(r"\[[A-Z][A-Z0-9_]*_(?:\d+|[0-9a-f]{16})\]")
_GIVEN = (
    *("Ada", "Rosa", "Emeka", "Mei", "Björn", "Priya", "Omar", "Wanjiru"),
    *("Luca", "Noor", "Kateryna", "Diego", "Aroha", "Pelle", "Zainab", "Tomasz"),
)
_FAMILY = ["Okafor", "Lindqvist", "O'Shea", "van der Meer", "Castellanos", "Zhang", "Abdi", "Novák", "Whitcombe", "Rao"]
_HOSTS = ("mail.example", "post.example.org", "acme-tools.example")
_STREETS = ("Harbour Road", "Linden Street", "Cooper Lane", "Mill Avenue")
_CITIES = ("Leeds", "Porto", "Austin", "Nairobi", "Uppsala")

OPENINGS = (
    "Hello, my name is {person}. Please write to {email} about the order for {other}.",
    "Please draft a letter from {person} to {other}. The phone number is {phone}.",
    "{person} lives at {street} in {city}. Can you check the booking for {other}?",
)
FOLLOW_UPS = (
    "Has {other} answered {person} yet? The mail went to {email}.",
    "Call {phone} and ask for {other}, please.",
    "{person} pays with card {card}. Put it into the form for {other}.",
    "The refund goes to IBAN {iban}, account holder {person}.",
    "The deploy failed with {key}. Tell {other}, and copy {email}.",
    "FOR THE FORM: {PERSON}, {EMAIL}, {phone}.",
    "In Slack it was <{email}> ({person}); in the CRM it is “{other}”.",
    "Thanks! Now the same for {other}, please: {phone}, {email}.",
    'As JSON: {{"name": "{person}", "mail": "{email}"}}',
    "{person}\n{street}\n{city}\n\nSubject: {other}",
)
TOOL_RESULTS = (
    {"status": "found", "owner": "{person}", "contact": "{email}"},
    {"rows": "1", "note": "{other} called from {phone}"},
)


@dataclass(frozen=True, slots=True)
class Form:
    """How a language model writes a placeholder, and what the restored text then has for its original."""

    write: Callable[[str], str]
    read: Callable[[str], str] = str


def _inner(placeholder: str) -> str:
    return placeholder.strip("[]")


def _in_url(original: str) -> str:
    return quote(original, safe="") if any(map(str.isspace, original)) else original


FORMS: Mapping[str, Form] = {
    "[PERSON_1]": Form(str),
    "PERSON_1": Form(_inner),
    "[Person 1]": Form(lambda one: f"[{_inner(one).replace('_', ' ').capitalize()}]"),
    "[person_1]": Form(str.lower),
    "[PERSON-1]": Form(lambda one: one.replace("_", "-")),
    "[ PERSON_1 ]": Form(lambda one: f"[ {_inner(one)} ]"),
    "**[PERSON_1]**": Form("**{}**".format, "**{}**".format),
    "**PERSON_1**": Form(lambda one: f"**{_inner(one)}**", "**{}**".format),
    "`[PERSON_1]`": Form("`{}`".format, "`{}`".format),
    "[PERSON_1]'s": Form("{}'s".format, "{}'s".format),
    "PERSON_1's": Form(lambda one: f"{_inner(one)}'s", "{}'s".format),
    "<PERSON_1>": Form(lambda one: f"<{_inner(one)}>"),
    "{PERSON_1}": Form(lambda one: f"{{{_inner(one)}}}"),
    r"\[PERSON\_1\]": Form(lambda one: rf"\[{_inner(one)}\]".replace("_", r"\_")),
    "“[PERSON_1]”": Form("“{}”".format, "“{}”".format),
    "[PERSON_1](mailto:[PERSON_1])": Form(lambda one: f"[write]({one})", "[write]({})".format),
    "https://crm.example/?q=[PERSON_1]": Form(
        "https://crm.example/?q={}&page=2".format, lambda one: f"https://crm.example/?q={_in_url(one)}&page=2"
    ),
    "https://crm.example/%5BPERSON_1%5D": Form(
        lambda one: f"https://crm.example/%5B{_inner(one)}%5D/edit",
        lambda one: f"https://crm.example/{quote(one, safe='')}/edit",
    ),
}
"""By the form of `[PERSON_1]`."""
_IN_JSON = [form for form in FORMS if form[0] in "[P*<" and "(" not in form]


@dataclass(frozen=True, slots=True)
class Mention:
    """A placeholder in a reply, in a form of `FORMS`."""

    placeholder: str
    form: str

    @property
    def written(self) -> str:
        """What the language model writes."""
        return FORMS[self.form].write(self.placeholder)

    def restored(self, originals: Mapping[str, str]) -> str:
        """What the user is to read: without an original, the placeholder."""
        return FORMS[self.form].read(originals.get(self.placeholder, self.placeholder))


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the double: a text, or, with `fields`, a JSON object, such as the arguments of a tool call."""

    pieces: Sequence[str | Mention] = ()
    fields: Mapping[str, Sequence[str | Mention]] | None = None

    @property
    def mentions(self) -> list[Mention]:
        """The placeholders in it."""
        pieces = [*self.pieces, *(piece for value in (self.fields or {}).values() for piece in value)]
        return [piece for piece in pieces if isinstance(piece, Mention)]

    @property
    def written(self) -> str:
        """The text that the language model returns."""
        return self._text(lambda mention: mention.written)

    def restored(self, originals: Mapping[str, str]) -> str:
        """The text with originals. JSON is as `json.dumps` writes it."""
        return self._text(lambda mention: mention.restored(originals))

    def _text(self, shown: Callable[[Mention], str]) -> str:
        def joined(pieces: Sequence[str | Mention]) -> str:
            return "".join(shown(piece) if isinstance(piece, Mention) else piece for piece in pieces)

        if self.fields is None:
            return joined(self.pieces)
        return json.dumps({name: joined(value) for name, value in self.fields.items()}, ensure_ascii=False)


class LanguageModel:
    """Writes replies with placeholders of the texts that it has seen; a text without any is answered without."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def reply(self, seen: Sequence[str]) -> Reply:
        """A text about what is in the last texts, in prose or, one time in six, as JSON."""
        mentions = self._mentions(seen, FORMS)
        if self._draw.random() < 1 / 6:
            return self.arguments(seen)
        words = [" is done, and ", ", see ", " - also ", ".\n- ", " (as you said). ", "; "]
        pieces: list[str | Mention] = []
        for mention in mentions:
            pieces += [self._draw.choice(words), mention]
        return Reply([*pieces, self._draw.choice((".", " [x] done", "!\n", " < 3 days", ""))])

    def arguments(self, seen: Sequence[str]) -> Reply:
        """Arguments of a tool call."""
        values = {
            f"field{number}": [self._draw.choice(("", "for ", 'said "', "a\n")), mention]
            for number, mention in enumerate(self._mentions(seen, _IN_JSON))
        }
        return Reply(fields={**values, "mode": ["draft"]})

    def chunks(self, text: str) -> list[str]:
        """The text as a stream has it: of one to twelve characters, without regard to placeholders."""
        chunks, position = [], 0
        while position < len(text):
            size = self._draw.randint(1, 12)
            chunks.append(text[position : position + size])
            position += size
        return chunks

    def _mentions(self, seen: Sequence[str], forms: Mapping[str, Form] | Sequence[str]) -> list[Mention]:
        known = [*dict.fromkeys(match for text in seen for match in PLACEHOLDER.findall(text))]
        chosen = self._draw.sample(known, min(len(known), self._draw.randint(1, 4)))
        return [Mention(one, self._draw.choice([*forms])) for one in chosen]


class User:
    """Writes the messages of one conversation, all about the same few people."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.values = _values(draw)

    def opening(self) -> str:
        """The first message."""
        return self._draw.choice(OPENINGS).format(**self.values)

    def follow_up(self) -> str:
        """A later message."""
        return self._draw.choice(FOLLOW_UPS).format(**self.values)

    def tool_result(self) -> dict[str, str]:
        """What a tool returns."""
        template = self._draw.choice(TOOL_RESULTS)
        return {name: value.format(**self.values) for name, value in template.items()}


def _values(draw: random.Random) -> dict[str, str]:
    (given, other), (family, another) = draw.sample(_GIVEN, 2), draw.sample(_FAMILY, 2)
    digits = "".join(draw.choices(string.digits, k=14))
    email = f"{given}.{another[0]}{draw.randint(1, 99)}@{draw.choice(_HOSTS)}".lower()
    card, account = f"4{digits}", f"DE00{digits}{digits[:4]}"
    card += luhn.calc_check_digit(card)
    account = account.replace("00", iban.calc_check_digits(account), 1)
    person = f"{given} {family}"
    return {
        "person": person,
        "PERSON": person.upper(),
        "other": f"{other} {another}",
        "email": email,
        "EMAIL": email.upper(),
        "phone": f"+44 20 7946 0{draw.randint(100, 999)}",
        "card": draw.choice((card, " ".join(card[at : at + 4] for at in range(0, 16, 4)))),
        "iban": iban.format(account),
        "street": f"{draw.randint(2, 180)} {draw.choice(_STREETS)}",
        "city": draw.choice(_CITIES),
        "key": "ghp_" + "".join(draw.choices(string.ascii_letters + string.digits, k=36)),
    }
