"""Prints the reports of an evaluation as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gliner_bento.cli.texts import counted
from gliner_bento.files.evaluation.report import Report
from gliner_bento.files.evaluation.scores import Change, Confusion, Score

_MOST_CONFUSED = 20


def print_reports(before: Sequence[Report], reports: Sequence[Report]) -> None:
    """Print all scores. before: earlier reports, the first columns; changes are those since the first report of all."""
    from gliner_bento.cli import show  # noqa: PLC0415

    console = show.console()
    everything = [*(_renamed(report) for report in before), *((report.name, report) for report in reports)]
    console.print(f"{', '.join(name for name, _ in everything)}: {counted(reports[0].texts, 'text')}")
    for title in dict.fromkeys(title for _, report in everything for title in report.sections):
        console.print(f"\n{title}")
        if len(everything) == 1:
            console.print(show.table(*_single(reports[0], title)))
        else:
            console.print(show.table(*_overview(everything, title)))
            console.print()
            console.print(show.table(*_side_by_side(everything, title)))
    for report in reports:
        if wrong := [one for one in report.confusion if one.gold != one.predicted]:
            console.print(f"\nwrong{f', {report.name}' if len(reports) > 1 else ''}")
            console.print(show.table(["gold", "predicted", "number"], _confused(wrong)))


def _renamed(report: Report) -> tuple[str, Report]:
    return f"{report.name} (before)", report


def _single(report: Report, title: str) -> tuple[list[str], list[list[str]]]:
    scores = report.sections[title].scores
    columns = ["label", "F1", "95 %", "precision", "recall", "right", "predicted", "gold"]
    rows = [
        [label, *_ratios(score), *map(str, (score.right, score.predicted, score.gold))]
        for label, score in [*scores.labels.items(), ("all", scores.micro)]
    ]
    return columns, rows


def _overview(runs: Sequence[tuple[str, Report]], title: str) -> tuple[list[str], list[list[str]]]:
    """A row for each report, with all labels together."""
    rows = [
        [name, *_ratios(report.sections[title].scores.micro), *shown_change(change)]
        for (name, report), change in zip(runs, _micro_changes(runs, title), strict=True)
        if title in report.sections
    ]
    return ["model", "F1", "95 %", "precision", "recall", "change", "95 %"], rows


def _micro_changes(runs: Sequence[tuple[str, Report]], title: str) -> Iterator[Change | None]:
    first = runs[0][1]
    for number, (_, report) in enumerate(runs):
        changed = report.change_since(first, title) if number else None
        yield changed[1] if changed else None


def _side_by_side(runs: Sequence[tuple[str, Report]], title: str) -> tuple[list[str], list[list[str]]]:
    """A row for each label: the F1 of each report, and its change."""
    columns = ["label", "gold"]
    labels = dict.fromkeys(label for _, report in runs if title in report.sections
                           for label in report.sections[title].scores.labels)  # fmt: skip
    gold = {label: "-" for label in labels}
    cells: dict[str, list[str]] = {label: [] for label in labels}
    first = runs[0][1]
    for number, (name, report) in enumerate(runs):
        columns += [name, "change", "95 %"] if number else [name]
        section = report.sections.get(title)
        changed = report.change_since(first, title) if number else None
        changes = changed[0] if changed else {}
        for label in labels:
            score = section.scores.labels.get(label) if section else None
            cells[label].append(percent(score.f1 if score else None))
            cells[label] += shown_change(changes.get(label)) if number else ()
            gold[label] = str(score.gold) if score else gold[label]
    return columns, [[label, gold[label], *cells[label]] for label in labels]


def _confused(wrong: Sequence[Confusion]) -> list[list[str]]:
    in_order = sorted(wrong, key=lambda one: -one.count)[:_MOST_CONFUSED]
    return [[one.gold or "-", one.predicted or "-", str(one.count)] for one in in_order]


def _ratios(score: Score) -> list[str]:
    return [percent(score.f1), _interval(score.f1_interval), percent(score.precision), percent(score.recall)]


def _interval(interval: tuple[float, float] | None, sign: str = "") -> str:
    return "-" if interval is None else " to ".join(percent(bound, sign) for bound in interval)


def shown_change(change: Change | None) -> list[str]:
    """A change of F1, and its interval."""
    return [percent(change.f1, "+"), _interval(change.interval, "+")] if change else ["-", "-"]


def percent(ratio: float | None, sign: str = "") -> str:
    """A ratio in percent. sign: `+` for a difference."""
    return "-" if ratio is None else f"{ratio * 100:{sign}.1f}"
