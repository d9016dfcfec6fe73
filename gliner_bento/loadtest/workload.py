"""Workloads: request bodies that both `/v1/extract` and gliner.serve's route accept; a seed fixes them."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

Body = dict[str, Any]

LABEL_SETS = (
    ["person", "organization", "location", "date"],
    ["company", "product", "money", "city", "job title", "event"],
    ["name", "e-mail address", "phone number"],
)
RELATIONS = ["works at", "located in", "founded by"]

WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
"""A word as gliner's splitter counts it; a full stop is a word."""

_WORD_LIST = (
    "the a of and to in on with from by after before while although because however board plant river season market "
    "report system council harbour engineer village record company station quarter harvest north early several new old "
    "large public private signed opened moved grew closed visited presented repaired announced followed"
)
_NAME_LIST = "Ines Okoro Marek Lindqvist Harlow Brightwater Tarn Osei Calder Vesterbro Yusuf Amaral Norden Pellworm"
_WORDS, _NAMES = _WORD_LIST.split(), _NAME_LIST.split()
_NAME_SHARE = 0.1


def short(count: int, seed: int = 0) -> list[Body]:
    """6 to 30 words."""
    return _bodies(count, seed, lambda rng: rng.randint(6, 30))


def mixed(count: int, seed: int = 0) -> list[Body]:
    """6 to 250 words, skewed towards short texts: 46 words on average."""
    return _bodies(count, seed, lambda rng: round(6 * (250 / 6) ** rng.random() ** 1.7))


def long(count: int, seed: int = 0) -> list[Body]:
    """200 to 370 words: up to gliner's default `max_len`."""
    return _bodies(count, seed, lambda rng: rng.randint(200, 370))


def skewed(count: int, seed: int = 0) -> list[Body]:
    """Nine of ten texts are short, the tenth is long: the worst case for batches in order of arrival."""
    return _bodies(count, seed, lambda rng: rng.randint(6, 20) if rng.random() < 0.9 else rng.randint(250, 350))


def uniform(count: int, seed: int = 0) -> list[Body]:
    """1 to 250 words, uniformly distributed."""
    return _bodies(count, seed, lambda rng: rng.randint(1, 250))


def many_labels(count: int, seed: int = 0, labels: int = 128, words: tuple[int, int] = (20, 60)) -> list[Body]:
    """Texts with the same `labels` labels each. words: the shortest and the longest text."""
    names = [" ".join(pair) for pair in itertools.islice(itertools.permutations(_WORDS, 2), labels)]
    return [body | {"labels": names} for body in _bodies(count, seed, lambda rng: rng.randint(*words))]


def document(words: int, seed: int = 0) -> Body:
    """One text of exactly `words` words, in sentences of 6 to 30 words and a full stop."""
    rng = random.Random(seed)
    sentences: list[str] = []
    while words:
        length = min(rng.randint(6, 30), words - 1)
        sentence = _text(rng, length)
        sentences.append(f"{sentence[:1].upper()}{sentence[1:]}.")
        words -= length + 1
    return {"text": " ".join(sentences), "labels": LABEL_SETS[0]}


def pieces(body: Body, words: int) -> list[Body]:
    """The text of `body` in pieces of exactly `words` words each; the remainder is dropped."""
    text, matches = body["text"], list(WORD.finditer(body["text"]))
    ends = range(words, len(matches) + 1, words)
    return [body | {"text": text[matches[end - words].start() : matches[end - 1].end()]} for end in ends]


def word_count(text: str) -> int:
    """Number of words in a text."""
    return sum(1 for _ in WORD.finditer(text))


WORKLOADS: dict[str, Callable[[int, int], list[Body]]] = {
    "short": short,
    "mixed": mixed,
    "long": long,
    "skewed": skewed,
    "uniform": uniform,
    "many_labels": many_labels,
}


def with_relations(bodies: Sequence[Body]) -> list[Body]:
    """The same bodies with relations."""
    return [body | {"relations": RELATIONS} for body in bodies]


def encoded(bodies: Sequence[Body]) -> list[bytes]:
    """Bodies as JSON, encoded for the wire."""
    return [json.dumps(body).encode() for body in bodies]


def _bodies(count: int, seed: int, words: Callable[[random.Random], int]) -> list[Body]:
    rng = random.Random(seed)
    return [{"text": _text(rng, words(rng)), "labels": rng.choice(LABEL_SETS)} for _ in range(count)]


def _text(rng: random.Random, words: int) -> str:
    """Random words: the meaning of a text does not change its cost."""
    return " ".join(rng.choice(_NAMES if rng.random() < _NAME_SHARE else _WORDS) for _ in range(words))
