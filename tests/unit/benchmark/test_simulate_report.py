"""The report of a study: every scene has its row, costs follow from the price, plots are drawn if they can be."""

from __future__ import annotations

import importlib.util
import json

import pytest

from benchmark.__main__ import SIMULATION, main
from benchmark.simulate.report import highest_loads
from gliner_bento.settings import PROJECT_ROOT


@pytest.fixture
def data():
    """The committed study."""
    return json.loads((PROJECT_ROOT / "docs" / "measurements" / SIMULATION).read_text("utf-8"))


def test_the_report_shows_every_scene(data, tmp_path, capsys):
    (tmp_path / SIMULATION).write_text(json.dumps(data), encoding="utf-8")
    assert main(["--simulate", "--report", str(tmp_path), "--price-per-hour", "0.36"]) == 0
    page = capsys.readouterr().out
    assert page == (tmp_path / "simulate.md").read_text("utf-8")
    rows = sum(line.startswith("| ") and "---" not in line for line in page.splitlines())
    parts = [part for part in data.values() if isinstance(part, list)]
    assert rows == sum(map(len, parts)) + len(parts) + len(highest_loads(data)) + 1, "a head for each, and costs"
    assert "Assumed: 0.36 per hour and replica" in page
    if importlib.util.find_spec("matplotlib"):
        assert {file.name for file in tmp_path.glob("*.svg")} == {
            f"simulate-{name}.svg" for name in ("latency", "adapters", "events", "overhead")
        }


def test_costs_follow_from_the_price_and_the_highest_load(data):
    rows = [
        {"policy": policy, "replicas": 10, "load": load, "p99_ms": p99_ms}
        for policy, load, p99_ms in [
            ("ours", 0.5, 100.0),
            ("ours", 0.7, 200.0),
            ("ours", 0.9, 201.0),
            ("random", 0.9, 1.0),
        ]
    ]
    assert highest_loads(data | {"sizes": rows, "target_p99_ms": 200.0}) == {10: 0.7}


@pytest.mark.slow
def test_a_quick_study_has_what_the_report_shows(tmp_path):
    assert main(["--simulate", "--quick", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "simulate.md").exists()
