"""The changelog's sections: the one of a version, and the cut from Unreleased to a new version."""

from __future__ import annotations

import re
from pathlib import Path

from .places import ROOT, names

UNRELEASED = "## [Unreleased]"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)")
_SECTION = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)


def section(version: str, root: Path = ROOT) -> str:
    """The text of a version's section, without its heading. Raises ValueError if there is none, or an empty one."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = list(_SECTION.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading[1] == version:
            body = text[heading.end() : following.start() if following else len(text)].strip()
            if body:
                return body
    raise ValueError(f"CHANGELOG.md has no section {version}, or an empty one")


def notes(version: str, root: Path = ROOT) -> str:
    """The section for a reader who does not have the repository: links lead to this version in it.

    Raises ValueError without the section, or without the page docs/releases/VERSION.md.
    """
    if not (root / "docs" / "releases" / f"{version}.md").exists():
        raise ValueError(f"there are no release notes: docs/releases/{version}.md")
    return _LINK.sub(f"{names(root)['repository']}/blob/v{version}/", section(version, root))


def date_of(version: str, root: Path = ROOT) -> str | None:
    """The date in the heading of a version's section: None until it is released."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return {heading[1]: heading[2] for heading in _SECTION.finditer(text)}.get(version)


def cut(version: str, date: str, root: Path = ROOT) -> None:
    """Give what is unreleased to a version; if the version has a section already, give that section its date.

    date: as in 2026-01-31. Raises ValueError if there is nothing to release.
    """
    file = root / "CHANGELOG.md"
    text = file.read_text(encoding="utf-8")
    heading = f"## [{version}]"
    unreleased = re.search(rf"^{re.escape(UNRELEASED)}\n+(?=## \[)", text, re.MULTILINE)
    if re.search(rf"^{re.escape(heading)}", text, re.MULTILINE):
        if UNRELEASED in text and not unreleased:
            raise ValueError(f"CHANGELOG.md has both a section {version} and unreleased changes: merge them")
        text = re.sub(rf"^{re.escape(heading)}.*$", f"{heading} - {date}", text, flags=re.MULTILINE)
    elif UNRELEASED not in text or unreleased:
        raise ValueError("CHANGELOG.md has no unreleased changes")
    else:
        text = text.replace(UNRELEASED, f"{UNRELEASED}\n\n{heading} - {date}", 1)
    file.write_text(text, encoding="utf-8")
