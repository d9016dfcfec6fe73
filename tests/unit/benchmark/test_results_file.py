"""How results are stored."""

from __future__ import annotations

import json

from benchmark import results_file


def test_results_are_read_as_they_were_but_for_digits(tmp_path):
    data = {"commit": "0123", "points": [{"p50_ms": 22.123456789, "requests": 1234567, "failed": None}], "met": True}
    results_file.write(tmp_path / "results.json", data)
    text = (tmp_path / "results.json").read_text("utf-8")
    assert len(text.splitlines()) == 2 + len(data)
    assert json.loads(text) == data | {"points": [{"p50_ms": 22.12346, "requests": 1234567, "failed": None}]}
