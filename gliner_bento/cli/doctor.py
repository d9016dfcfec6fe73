"""`gliner-bento doctor`: what this machine can do, the settings that are chosen on it, and a test of the model."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from gliner_bento.cli import backend
from gliner_bento.cli.parsers import add_json, add_server
from gliner_bento.cli.texts import shown
from gliner_bento.settings import Settings
from gliner_bento.settings.cores import usable_cores

FAILED = 2
EXAMPLES = f"""examples:
  gliner-bento doctor
  gliner-bento doctor --dtype float32 --json
  gliner-bento doctor --url https://gliner.example.org

exit codes: 0 the model answers as it should; {FAILED} it does not; 1 an argument, a setting, the model or the server is
wrong, and one line says which"""

_TEXT = "Bill Gates founded Microsoft in 1975."
_DECIDED_SETTINGS = ("inference_lanes", "torch_threads", "max_batch_tokens")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    add_server(parser, "test this server; default: load the model here", action="append", default=[])
    add_json(parser)


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Print the report."""
    from gliner_bento.loadtest.machine import provenance, versions  # noqa: PLC0415

    report: dict[str, Any] = {}
    if not options.url:
        machine = provenance()["machine"]
        report["machine"] = {
            "cpu": machine["cpu"],
            "usable_cores": usable_cores(),
            "cpu_flags": machine["flags"],
            "memory_gib": round(machine["memory_bytes"] / 2**30, 1),
            "gpus": _gpus(),
            "python": machine["python"],
        }
        report["packages"] = versions(("gliner-bento", "bentoml", "torch", "transformers", "gliner"))
    report["model"] = card = asyncio.run(_test(options, flags))
    if not options.url:
        decided = Settings.load(flags).decided_for(card["device"])
        report["settings"] = {name: getattr(decided, name) for name in _DECIDED_SETTINGS}
    sys.stdout.write(json.dumps(report) + "\n" if options.json else _as_text(report))
    return FAILED if card["self_test"] == "failed" or not card["entities_found"] else 0


async def _test(options: argparse.Namespace, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The model's card, and the entities that it finds in `_TEXT`."""
    only_self_test = partial(backend.one_off, checks=["batch_invariant"])
    async with backend.client(options, flags, only_self_test) as client:
        card = await client.model()
        started_s = time.monotonic()
        result = await client.extract(_TEXT, ["person", "organization"])
        return {
            **{name: getattr(card, name) for name in ("model", "family", "fingerprint", "device", "dtype", "forward")},
            **{name: getattr(card, name) for name in ("supports_relations", "supports_adapters", "max_words")},
            "self_test": card.self_test,
            "warnings": list(card.warnings),
            "entities_found": [f"{entity.text} [{entity.label}]" for entity in result.entities],
            "answer_ms": round((time.monotonic() - started_s) * 1000, 1),
        }


def _gpus() -> list[str]:
    """The NVIDIA GPUs, as the driver names them."""
    if not (program := shutil.which("nvidia-smi")):
        return []
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        completed = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return completed.stdout.splitlines() if completed.returncode == 0 else []


def _as_text(report: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for title, section in report.items():
        lines.append(title)
        lines += [f"  {name:20} {shown(value)}" for name, value in section.items()]
    return "\n".join(lines) + "\n"
