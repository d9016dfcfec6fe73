"""Names that nobody has: people, companies and towns made of syllables, so that a name says nothing but its kind."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

Words = Mapping[str, Sequence[str]]

REGIONS = ("north", "south", "slavic", "africa", "asia", "west", "pacific")
"""Names of one region sound alike; `data/names.txt` has their syllables."""

VOWELS = frozenset("aeiouy")


def _word(rng: random.Random, words: Words, region: str, ends: str) -> str:
    """A name of an onset, one or two syllables and an ending."""
    name = rng.choice(words[f"{region} onset"])
    for syllable in range(rng.choice((1, 1, 2))):
        if syllable:
            name += rng.choice(words[f"{region} middle"])
        if name[-1].lower() not in VOWELS:
            name += rng.choice(words[f"{region} vowel"])
    end = rng.choice(words[ends])
    if end[0] in VOWELS:
        name += rng.choice(words[f"{region} middle"])[0]
    return name + end


def invented_name(rng: random.Random, words: Words) -> tuple[str, str]:
    """A first and a last name of one region."""
    region = rng.choice(REGIONS)
    return _word(rng, words, region, f"{region} first ending"), _word(rng, words, region, f"{region} last ending")


def company(rng: random.Random, words: Words) -> str:
    """A company: one of the list, or an invented one."""
    if rng.random() < 0.35:
        return rng.choice(words["company"])
    own = _word(rng, words, rng.choice(REGIONS), "company ending")
    name = rng.choice((own, own, invented_name(rng, words)[1], rng.choice(words["last name"])))
    draw = rng.random()
    if draw < 0.35:
        return name
    if draw < 0.42:
        return f"{name} & {rng.choice(words['last name'])}"
    return f"{name} {rng.choice(words['company kind'])}"


def city(rng: random.Random, words: Words) -> str:
    """A town: mostly one of the list, else an invented one."""
    if rng.random() < 0.75:
        return rng.choice(words["city"])
    name = _word(rng, words, rng.choice(REGIONS), "town ending")
    return f"{rng.choice(words['town start'])} {name}" if rng.random() < 0.2 else name
