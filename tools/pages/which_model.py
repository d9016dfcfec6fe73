"""The tables of docs/which-model.md: public checkpoints by purpose."""

from __future__ import annotations

from gliner_bento.cli.known_models import COLUMNS, KnownModel, known_models, row
from gliner_bento.settings.configuration import PROJECT_ROOT

PAGE = PROJECT_ROOT / "docs" / "which-model.md"


def table() -> str:
    """A table for each purpose."""
    head = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
    tables = [f"## {one.use.capitalize()}\n\n{head}{''.join(map(_row, one.models))}" for one in known_models()]
    return "\n".join(tables)


def _row(model: KnownModel) -> str:
    cells = list(row(model))
    cells[0] = f"`{model.id}`"
    if model.measured:
        cells[5] = f"[{cells[5]}]({model.measured.removeprefix('docs/')})"
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |")
