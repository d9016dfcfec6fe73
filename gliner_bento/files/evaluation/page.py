"""The worst texts of an evaluation as one HTML file that needs no other: what is known and predicted, marked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from gliner_bento.files.evaluation.gold import Example, Link, Span
from gliner_bento.files.evaluation.report import (
    Asked,
    Prediction,
    Report,
    answered,
    known_choices,
    known_links,
    known_spans,
)
from gliner_bento.files.evaluation.scores import Score, choice_name

MAX_TEXTS = 100
"""Texts on the page."""
_LONG_GAP_CHARS, _KEPT_CHARS = 600, 200

_STYLE = """
:root { color-scheme: light dark; --right: #1a7f37; --wrong: #b35900; --missed: #b42318; --line: #8886; }
@media (prefers-color-scheme: dark) { :root { --right: #56d364; --wrong: #f0a44b; --missed: #ff8177; } }
* { box-sizing: border-box; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .1rem 1rem .1rem 0; white-space: nowrap; }
article { border-top: 1px solid var(--line); padding: .75rem 0; }
h3 { font-size: .9rem; font-weight: 600; margin: 0; }
dl { display: grid; grid-template-columns: 8rem 1fr; gap: .25rem 1rem; margin: .5rem 0 0; }
dt { opacity: .75; } dd { margin: 0; white-space: pre-wrap; }
@media (max-width: 600px) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .5rem; } }
mark { color: inherit; background: none; border-bottom: 3px solid; padding: 0 .1em; }
mark.right, .label.right { border-color: var(--right); color: var(--right); }
mark.wrong, .label.wrong { border-color: var(--wrong); color: var(--wrong); }
mark.missed, .label.missed { border-color: var(--missed); color: var(--missed); }
mark.missed { border-bottom-style: dashed; }
mark { color: inherit !important; }
.label { font-size: .75em; margin: 0 .35em 0 .15em; font-weight: 600; }
ul { margin: 0; padding-left: 1.2rem; }
"""


@dataclass(frozen=True, slots=True)
class Run:
    """The predictions of one model, one for each example; those that failed are a string. asked: what was asked for."""

    report: Report
    asked: Asked
    predictions: Sequence[Prediction | str]


def page(title: str, examples: Sequence[Example], runs: Sequence[Run]) -> str:
    """The page. title: names the examples."""
    errors = [
        (sum(_errors(example, run, index) for run in runs), -index, example) for index, example in enumerate(examples)
    ]
    worst = sorted((error for error in errors if error[0]), key=lambda error: error[:2], reverse=True)
    shown = f"{min(len(worst), MAX_TEXTS)} of {len(worst)} texts with errors, of {len(examples)}; the most errors first"
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<h2>{shown}</h2>",
        '<p><mark class="right">right</mark> <mark class="wrong">predicted, and not known</mark> '
        '<mark class="missed">known, and not predicted</mark></p>',
        *(_article(example, runs, -index, number) for number, index, example in worst[:MAX_TEXTS]),
        *_tables(runs),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n" + "\n".join(body) + "\n</html>\n"
    )


def _tables(runs: Sequence[Run]) -> Iterator[str]:
    """The scores of each run."""
    for title in dict.fromkeys(title for run in runs for title in run.report.sections):
        rows = []
        for run in runs:
            if section := run.report.sections.get(title):
                rows += [(run.report.name, label, score) for label, score in section.scores.labels.items()]
                rows.append((run.report.name, "all", section.scores.micro))
        cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in _cells(*row))}" for row in rows)
        heads = "".join(f"<th>{name}" for name in ("model", "label", "F1", "precision", "recall", "known"))
        yield f'<h2>{escape(title)}</h2><div class="wide"><table><tr>{heads}{cells}</table></div>'


def _cells(name: str, label: str, score: Score) -> Sequence[str]:
    ratios = ("-" if ratio is None else f"{ratio * 100:.1f}" for ratio in (score.f1, score.precision, score.recall))
    return name, label, *ratios, str(score.gold)


def _errors(example: Example, run: Run, index: int) -> int:
    """How many predictions of a text are wrong or missing."""
    given = run.predictions[index]
    if isinstance(given, str):
        return 0
    links = known_links(example, run.asked) ^ set(given.relations)
    choices = known_choices(example, run.asked) ^ answered(example, given)
    spans = known_spans(example, run.asked) ^ set(given.entities) if example.entities is not None else set()
    return len(spans) + len(links) + len(choices)


def _article(example: Example, runs: Sequence[Run], index: int, errors: int) -> str:
    """One text: what is known, and the predictions of each run."""
    rows = [("known", _known(example, runs))]
    rows += [(run.report.name, _predicted(example, run, run.predictions[index])) for run in runs]
    lines = "".join(f"<dt>{escape(name)}<dd>{content}" for name, content in rows)
    noun = "error" if errors == 1 else "errors"
    return f"<article><h3>{escape(example.where)}: {errors} {noun}</h3><dl>{lines}</dl></article>"


def _known(example: Example, runs: Sequence[Run]) -> str:
    """The text with all known entities, and the known relations and classes."""
    marks = [(span, "right") for span in {span for run in runs for span in known_spans(example, run.asked)}]
    links = {link for run in runs for link in known_links(example, run.asked)}
    choices = {choice for run in runs for choice in known_choices(example, run.asked)}
    return marked(example.text, marks) + _list(links, set(), _link) + _list(choices, set(), choice_name)


def _predicted(example: Example, run: Run, given: Prediction | str) -> str:
    if isinstance(given, str):
        return escape(given)
    known = known_spans(example, run.asked)
    predicted = set(given.entities) if example.entities is not None else set()
    marks = [(span, "right" if span in known else "wrong") for span in predicted]
    marks += [(span, "missed") for span in known - predicted]
    return (
        marked(example.text, marks)
        + _list(set(given.relations), known_links(example, run.asked), _link, compared=True)
        + _list(answered(example, given), known_choices(example, run.asked), choice_name, compared=True)
    )


def _link(link: Link) -> str:
    return f"{link.head} \N{RIGHTWARDS ARROW} {link.relation} \N{RIGHTWARDS ARROW} {link.tail}"


def _list(given: Collection[Any], known: Collection[Any], shown: Callable[..., str], *, compared: bool = False) -> str:
    """A list of values; if `compared`, those that are right, wrong and missed."""
    rows = [(value, "right" if not compared or value in known else "wrong") for value in sorted(given)]
    rows += [(value, "missed") for value in sorted(set(known) - set(given))]
    items = "".join(f'<li><mark class="{kind}">{escape(shown(value))}</mark>' for value, kind in rows)
    return f"<ul>{items}</ul>" if items else ""


def marked(text: str, marks: Iterable[tuple[Span, str]]) -> str:
    """The text as HTML, with each span marked by its class and followed by its label. Spans may overlap: a piece of
    several has the class of the one that begins last. Long pieces without spans are shortened."""
    in_order = sorted(marks, key=lambda mark: (mark[0].start, -mark[0].end, mark[0].label))
    starts, ends = defaultdict[int, list[tuple[Span, str]]](list), defaultdict[int, list[tuple[Span, str]]](list)
    for mark in in_order:
        starts[mark[0].start].append(mark)
        ends[mark[0].end].append(mark)
    covering: list[tuple[Span, str]] = []
    pieces: list[str] = []
    for start, end in pairwise(sorted({0, len(text), *starts, *ends})):
        covering = [mark for mark in covering if mark[0].end > start] + starts[start]
        if covering:
            pieces.append(f'<mark class="{covering[-1][1]}">{escape(text[start:end])}</mark>')
        else:
            pieces.append(escape(_shortened(text[start:end])))
        pieces += [f'<span class="label {kind}">{escape(span.label)}</span>' for span, kind in ends[end]]
    return "".join(pieces)


def _shortened(piece: str) -> str:
    if len(piece) <= _LONG_GAP_CHARS:
        return piece
    return f"{piece[:_KEPT_CHARS]} \N{HORIZONTAL ELLIPSIS} {piece[-_KEPT_CHARS:]}"
