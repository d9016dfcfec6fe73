"""Training records: the data classes, reading from JSON lines, and re-splitting into GLiNER's words.

A record is one short text with its typed mentions and directed relations. `pool` names the entity types that the source
annotates, `rel_pool` the relations: only they may serve as negatives.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
"""GLiNER's own "whitespace" word splitter: training texts must be cut exactly as served texts are."""

MAX_WORDS = 150


@dataclass(frozen=True, slots=True)
class Mention:
    """A typed span: `first` and `last` are word positions, both inclusive; type None means "do not train on this"."""

    first: int
    last: int
    type: str | None


@dataclass(slots=True)
class Record:
    """One annotated text. Relations are (head, tail, name) over positions in `mentions`."""

    words: list[str]
    mentions: list[Mention]
    source: str
    pool: frozenset[str]
    relations: list[tuple[int, int, str]] = field(default_factory=list)
    rel_pool: frozenset[str] = frozenset()
    soft_rel_pool: frozenset[str] = frozenset()
    """Relations that are negative here except on pairs that hold another relation."""
    partial: bool = False
    unknown_pairs: frozenset[tuple[int, int]] = frozenset()
    asked: frozenset[str] = frozenset()
    """Relations that the text denies or that it only seems to state: they belong into the prompt as negatives."""
    undecided: frozenset[tuple[int, int, str]] = frozenset()
    """Triples that the text leaves open."""

    def behind(self, mark: str) -> Record:
        """The record as an item of a list: behind one more word."""
        mentions = [Mention(one.first + 1, one.last + 1, one.type) for one in self.mentions]
        return replace(self, words=[mark, *self.words], mentions=mentions)

    def text_of(self, mention: Mention) -> str:
        """The words of a mention, joined by spaces."""
        return " ".join(self.words[mention.first : mention.last + 1])


def split_words(text: str) -> list[tuple[str, int, int]]:
    """Cut a text as GLiNER does: (word, start, end) with character offsets, end exclusive."""
    return [(match.group(), match.start(), match.end()) for match in WORD.finditer(text)]


def _resplit(words: list[str]) -> tuple[list[str], list[int], list[int]]:
    """Split every word again; returns the new words and each old word's first and last new position."""
    out: list[str] = []
    first: list[int] = []
    last: list[int] = []
    for word in words:
        pieces = [piece for piece, _, _ in split_words(word)] or ["-"]
        first.append(len(out))
        out.extend(pieces)
        last.append(len(out) - 1)
    return out, first, last


def parse_record(raw: dict[str, Any], max_width: int) -> Record | None:
    """One JSON record as a `Record`; None where it is too long, too short or too noisy to learn from."""
    words, first, last = _resplit(raw["tokenized_text"])
    if not 3 <= len(words) <= MAX_WORDS:
        return None
    mentions: list[Mention] = []
    for begin, end, label in raw["ner"]:
        span = (first[begin], last[end])
        too_wide = span[1] - span[0] >= max_width
        mentions.append(Mention(span[0], span[1], None if too_wide else label))
    if len({(m.first, m.last) for m in mentions}) != len(mentions):
        return None
    relations = [
        (head, tail, name)
        for head, tail, name in raw["relations"]
        if mentions[head].type is not None and mentions[tail].type is not None
    ]
    return Record(
        words=words,
        mentions=mentions,
        source=raw["source"],
        pool=frozenset(raw["ent_pool"]) | {label for _, _, label in raw["ner"]},
        relations=relations,
        rel_pool=frozenset(raw["rel_pool"]),
        partial=bool(raw["partial"]),
        unknown_pairs=frozenset((int(head), int(tail)) for head, tail in raw["unknown_pairs"]),
    )


def read_records(path: Path, max_width: int) -> list[Record]:
    """All usable records of a gzipped JSON-lines file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        parsed = [parse_record(json.loads(line), max_width) for line in lines]
    return [record for record in parsed if record is not None]
