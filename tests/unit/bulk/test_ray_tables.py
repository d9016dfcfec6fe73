"""The files that a bulk job on Ray reads. Needs no Ray."""

from __future__ import annotations

import pytest

from gliner_bento.errors import StartupError

pytest.importorskip("pyarrow")

from gliner_bento.files.records.sources import lacks_data, left_out
from gliner_bento.ray.tables import blocks_of


def test_files_of_other_formats_are_counted(tmp_path):
    for name in ("b.jsonl", "a.ndjson"):
        (tmp_path / name).write_text('{"text": "Oslo"}\n')
    for name in ("c.txt", "d.CSV", "e.jsonl.gz", "f.pdf", ".g.jsonl", ".DS_Store"):
        (tmp_path / name).write_bytes(b"")
    skipped: list[str] = []
    blocks = blocks_of([str(tmp_path)], 8, "text", skipped.append)
    assert [block.output for block in blocks] == ["a-000000000000.ndjson", "b-000000000000.jsonl"]
    counts = left_out(skipped)
    assert counts == {".txt": 1, ".csv": 1, ".jsonl.gz": 1, ".pdf": 1, "hidden": 1}
    assert lacks_data(counts)
    with pytest.raises(StartupError, match=r"c\.txt: is not, and does not contain, one of \.jsonl"):
        blocks_of([str(tmp_path / "c.txt")], 8, "text", skipped.append)
