"""Chaos: faults in the middle of a load whose right answers are known. No answer may be wrong, no request may hang."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmark.bench import log_progress
from benchmark.server import Server
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT
from reliability.faults import FAULTS, Fault
from reliability.faults import Target as Disturbed
from reliability.guarded import CannotRun
from reliability.known_answers import DROPPED, HUNG, RIGHT, WRONG, Load, known_answers
from reliability.measurement import Measurement, Target
from reliability.served import serving

CLIENTS = 12
SETTINGS: Mapping[str, object] = {
    "dtype": "float32",  # so that answers can be compared
    "enable_lora": True,
    "hang_timeout_s": 10,
    "max_restarts": 100,
    "shutdown_timeout_s": 20,
}
_INJECTED = Path(__file__).parent / "injected"
_GIVE_UP_S = 180.0
_PART = "chaos-part"
"""Name of the result while faults are missing."""
_COUNTS = {
    "wrong": ("wrong answers", "requests"),
    "hung": ("hung requests", "requests"),
    "unexplained": ("errors that the fault does not explain", "requests"),
    "errors_after": ("errors after the server was normal again", "requests"),
    "broken": ("faults after which it was not normal again", "faults"),
    "failed": ("faults that did not have their effect", "faults"),
}
"""What has to be 0 in each report: title and unit."""


def chaos(
    log: Path,
    *,
    faults: Sequence[str],
    seconds: float,
    clients: int = CLIENTS,
    different: int = 40,
    settings: Mapping[str, object],
    out: Path | None = None,
) -> Measurement:
    """Each fault in turn on one server, the one that ends it last: `seconds` of load before it, as long while it lasts,
    and as long after the server is normal again. Writes a line per fault to stderr.

    different: number of different requests. out: folder in which the result so far is stored after each fault."""
    at_start = provenance()
    used = {**SETTINGS, **settings}
    run = _Progress(list(dict.fromkeys(faults)), seconds, clients, used, at_start)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        orders = Path(folder) / "orders"
        orders.mkdir()
        used.setdefault("disk_cache_dir", str(Path(folder) / "adapters"))
        models = Path(folder) / "models"
        shutil.copytree(PROJECT_ROOT / "models" / "demo", models / "demo")
        used["model_root"] = str(models)
        env = {"PYTHONPATH": str(_INJECTED), "CHAOS_ORDERS": str(orders)}
        with serving(log, used, env) as server:
            asked = known_answers(server.url, different)
            for name in sorted(run.chosen, key=lambda name: FAULTS[name].ends):
                fault = FAULTS[name]
                target = Disturbed(server, orders, Path(str(used["disk_cache_dir"])), models, seconds)
                load = Load(server.url, asked, 0 if fault.own_server else clients)
                run.keep(name, *_report(fault, target, load, 0.0 if fault.own_server else seconds))
                if out:
                    run.measurement().store(out)
                if run.reports.get(name, {}).get("broken"):
                    break
    if out and not run.not_run:
        (out / f"{_PART}.json").unlink(missing_ok=True)
    return run.measurement()


@dataclass(slots=True)
class _Progress:
    """The faults that have run, and why others have not."""

    chosen: Sequence[str]
    seconds: float
    clients: int
    settings: Mapping[str, object]
    at_start: Mapping[str, Any]
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.not_run = {name: "cut" if name in self.chosen else "not chosen" for name in FAULTS}

    def keep(self, name: str, report: dict[str, Any] | None, why_not: str) -> None:
        """Add the report of a fault, or the reason why it could not run, and write its line."""
        self.not_run[name] = why_not
        if report is not None:
            del self.not_run[name]
            self.reports[name] = report
        log_progress(f"{name}: {_verdict(report) if report else why_not}")

    def measurement(self) -> Measurement:
        """The result so far. It is named as one of all faults only if all have run."""
        targets = [Target(title, unit, _sum(self.reports, count), 0) for count, (title, unit) in _COUNTS.items()]
        missing = [name for name in self.chosen if name in self.not_run]
        targets.append(Target("chosen faults that have not run", "faults", len(missing), 0))
        if "sigterm" in self.reports:
            limit_s = float(str(self.settings["shutdown_timeout_s"]))
            targets.append(Target("from SIGTERM to the end", "s", self.reports["sigterm"]["lasted_s"], limit_s))
        used = ", ".join(f"{name}={self.settings[name]}" for name in SETTINGS)
        notes = [_table(self.reports), f"{self.clients} clients; settings: {used}."]
        if self.not_run:
            notes.append("Not run: " + ", ".join(f"{name} ({why})" for name, why in self.not_run.items()) + ".")
        flags = f"--seconds {self.seconds:g} --clients {self.clients}"
        if set(self.chosen) != set(FAULTS):
            flags += f" --faults {','.join(self.chosen)}"
        facts = {
            "faults": self.reports,
            "not_run": self.not_run,
            "settings": {name: str(value) for name, value in self.settings.items()},
            "clients": self.clients,
        }
        name = _PART if self.not_run else "chaos"
        return Measurement(name, f"make chaos ARGS='{flags}'", targets, facts, self.at_start, notes)


def _report(fault: Fault, target: Disturbed, load: Load, seconds: float) -> tuple[dict[str, Any] | None, str]:
    """The report of a fault; or None, and why it cannot run here."""
    began_s = time.monotonic()
    try:
        report = _disturb(fault, target, load, seconds)
    except CannotRun as reason:
        return None, str(reason)
    return report | {"took_s": time.monotonic() - began_s}, ""


def _disturb(fault: Fault, target: Disturbed, load: Load, seconds: float) -> dict[str, Any]:
    """Counts of one fault."""
    failed, sending = 0, threading.Thread(target=load.run)
    sending.start()
    try:
        time.sleep(seconds)
        while not load.outcomes and sending.is_alive():
            time.sleep(0.01)
        began_s = time.monotonic()
        try:
            said = fault.inject(target)
        except CannotRun:
            raise
        except Exception as error:  # the faults after it are to run, too
            said, failed = f"failed: {error!r}", 1
        lasted_s = time.monotonic() - began_s
        normal_s = began_s if fault.ends else _until_normal(target.server)
        if normal_s and not fault.ends:
            time.sleep(seconds)
    finally:
        load.stop()
        sending.join()
    counts = load.counts()
    since_normal = load.counts(normal_s) if normal_s and not fault.ends else Counter()
    return {
        "description": fault.description,
        "said": said,
        "failed": failed,
        "sent": len(load.outcomes),
        "right": counts[RIGHT],
        "wrong": sum(count for outcome, count in counts.items() if outcome.startswith(WRONG)),
        "hung": counts[HUNG],
        "errors": {outcome: count for outcome, count in sorted(counts.items()) if outcome != RIGHT},
        "unexplained": sum(
            not fault.allows(outcome.name) or (fault.ends and outcome.kind == DROPPED and outcome.sent_s < began_s)
            for outcome in load.outcomes
        ),
        "errors_after": since_normal.total() - since_normal[RIGHT] - since_normal["refused (queue_full)"],
        "lasted_s": lasted_s,
        "normal_after_s": None if normal_s is None or fault.ends else normal_s - began_s,
        "longest_s": max((outcome.ended_s - outcome.sent_s for outcome in load.outcomes), default=0.0),
        "broken": int(normal_s is None),
    }


def _verdict(report: Mapping[str, Any]) -> str:
    """The line of one fault."""
    missed = [f"{report[count]} {title}" for count, (title, _) in _COUNTS.items() if report[count]]
    counts = f"{report['right']} of {report['sent']} requests right, {report['took_s']:.0f} s"
    said = f"; {report['said']}" if report["said"] else ""
    return f"{'missed: ' + ', '.join(missed) if missed else 'met'} ({counts}){said}"


def _until_normal(server: Server) -> float | None:
    """When the server was ready, twice in a row, on the monotonic clock; None if it is not within `_GIVE_UP_S`."""
    give_up_s, ready = time.monotonic() + _GIVE_UP_S, 0
    while time.monotonic() < give_up_s:
        try:
            answer = httpx.get(f"{server.url}/readyz", timeout=10).status_code
        except httpx.TransportError:
            answer = 0
        ready = ready + 1 if answer == httpx.codes.OK else 0
        if ready > 1:
            return time.monotonic()
        time.sleep(0.5)
    return None


def _sum(reports: Mapping[str, Mapping[str, Any]], count: str) -> float:
    return float(sum(report[count] for report in reports.values()))


def _table(reports: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| fault | sent | right | errors | wrong | hung | normal after | |", "|---|---|---|---|---|---|---|---|"]
    for name, report in reports.items():
        errors = ", ".join(f"{count} {outcome}" for outcome, count in report["errors"].items()) or "0"
        after = "-" if report["normal_after_s"] is None else f"{report['normal_after_s']:.0f} s"
        lines.append(
            f"| {name}: {report['description']} | {report['sent']} | {report['right']} | {errors} | {report['wrong']} "
            f"| {report['hung']} | {after} | {report['said']} |"
        )
    return "\n".join(lines)
