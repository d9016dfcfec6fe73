"""`python -m tools.release COMMAND`: what it prints, and its exit code. The package's docstring lists the commands."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __doc__ as usage
from . import changelog, images, places, site
from .check import check


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 with one line if something is not as a release needs it, 2 for a wrong command."""
    try:
        return run(list(arguments))
    except ValueError as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 1


def run(arguments: list[str]) -> int:
    """The exit code. Raises ValueError."""
    match arguments:
        case ["version"]:
            print(f"{places.version()}: wrote {', '.join(places.write()) or 'nothing: all places agree'}")
        case ["version", new]:
            raise_version(new)
        case ["check"] | ["check", "--quick"]:
            return check(quick="--quick" in arguments)
        case ["notes"]:
            print(changelog.notes(places.version()))
        case ["labels"]:
            print("\n".join(f"{name}={value}" for name, value in images.labels().items()))
        case ["names"]:
            registry = places.names()["registry"]
            print(f"host={registry.partition('/')[0]}\nregistry={registry}\nversion={places.version()}")
        case ["docs", folder]:
            print(f"{site.publish(Path(folder))}: the docs of {places.version()}, also as latest")
        case ["ready"] | ["ready", _]:
            ready(arguments[1] if len(arguments) > 1 else None)
        case _:
            print(usage, file=sys.stderr)
            return 2
    return 0


def raise_version(new: str) -> None:
    """Set the version everywhere and cut the changelog. Raises ValueError."""
    numbers = new.split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        raise ValueError(f"{new} is no version: three numbers, such as 0.2.0")
    old = places.version()
    if [int(number) for number in numbers] < [int(number) for number in old.split(".")]:
        raise ValueError(f"{new} is lower than {old}")
    changelog.cut(new, datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    places.set_version(new)
    print(f"{old} is now {new}: wrote CHANGELOG.md, gliner_bento/__init__.py, {', '.join(places.write())}")
    print(f"next: read the section in CHANGELOG.md, `make release-check`, commit, and `git tag -s v{new}`")


def ready(tag: str | None) -> None:
    """Raises ValueError if a person has to decide something first, or if the tag is not this version's."""
    if missing := places.placeholders():
        raise ValueError(f"release.toml has placeholders: {', '.join(missing)}")
    if stale := list(places.stale()):
        raise ValueError(f"{stale[0]}: run `make version`")
    version = places.version()
    if tag is not None and tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, the version {version}")
    if changelog.date_of(version) is None:
        raise ValueError(f"CHANGELOG.md has no date for {version}: run `make version NEW={version}`")
    changelog.notes(version)
    dirty = subprocess.run(
        ["git", "status", "--porcelain"], cwd=places.ROOT, capture_output=True, text=True, check=True
    )
    if dirty.stdout:
        raise ValueError(f"not committed: {dirty.stdout.splitlines()[0]}")
    print(f"ready to publish {version}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
