"""Chaos: faults in the middle of a load whose right answers are known. No answer may be wrong, no request may hang."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmark.server import Server
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT
from reliability.faults import FAULTS, Fault
from reliability.faults import Target as Disturbed
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


def chaos(
    log: Path,
    *,
    faults: Sequence[str],
    seconds: float,
    clients: int = CLIENTS,
    different: int = 40,
    settings: Mapping[str, object],
) -> Measurement:
    """Each fault in turn on one server: `seconds` of load before it, as long while it lasts, and as long after the
    server is normal again. different: number of different requests."""
    at_start = provenance()
    used = {**SETTINGS, **settings}
    reports: dict[str, dict[str, Any]] = {}
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
            for name in faults:
                target = Disturbed(server, orders, Path(str(used["disk_cache_dir"])), models, seconds)
                reports[name] = _disturb(FAULTS[name], target, Load(server.url, asked, clients), seconds)
                if FAULTS[name].ends:
                    break
    shutdown_s = float(str(used["shutdown_timeout_s"]))
    targets = [
        Target("wrong answers", "requests", _sum(reports, "wrong"), 0),
        Target("hung requests", "requests", _sum(reports, "hung"), 0),
        Target("errors that the fault does not explain", "requests", _sum(reports, "unexplained"), 0),
        Target("errors after the server was normal again", "requests", _sum(reports, "errors_after"), 0),
        Target("faults after which it was not normal again", "faults", _sum(reports, "broken"), 0),
    ]
    if "sigterm" in reports:
        targets.append(Target("from SIGTERM to the end", "s", reports["sigterm"]["lasted_s"], shutdown_s))
    notes = [_table(reports), f"{clients} clients; settings: {', '.join(f'{name}={used[name]}' for name in SETTINGS)}."]
    command = f"make chaos ARGS='--seconds {seconds:g} --clients {clients}'"
    facts = {"faults": reports, "settings": {name: str(value) for name, value in used.items()}, "clients": clients}
    return Measurement("chaos", command, targets, facts, at_start, notes)


def _disturb(fault: Fault, target: Disturbed, load: Load, seconds: float) -> dict[str, Any]:
    """Counts of one fault."""
    sending = threading.Thread(target=load.run)
    sending.start()
    try:
        time.sleep(seconds)
        while not load.outcomes and sending.is_alive():
            time.sleep(0.01)
        began_s = time.monotonic()
        said = fault.inject(target)
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
