"""The code blocks of the Markdown pages of the repository."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gliner_bento.settings.configuration import PROJECT_ROOT

_BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>\S*)[^\n]*\n(?P<code>.*?)^ *(?P=fence) *$", re.S | re.M
)


@dataclass(frozen=True)
class Block:
    """page: its path in the repository. line: where it begins."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """All Markdown pages of the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:  # not a git checkout
        return [PROJECT_ROOT / "README.md", *sorted((PROJECT_ROOT / "docs").rglob("*.md"))]
    return [PROJECT_ROOT / name for name in listed.stdout.split("\0") if name]


def blocks() -> Iterator[Block]:
    """All blocks."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.M)
            line = text.count("\n", 0, match.start()) + 1
            yield Block(page.relative_to(PROJECT_ROOT).as_posix(), line, match["language"], code)
