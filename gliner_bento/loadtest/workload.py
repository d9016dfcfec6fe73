"""Workloads: request bodies that both `/v1/extract` and gliner.serve's route accept, made from a seed."""

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

_WORD_LIST = (
    "the a of and to in on with from by after before while although because however board plant river season market "
    "report system council harbour engineer village record company station quarter harvest north early several new old "
    "large public private signed opened moved grew closed visited presented repaired announced followed"
)
_NAME_LIST = "Ines Okoro Marek Lindqvist Harlow Brightwater Tarn Osei Calder Vesterbro Yusuf Amaral Norden Pellworm"
_WORDS, _NAMES = _WORD_LIST.split(), _NAME_LIST.split()
_NAME_SHARE = 0.1


def short(count: int, seed: int = 0) -> list[Body]:
    """Texts of 6 to 30 words."""
    return _bodies(count, seed, lambda rng: rng.randint(6, 30))


def mixed(count: int, seed: int = 0) -> list[Body]:
    """Texts of 6 to 250 words, most of them short: 46 words on average."""
    return _bodies(count, seed, lambda rng: round(6 * (250 / 6) ** (rng.random() ** 1.7)))


def long(count: int, seed: int = 0) -> list[Body]:
    """Texts of 200 to 370 words, which is below gliner's default `max_len` (384)."""
    return _bodies(count, seed, lambda rng: rng.randint(200, 370))


def skewed(count: int, seed: int = 0) -> list[Body]:
    """Nine of ten texts are short, the tenth is long: the worst case for batches filled in order of arrival."""
    return _bodies(count, seed, lambda rng: rng.randint(6, 20) if rng.random() < 0.9 else rng.randint(250, 350))


def uniform(count: int, seed: int = 0) -> list[Body]:
    """Texts of 1 to 250 words, uniformly distributed."""
    return _bodies(count, seed, lambda rng: rng.randint(1, 250))


def many_labels(count: int, seed: int = 0, labels: int = 128, words: tuple[int, int] = (20, 60)) -> list[Body]:
    """All texts have the same `labels` labels. words: minimum and maximum length of a text in words."""
    names = [" ".join(pair) for pair in itertools.islice(itertools.permutations(_WORDS, 2), labels)]
    return [body | {"labels": names} for body in _bodies(count, seed, lambda rng: rng.randint(*words))]


WORKLOADS: dict[str, Callable[[int, int], list[Body]]] = {
    "short": short,
    "mixed": mixed,
    "long": long,
    "skewed": skewed,
    "uniform": uniform,
    "many_labels": many_labels,
}


def encoded(bodies: Sequence[Body]) -> list[bytes]:
    """Bodies as JSON, encoded for the wire."""
    return [json.dumps(body).encode() for body in bodies]


def _bodies(count: int, seed: int, draw_length: Callable[[random.Random], int]) -> list[Body]:
    rng = random.Random(seed)
    return [{"text": random_text(rng, draw_length(rng)), "labels": rng.choice(LABEL_SETS)} for _ in range(count)]


def random_text(rng: random.Random, words: int) -> str:
    """Random words, because the meaning of a text does not change its cost."""
    return " ".join(rng.choice(_NAMES if rng.random() < _NAME_SHARE else _WORDS) for _ in range(words))
