"""Generates the tables of pages in docs/ and of the chart's README, and files of the chart, from what they are about.

`python -m tools.pages` writes them; with `--check` it writes nothing, and returns 1 if one is stale."""

from __future__ import annotations

import sys
from pathlib import Path

from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.telemetry import metrics

from . import chart, gliner_serve, which_model

METRICS_PAGE = PROJECT_ROOT / "docs" / "metrics.md"

_BEGIN, _END = "<!-- generated -->\n", "<!-- end -->\n"


def main(*, check: bool) -> int:
    """Write the generated files, or with `check` write nothing and return 1 if one is stale."""
    made = [(path, with_table(path, table)) for path, table in tables().items()] + [*chart.files().items()]
    return max(write(path, content, check=check) for path, content in made)


def tables() -> dict[Path, str]:
    """The generated table of each page."""
    return {
        METRICS_PAGE: metrics_table(),
        gliner_serve.PAGE: gliner_serve.table(),
        chart.PAGE: chart.table(),
        which_model.PAGE: which_model.table(),
    }


def with_table(page: Path, table: str) -> str:
    """A page with the table between its marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{page}: has no place for the generated table")
    return f"{before}{begin}\n{table}\n{end}{after}"


def write(path: Path, content: str, *, check: bool) -> int:
    """Write a file, or with `check` write nothing and return 1 if it is stale."""
    if not check:
        path.write_text(content, encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == content:
        return 0
    sys.stderr.write(f"{path} is stale: run `make docs`\n")
    return 1


def metrics_table() -> str:
    """Every metric."""
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {documentation} |\n"
        for name, kind, labels, documentation in metrics.declared()
    ]
    return "| Metric | Type | Labels | Description |\n|---|---|---|---|\n" + "".join(rows)
