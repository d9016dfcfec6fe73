"""Rows of a check: each has a name, a result and one line of detail. `run` runs them and prints the table."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

Step = Callable[[], str]
"""Returns the detail of a row. Raises ValueError if the check fails, ForAPerson if only a person can change what it
found, NotHere if it cannot run on this machine."""


class NotHere(Exception):
    """What a check needs is not on this machine. The message says what."""


class CommandFailed(ValueError):
    """A command ended with another exit code than 0. output: all that it printed."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


class ForAPerson(Exception):
    """What stops the release, and only a person can decide. The message says what."""


def run(steps: Mapping[str, Step]) -> int:
    """Print a row per step, also after one has failed. Returns 1 if one has, or if one waits for a person."""
    rows: dict[str, list[str]] = {"ok": [], "FAILED": [], "FOR A PERSON": [], "not here": []}
    print("| Check | Result | Detail | Seconds |\n|---|---|---|---|", flush=True)
    for name, step in steps.items():
        began = time.monotonic()
        try:
            result, detail = "ok", step()
        except NotHere as reason:
            result, detail = "not here", str(reason)
        except ForAPerson as decision:
            result, detail = "FOR A PERSON", str(decision)
        except (ValueError, SystemExit) as problem:
            result, detail = "FAILED", str(problem)
        except Exception as error:  # the other rows are still of use
            result, detail = "FAILED", f"{type(error).__name__}: {error}"
        rows[result].append(name)
        print(f"| {name} | {result} | {' '.join(detail.split())} | {time.monotonic() - began:.0f} |", flush=True)
    others = [
        f"{len(names)} {result} ({', '.join(names)})" for result, names in rows.items() if names and result != "ok"
    ]
    print(f"\n{len(steps)} checks: {len(rows['ok'])} ok", *others, sep="; ")
    return int(bool(rows["FAILED"] or rows["FOR A PERSON"]))


def output_of(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command prints. Raises CommandFailed with the end of it if the command fails."""
    words = [str(word) for word in command]
    ended = subprocess.run(
        words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        last = " / ".join(ended.stdout.strip().splitlines()[-4:])
        line = f"{Path(words[0]).name} {' '.join(words[1:3])}: exit code {ended.returncode}: {last[-600:]}"
        raise CommandFailed(line, ended.stdout)
    return ended.stdout
