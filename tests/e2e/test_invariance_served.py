"""A served model in bfloat16 answers byte for byte the same, one request at a time and at concurrency 64."""

from __future__ import annotations

import json
from pathlib import Path

from reliability.__main__ import main


def test_answers_are_the_same_bytes_alone_and_under_load(tmp_path: Path) -> None:
    """Also where the processor only emulates bfloat16."""
    flags = ["--requests", "64", "--precisions", "bfloat16", "--cost-rounds", "0", "--set", "self_test=false"]
    assert main(["invariance", *flags, "--out", str(tmp_path)]) == 0, (tmp_path / "invariance.md").read_text()
    served = json.loads((tmp_path / "invariance.json").read_text())["bfloat16"]
    assert served["dtype"] == "bfloat16"
    assert served["with_entities"] > 30
