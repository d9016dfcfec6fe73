"""What chaos keeps while it runs: a result claims only the faults that have run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from on_a_socket import on_a_socket
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmark.server import Server
from gliner_bento.loadtest.machine import provenance
from reliability.chaos import SETTINGS, _Progress, _report
from reliability.faults import FAULTS, Fault, Target
from reliability.guarded import CannotRun
from reliability.known_answers import Load


def report_of(inject, tmp_path):
    """The report of a fault, without requests, on a server that is ready."""

    async def ready(_request):
        return JSONResponse({})

    with on_a_socket(Starlette(routes=[Route("/readyz", ready)])) as url:
        target = Target(Server(url, 0), tmp_path, tmp_path, tmp_path, 0.0)
        return _report(Fault("a fault", inject), target, Load(url, [], 0), 0.0)


def raises(error):
    def inject(_target):
        raise error

    return inject


def stored(progress, folder):
    progress.measurement().store(folder)
    return {path.name: json.loads(path.read_text()) for path in folder.iterdir()}


def test_a_result_claims_only_the_faults_that_have_run(tmp_path, capsys):
    progress = _Progress(list(FAULTS), 1.0, 4, SETTINGS, provenance())
    report = report_of(lambda _target: "done", tmp_path)
    progress.keep("clock-jumps", *report)
    assert "clock-jumps: met (0 of 0 requests right" in capsys.readouterr().err
    assert not progress.measurement().met, "faults are missing"
    (name, part) = next(iter(stored(progress, tmp_path / "part").items()))
    assert (name, list(part["faults"])) == ("chaos-part.json", ["clock-jumps"])
    assert part["not_run"] == dict.fromkeys(FAULTS.keys() - {"clock-jumps"}, "cut")
    for fault in FAULTS:
        progress.keep(fault, *report)
    assert progress.measurement().met
    assert list(stored(progress, tmp_path / "whole")) == ["chaos.json"]


def test_a_run_of_some_faults_is_met_and_is_no_result_of_all(tmp_path):
    progress = _Progress(["clock-jumps"], 1.0, 4, SETTINGS, provenance())
    progress.keep("clock-jumps", *report_of(lambda _target: "", tmp_path))
    assert progress.measurement().met
    (name, part) = next(iter(stored(progress, tmp_path / "out").items()))
    assert name == "chaos-part.json"
    assert "--faults clock-jumps" in part["command"]
    assert set(part["not_run"].values()) == {"not chosen"}


def test_a_fault_that_fails_is_missed_and_does_not_end_the_run(tmp_path, capsys):
    progress = _Progress(["guard-killed"], 1.0, 4, SETTINGS, provenance())
    progress.keep("guard-killed", *report_of(raises(AssertionError("a value passed")), tmp_path))
    assert "missed: 1 faults that did not have their effect" in capsys.readouterr().err
    measured = progress.measurement()
    assert not measured.met
    assert "a value passed" in measured.page()


@pytest.mark.parametrize("chosen", [["guard-redis"], list(FAULTS)])
def test_a_fault_that_cannot_run_here_has_not_run(chosen, tmp_path: Path):
    progress = _Progress(chosen, 1.0, 4, SETTINGS, provenance())
    progress.keep("guard-redis", *report_of(raises(CannotRun("it needs redis-server")), tmp_path))
    measured = progress.measurement()
    assert not measured.met
    assert measured.facts["not_run"]["guard-redis"] == "it needs redis-server"
    assert not measured.facts["faults"]
