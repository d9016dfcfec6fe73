"""Noisy copies of records: typing errors, lost punctuation, chat spelling. Not case: the encoder is uncased."""

from __future__ import annotations

import random
from dataclasses import replace

from training.records import Mention, Record, split_words

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")

NEAR = {row[i]: row[max(0, i - 1) : i] + row[i + 1 : i + 2] for row in _ROWS for i in range(len(row))}
"""Neighbouring keys."""

CHAT = {
    "you": "u", "are": "r", "for": "4", "to": "2", "and": "n", "please": "pls", "thanks": "thx", "because": "bc",
    "with": "w/", "tomorrow": "tmrw", "about": "abt", "people": "ppl", "your": "ur", "before": "b4", "great": "gr8",
    "the": "da", "from": "frm", "not": "nt", "today": "2day", "see": "c", "why": "y", "really": "rly",
}  # fmt: skip
LOST = frozenset(",.;:!?\"'")


def typo(word: str, rng: random.Random) -> str:
    """A word with one slip of the keyboard; words of up to three letters, or with digits, stay."""
    if len(word) < 4 or not word.isalpha():
        return word
    at = rng.randrange(1, len(word) - 1)
    letter = word[at]
    kind = rng.random()
    if kind < 0.3:
        return word[:at] + word[at + 1] + letter + word[at + 2 :]
    if kind < 0.55:
        return word[:at] + word[at + 1 :]
    if kind < 0.75:
        return word[:at] + letter + word[at:]
    return word[:at] + rng.choice(NEAR.get(letter.lower(), letter)) + word[at + 1 :]


def noisy(record: Record, rng: random.Random) -> Record:
    """The record with noise; mentions keep their words, in which typing errors are rarer than outside."""
    rate, lose, chat = rng.uniform(0.02, 0.15), rng.random() < 0.5, rng.random() < 0.35
    inside = {i: mention for mention in record.mentions for i in range(mention.first, mention.last + 1)}
    place: dict[int, int] = {}
    words: list[str] = []
    for i, given in enumerate(record.words):
        word = given
        if i not in inside:
            if lose and word in LOST and rng.random() < 0.7:
                continue
            if chat and rng.random() < 0.5:
                word = CHAT.get(word.lower(), word)
        if rng.random() < (rate if i not in inside else rate / 2):
            word = typo(word, rng)
        place[i] = len(words)
        words.extend(piece for piece, _, _ in split_words(word))
    if len(words) < 3 or any(place[m.last] - place[m.first] != m.last - m.first for m in record.mentions):
        return record
    mentions = [Mention(place[m.first], place[m.last], m.type) for m in record.mentions]
    return replace(record, words=words, mentions=mentions)
