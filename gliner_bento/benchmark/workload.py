"""What is asked: bodies that both `/v1/extract` and gliner.serve's route read, the same for the same seed."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Body = dict[str, Any]

LABEL_SETS = (
    ["person", "organization", "location", "date"],
    ["company", "product", "money", "city", "job title", "event"],
    ["name", "e-mail address", "phone number"],
)
RELATIONS = ["works at", "located in", "founded by"]

_WORDS_TOGETHER = (
    "the a of and to in on with from by after before while although because however board plant river season market "
    "report system council harbour engineer village record company station quarter harvest north early several new old "
    "large public private signed opened moved grew closed visited presented repaired announced followed"
)
_NAMES_TOGETHER = (
    "Ines Okoro Marek Lindqvist Harlow Brightwater Tarn Osei Calder Vesterbro Yusuf Amaral Norden Pellworm"
)
_WORDS, _NAMES = _WORDS_TOGETHER.split(), _NAMES_TOGETHER.split()
_SHARE_OF_NAMES = 0.1


def short(count: int, seed: int = 0) -> list[Body]:
    """6 to 30 words."""
    return _bodies(count, seed, lambda rng: rng.randint(6, 30))


def mixed(count: int, seed: int = 0) -> list[Body]:
    """6 to 250 words, short ones far more often: 46 words on average."""
    return _bodies(count, seed, lambda rng: round(6 * (250 / 6) ** rng.random() ** 1.7))


def long(count: int, seed: int = 0) -> list[Body]:
    """200 to 370 words: up to what gliner's default `max_len` reads."""
    return _bodies(count, seed, lambda rng: rng.randint(200, 370))


def skewed(count: int, seed: int = 0) -> list[Body]:
    """Nine of ten are short, the tenth is long: the worst case for batches in order of arrival."""
    return _bodies(count, seed, lambda rng: rng.randint(6, 20) if rng.random() < 0.9 else rng.randint(250, 350))


def uniform(count: int, seed: int = 0) -> list[Body]:
    """1 to 250 words, each length as often as any other."""
    return _bodies(count, seed, lambda rng: rng.randint(1, 250))


def many_labels(count: int, seed: int = 0, labels: int = 128) -> list[Body]:
    """Texts of 20 to 60 words that all ask for the same `labels` labels."""
    asked = [" ".join(pair) for pair in itertools.islice(itertools.permutations(_WORDS, 2), labels)]
    return [body | {"labels": asked} for body in _bodies(count, seed, lambda rng: rng.randint(20, 60))]


WORKLOADS: dict[str, Callable[[int, int], list[Body]]] = {
    "short": short,
    "mixed": mixed,
    "long": long,
    "skewed": skewed,
    "uniform": uniform,
    "many_labels": many_labels,
}


def with_relations(bodies: Sequence[Body]) -> list[Body]:
    """The same texts, asked for relations too."""
    return [body | {"relations": RELATIONS} for body in bodies]


def encoded(bodies: Sequence[Body]) -> list[bytes]:
    """Bodies as they go over the wire."""
    return [json.dumps(body).encode() for body in bodies]


def _bodies(count: int, seed: int, words: Callable[[random.Random], int]) -> list[Body]:
    rng = random.Random(seed)
    return [{"text": _text(rng, words(rng)), "labels": rng.choice(LABEL_SETS)} for _ in range(count)]


def _text(rng: random.Random, words: int) -> str:
    """Words at random: what they mean does not change what they cost."""
    return " ".join(rng.choice(_NAMES if rng.random() < _SHARE_OF_NAMES else _WORDS) for _ in range(words))
