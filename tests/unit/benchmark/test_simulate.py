"""The simulation: the real fleet, deterministic for a seed, against other policies on the same arrivals."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmark.__main__ import SIMULATION, main
from benchmark.simulate import curves
from benchmark.simulate.scene import Death, Scene, run, summary
from gliner_bento.settings import PROJECT_ROOT


def test_the_curves_have_the_measured_throughputs():
    measured = curves.measured()
    mean_s = sum(measured.text_s(text.words) for text in curves.texts()) / len(curves.texts())
    assert 1 / mean_s == pytest.approx(57.8, rel=0.01)
    assert 1 / measured.text_s(curves.LONG_WORDS) == pytest.approx(7.41, rel=0.01)
    assert measured.load_s == pytest.approx(0.031, abs=0.001)


def test_one_replica_is_as_fast_as_the_measured_one_with_32_concurrent_requests():
    scene = Scene(replicas=1, concurrency=32, requests=600)
    found = summary(scene, run(scene))
    assert found["requests_per_s"] == pytest.approx(57.8, rel=0.05)
    assert found["p50_ms"] == pytest.approx(560, rel=0.1)
    assert found["p99_ms"] == pytest.approx(924, rel=0.2)


def test_a_seed_decides_everything():
    scene = Scene(replicas=4, requests=600, adapters=50, adapter_capacity=8, deaths=[Death(1, 1.0, 2.0)])
    one, same = run(scene), run(scene)
    assert (one.latencies_s, one.received) == (same.latencies_s, same.received)
    assert (one.outcomes, one.repeated, one.loads) == (same.outcomes, same.repeated, same.loads)
    other = run(Scene(replicas=4, requests=600, seed=1))
    assert other.latencies_s != one.latencies_s


@pytest.mark.parametrize("case", [{"slow": 1, "load": 0.5}, {"load": 0.85}, {"adapters": 300, "adapter_capacity": 48}])
def test_the_fleet_is_faster_than_round_robin(case):
    ours, theirs = (
        summary(scene, run(scene))
        for scene in (Scene(replicas=6, policy=policy, requests=1200, **case) for policy in ("ours", "round robin"))
    )
    assert ours["outcomes"] == theirs["outcomes"] == {"answered": 1200}
    assert ours["p50_ms"] <= theirs["p50_ms"]
    assert ours["p99_ms"] < theirs["p99_ms"]
    assert ours["adapter_loads"] <= 0.5 * theirs["adapter_loads"]


@pytest.mark.parametrize("policy", ["ours", "power of two", "round robin"])
def test_a_death_loses_nothing(policy):
    result = run(Scene(replicas=3, policy=policy, load=0.8, requests=800, deaths=[Death(1, 1.0, 2.0)]))
    assert result.outcomes == {"answered": 800}
    assert result.repeated > 0
    assert len(result.received) == 800 + result.repeated


@pytest.mark.parametrize("policy", ["ours", "power of two", "round robin"])
def test_requests_are_placed_in_order_while_replicas_are_full(policy):
    limit = 1000
    result = run(Scene(replicas=3, policy=policy, load=1.5, requests=400, max_outstanding_tokens=limit))
    order = [int(request_id) for request_id in result.received]
    assert order == sorted(order)
    unlimited = run(Scene(replicas=3, policy=policy, load=1.5, requests=400))
    assert result.latencies_s != unlimited.latencies_s, "the limit was reached"


def test_a_full_fleet_refuses_and_one_that_has_grown_does_not():
    few = Scene(replicas=1, load=3.0, requests=1200, queue_capacity=300)
    assert run(few).outcomes["QueueFull"] > 0
    assert run(replace(few, late=3, late_s=2.0)).outcomes == {"answered": 1200}


def test_the_page_has_a_row_for_every_scene(tmp_path, capsys):
    data = json.loads((PROJECT_ROOT / "docs" / "measurements" / SIMULATION).read_text("utf-8"))
    (tmp_path / SIMULATION).write_text(json.dumps(data), encoding="utf-8")
    assert main(["--simulate", "--report", str(tmp_path)]) == 0
    page = capsys.readouterr().out
    rows = sum(line.startswith("| ") and "---" not in line for line in page.splitlines())
    parts = [part for part in data.values() if isinstance(part, list)]
    assert rows == sum(map(len, parts)) + len(parts), "a head for each"


@pytest.mark.slow
def test_a_quick_study_has_what_the_page_shows(tmp_path, capsys):
    assert main(["--simulate", "--quick", "--out", str(tmp_path)]) == 0
    assert "| replicas |" in capsys.readouterr().out
