"""A measurement of one promise: its targets, how it is stored (JSON with its provenance) and shown."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmark import results_file
from benchmark.table import table
from gliner_bento.settings import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "docs" / "measurements"


@dataclass(frozen=True, slots=True)
class Target:
    """A measured value that must not exceed its limit. value: None if it could not be measured."""

    name: str
    unit: str
    value: float | None
    limit: float

    @property
    def met(self) -> bool:
        """Whether it was measured, and does not exceed its limit."""
        return self.value is not None and self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of a harness measured. name: of its files. command: repeats it. facts: plain values.

    at_start: `provenance()` from before the run. notes: lines of Markdown that explain the values.
    """

    name: str
    command: str
    targets: Sequence[Target]
    facts: Mapping[str, Any]
    at_start: Mapping[str, Any]
    notes: Sequence[str] = ()

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return all(target.met for target in self.targets)

    def store(self, folder: Path) -> str:
        """Write `<name>.json` into `folder`; returns the page."""
        folder.mkdir(parents=True, exist_ok=True)
        targets = [asdict(target) | {"met": target.met} for target in self.targets]
        data = {**self.at_start, "command": self.command, "targets": targets, **self.facts}
        results_file.write(folder / f"{self.name}.json", data)
        return self.page()

    def page(self) -> str:
        """The targets, and where and when they were measured, as Markdown."""
        machine, commit = self.at_start["machine"], self.at_start["commit"] or "unknown"
        lines = [
            [target.name, target.unit, target.value, f"<= {target.limit:g}", "met" if target.met else "missed"]
            for target in self.targets
        ]
        changed = " with uncommitted changes" if self.at_start["uncommitted"] else ""
        where = (
            f"{time.strftime('%Y-%m-%d %H:%M')}, commit {commit[:12]}{changed}, {machine['cpu']}, "
            f"{machine['cores']} cores, shared with the load generator; load before: {machine['load_before'][0]:.2f}."
        )
        head = f"# {self.name.capitalize()}, measured\n\n`{self.command}`. {where}\n\n"
        rows = table(["target", "unit", "measured", "limit", "verdict"], lines)
        notes = "".join(f"\n{line}\n" for line in self.notes)
        return f"{head}{rows}\n{notes}\nAll values: [{self.name}.json]({self.name}.json).\n"
