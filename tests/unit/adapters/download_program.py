"""A program: install adapters from the hub that huggingface_hub's environment names.

    python download_program.py <cache> <max_bytes> <repository or repository@revision>...

Prints a line for each: the content of its weights, or the code and message of an error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gliner_bento.adapters.archive import WEIGHTS_FILE
from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.adapters.disk import AdapterStore
from gliner_bento.adapters.sources import from_hub
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.settings import Settings


def main(cache: str, max_bytes: str, *repositories: str) -> None:
    for number, name in enumerate(repositories):
        repo_id, _, revision = name.partition("@")
        settings = Settings(disk_cache_dir=Path(cache) / str(number), adapter_id_pattern="a", max_adapter_bytes=10_000)
        store = AdapterStore(settings.view(AdapterSettings), "base")
        try:
            fill = from_hub(repo_id, revision or None, int(max_bytes))
            stored, _ = store.install("a", fill, source="hub", check=lambda folder: None)
            found = [(stored.folder / WEIGHTS_FILE).read_text()]
        except GLiNERBentoError as error:
            found = [error.code, error.message]
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
