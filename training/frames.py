"""Frames: many sentences about the same two slots, of which some state the relations of the frame."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

ALTERNATIVES = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
"""Words to choose from: `[one|other]`."""

HEAD = re.compile(r"^@frame (.+?) : (.+)$")


@dataclass(frozen=True, slots=True)
class Frame:
    """`slots`: id to the slot's text; `relations`: the relations as written, `name(head, tail)` separated by `; `."""

    slots: dict[str, str]
    relations: str

    def expand(self, line: str) -> str:
        """A `+` line (the relations hold) or a `-` line (they do not) as a template line."""
        text, _, own = line[2:].partition(" => ")
        for key, slot in self.slots.items():
            text = text.replace(f"{{{key}}}", f"{{{slot}}}")
        parts = self.relations.split("; ")
        if line.startswith("-"):
            parts = [f"not {part}" for part in parts if not part.startswith("maybe ")]
        return f"{text} => {'; '.join([*parts, own] if own else parts)}"


def parse_frame(line: str) -> Frame:
    """An `@frame` line; raises `ValueError` where it does not follow the format."""
    match = HEAD.match(line)
    if not match:
        raise ValueError(f"bad frame {line!r}")
    slots = {slot.partition("#")[2].partition("@")[0]: slot for slot in match[1].split(", ")}
    return Frame(slots, match[2])


def spread(line: str) -> Iterator[str]:
    """A template line for each choice among alternatives that contain slots; those of plain words stay."""
    for match in ALTERNATIVES.finditer(line):
        if "{" in match[1]:
            for choice in match[1].split("|"):
                yield from spread(line[: match.start()] + choice + line[match.end() :])
            return
    yield line
