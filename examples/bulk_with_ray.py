"""Entities of many texts on all cores with Ray Data: `python examples/bulk_with_ray.py`. Extras: serve, ray.

Started again, it continues where it was; with all results there, it only counts them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from gliner_bento.ray.bulk import RayBulkJob, run
from gliner_bento.settings import Settings
from gliner_bento.settings.cores import usable_cores

TEXTS = ["Marie Curie was born in Warsaw.", "Tim Cook works at Apple in Cupertino.", "Nothing happened."]


def main() -> None:
    """Write 300 texts to a file, extract, and count what was found."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/bulk-example")
    folder.mkdir(parents=True, exist_ok=True)
    texts = folder / "texts.jsonl"
    texts.write_text("".join(json.dumps({"id": number, "text": TEXTS[number % 3]}) + "\n" for number in range(300)))
    labels = {"person": "person", "company": "company", "city": "city"}
    job = RayBulkJob([str(texts)], str(folder / "results"), labels, block_rows=50, cpus=usable_cores())
    run(job, Settings.load())
    found: Counter[str] = Counter()
    for file in (folder / "results").glob("*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            found.update(entity["text"] for entity in row["entities"])
    sys.stdout.writelines(f"{number:4} {text}\n" for text, number in found.most_common())


if __name__ == "__main__":
    main()
