"""A program: install an adapter in a process of its own, and wait at a given step.

    python install_program.py <cache> <id> <content> <where to wait: start, fill, check or never>

Prints `waits` where it waits for a line, and in the end the version that it installed, or the code of an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gliner_bento.adapters.archive import CONFIG_FILE, WEIGHTS_FILE
from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.adapters.disk import AdapterStore
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.settings import Settings


def main(cache: str, adapter_id: str, content: str, wait_at: str) -> None:
    def here(place: str) -> None:
        if place == wait_at:
            say("waits")
            sys.stdin.readline()

    def fill(folder: Path) -> None:
        (folder / CONFIG_FILE).write_text("{}")
        here("fill")
        (folder / WEIGHTS_FILE).write_text(content)

    settings = Settings(disk_cache_dir=Path(cache), adapter_id_pattern=r"\w+", max_adapter_bytes=10_000)
    store = AdapterStore(settings.view(AdapterSettings), "base")
    here("start")
    try:
        say(store.install(adapter_id, fill, source="upload", check=lambda folder: here("check"))[0].version)
    except GLiNERBentoError as error:
        say(error.code)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
