"""What is asked: bodies of `/v1/extract`, the same for the same seed."""

from __future__ import annotations

import random
from typing import Any

LABEL_SETS = (
    ["person", "organization", "location", "date"],
    ["company", "product", "money", "city", "job title", "event"],
    ["name", "e-mail address", "phone number"],
)

_WORDS = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "on",
    "with",
    "from",
    "by",
    "after",
    "before",
    "while",
    "although",
    "because",
    "however",
    "board",
    "plant",
    "river",
    "season",
    "market",
    "report",
    "system",
    "council",
    "harbour",
    "engineer",
    "village",
    "record",
    "company",
    "station",
    "quarter",
    "harvest",
    "north",
    "early",
    "several",
    "new",
    "old",
    "large",
    "public",
    "private",
    "signed",
    "opened",
    "moved",
    "grew",
    "closed",
    "visited",
    "presented",
    "repaired",
    "announced",
    "followed",
]
_NAMES = [
    "Ines",
    "Okoro",
    "Marek",
    "Lindqvist",
    "Harlow",
    "Brightwater",
    "Tarn",
    "Osei",
    "Calder",
    "Vesterbro",
    "Yusuf",
    "Amaral",
    "Norden",
    "Pellworm",
]
_FEWEST_WORDS, _MOST_WORDS = 6, 250
_NAMES_IN_TEN_WORDS = 1


def mixed(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of 6 to 250 words, short ones more often, under three label sets."""
    rng = random.Random(seed)
    return [{"text": _text(rng), "labels": rng.choice(LABEL_SETS)} for _ in range(count)]


def _text(rng: random.Random) -> str:
    """Words at random: what they mean does not change what they cost."""
    length = int(_FEWEST_WORDS * (_MOST_WORDS / _FEWEST_WORDS) ** rng.random())
    return " ".join(rng.choice(_NAMES if rng.random() < _NAMES_IN_TEN_WORDS / 10 else _WORDS) for _ in range(length))
