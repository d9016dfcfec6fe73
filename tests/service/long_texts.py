"""A long document whose entities are known, and the lines of a streamed answer."""

from __future__ import annotations

import json
import re

import httpx

LABELS = ["person", "organization", "date", "location"]
RELATIONS = ["founded", "founded in", "headquartered in"]

PEOPLE = """Bill Gates, Ada Lovelace, Charles Babbage, Marie Curie, Tim Cook, Alan Turing, Grace Hopper, Albert Einstein
Isaac Newton, Nikola Tesla, Henry Ford, Steve Jobs, Angela Merkel, Barack Obama"""
COMPANIES = "Microsoft, Apple, Google, Siemens, Toyota, Intel, Samsung, Nokia, Boeing, Netflix, Volkswagen"
PLACES = "Lisbon, London, Warsaw, Paris, Berlin, Madrid, Vienna, Chicago, Boston, Tokyo, Dublin, Oslo, Prague"


def pick(names: str, number: int) -> str:
    listed = re.split(", |\n", names)
    return listed[number % len(listed)]


def paragraph(number: int) -> tuple[str, set[tuple[str, str]]]:
    """Some sentences of as many words, whatever the number, and the entities in them."""
    person, other = pick(PEOPLE, number), pick(PEOPLE, number + 5)
    company, year = pick(COMPANIES, number), str(1901 + 3 * number)
    place, elsewhere = pick(PLACES, number), pick(PLACES, number + 4)
    text = (
        f"{person} founded {company} in {year}. The company is headquartered in {place}. "
        f"{other} lived in {elsewhere}. Nobody at the office wanted to say much more about it than that."
    )
    held = {(person, "person"), (other, "person"), (company, "organization"), (year, "date")}
    return text, held | {(place, "location"), (elsewhere, "location")}


PARAGRAPHS, HELD = zip(*map(paragraph, range(40)), strict=True)
DOCUMENT = "\n\n".join(PARAGRAPHS)


def lines_of(response: httpx.Response) -> list[dict]:
    assert response.status_code == 200, response.text
    return [json.loads(written) for written in response.text.split("\n")[:-1]]
