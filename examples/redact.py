"""Replace personal data in a text with labels: `python examples/redact.py < letter.txt`. Needs a running server."""

from __future__ import annotations

import os
import sys

from gliner_bento.client import Client
from gliner_bento.tasks.extraction import Entity

PERSONAL = ["person", "email address", "phone number", "address", "date of birth"]


def redact(text: str, entities: list[Entity]) -> str:
    """Replace each entity by its label. Overlapping entities, which some models return, are replaced as one."""
    pieces, position = [], 0
    for entity in sorted(entities, key=lambda entity: entity.start):
        if entity.start >= position:
            pieces += [text[position : entity.start], f"[{entity.label}]"]
        position = max(position, entity.end)
    return "".join([*pieces, text[position:]])


def main() -> None:
    """Redact standard input, which may be of any length."""
    text = sys.stdin.read()
    with Client(os.environ.get("URL", "http://localhost:3000")) as client:
        found = client.extract(text, PERSONAL, threshold=0.3)
    sys.stdout.write(redact(text, found.entities))


if __name__ == "__main__":
    main()
