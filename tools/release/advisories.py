"""The lock against the index's advisories, by pip-audit. A package without an answer is not one without advisories."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from .processes import clean
from .table import NotHere


def audit(program: Path, lock: Path) -> str:
    """One line about all packages of the lock. Raises ValueError with advisories, NotHere if some had no answer."""
    command: list[str | Path] = [
        program,
        "--requirement",
        lock,
        "--no-deps",
        "--disable-pip",
        "--progress-spinner",
        "off",
    ]
    ended = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, env=clean(), check=False)
    try:
        report: list[dict[str, Any]] = json.loads(ended.stdout)["dependencies"]
    except ValueError:
        raise NotHere(f"no answer: {(ended.stderr.strip().splitlines() or ['pip-audit prints nothing'])[-1]}") from None
    return verdict(report)


def verdict(report: list[dict[str, Any]]) -> str:
    """What the report of pip-audit says. report: a package each, with advisories or with why it was skipped."""
    known = {one["name"]: [found["id"] for found in one["vulns"]] for one in report if one.get("vulns")}
    if known:
        raise ValueError("; ".join(f"{name}: {', '.join(ids)}" for name, ids in known.items()))
    skipped = [one["name"] for one in report if "skip_reason" in one]
    if skipped:
        raise NotHere(f"the index has no advisories for {len(skipped)} of {len(report)} packages, first {skipped[0]}")
    return f"{len(report)} packages, none with a known vulnerability"
