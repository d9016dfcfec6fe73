"""The lock against the index's advisories, by pip-audit. A package without an answer is not one without advisories."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from .processes import clean
from .table import NotHere

_NO_ANSWER = re.compile(
    r"^requests\.exceptions\.(Connection|Proxy|ChunkedEncoding)Error\b|^requests\.exceptions\.(Connect|Read)Timeout\b"
    r"|^pip_audit\._service\.interface\.ServiceError\b|Tip: your network may be blocking this service",
    re.MULTILINE,
)
"""How pip-audit ends where it does not reach the index."""


def audit(program: Path, lock: Path) -> str:
    """One line about all packages of the lock. Raises ValueError with advisories, or if pip-audit fails, and NotHere if
    the index does not answer, or not for some packages."""
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
        last = (ended.stderr.strip().splitlines() or ["it prints nothing"])[-1]
        if _NO_ANSWER.search(ended.stderr):
            raise NotHere(f"no answer: {last}") from None
        raise ValueError(f"pip-audit: exit code {ended.returncode}: {last}") from None
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
