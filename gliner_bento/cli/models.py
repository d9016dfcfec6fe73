"""`gliner-bento models`: lists, describes and copies checkpoints; lists and changes the models of a server."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gliner_bento.cli import backend
from gliner_bento.cli.parsers import DEFAULT_URL, CommandError, add_json, add_server, add_settings, command
from gliner_bento.cli.texts import aligned, shown
from gliner_bento.process.exits import exit_on_sigterm
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.settings.cores import usable_cores
from gliner_bento.storage.archives import SUFFIXES
from gliner_bento.storage.bundled import models_below

FETCH_SETTINGS = ("revision", "token", "cache_dir")
DOES_NOT_FIT = 2
_LOADING_TIMEOUT_S = 600.0
EXAMPLES = f"""examples:
  gliner-bento models list
  gliner-bento models list checkpoints/ --json
  gliner-bento models list --known
  gliner-bento models show models/demo
  gliner-bento models show urchade/gliner_small-v2.1 --adapter ./adapter --dtype float32
  gliner-bento models fetch urchade/gliner_small-v2.1 -o gliner-small
  gliner-bento models list --url http://localhost:3000
  gliner-bento models add pii gliner-pii --pinned
  gliner-bento models add news news.tar.gz
  gliner-bento models unload pii
  gliner-bento models load pii --url https://gliner.example.org
  gliner-bento models pin pii
  gliner-bento models unpin pii
  gliner-bento models delete pii

exit codes: 0 done; 1 an argument, a setting, the model or the server is wrong, and one line says which;
{DOES_NOT_FIT} --adapter does not fit the model"""


_CHANGES = {
    "add": "add a model to a server",
    "load": "load a model of a server",
    "unload": "unload a model, but keep it in the server's list",
    "pin": "never evict a model",
    "unpin": "allow a model to be evicted",
    "delete": "remove a model from a server",
}
"""Actions that change the models of a server."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = command(actions, "list", "list the checkpoints in folders and in the hub's cache", EXAMPLES)
    listed.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="default: the folder of the bundled model"
    )
    listed.add_argument("--known", action="store_true", help="list public models by purpose instead")
    add_server(listed, "list the models of a server instead", models=False)
    add_settings(listed, ["cache_dir"])
    show = command(actions, "show", "show what a checkpoint is and needs", EXAMPLES)
    show.add_argument("checkpoint", metavar="MODEL", help="hub id or local folder")
    show.add_argument("--adapter", type=Path, metavar="FOLDER", help="a LoRA adapter, saved by PEFT, to check")
    add_settings(show, [*(name for name in backend.SETTINGS if name not in ("model", "enable_lora")), "max_lora_rank"])
    fetch = command(actions, "fetch", "write a model to a folder that can be served without the hub", EXAMPLES)
    fetch.add_argument("checkpoint", metavar="MODEL", help="hub id or local folder")
    fetch.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="new or empty folder")
    add_settings(fetch, FETCH_SETTINGS)
    changes = {action: command(actions, action, text, EXAMPLES) for action, text in _CHANGES.items()}
    for change in changes.values():
        change.add_argument("name", metavar="NAME", help="name of the model on the server")
        add_server(change, f"the server (default: {DEFAULT_URL})", models=False, default=DEFAULT_URL)
    source = f"a local {', '.join(SUFFIXES)} file; a folder in the server's model_root; hub:owner/name"
    changes["add"].add_argument("source", metavar="SOURCE", help=source)
    changes["add"].add_argument("--pinned", action="store_true", help="never evict it")
    for action in (listed, show, fetch, *changes.values()):
        add_json(action)


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Run the action. Raises `SettingsError`, also for a model that cannot be served."""
    if getattr(options, "known", False):
        return _list_known(options)
    if getattr(options, "url", None):
        return _on_server(options)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with backend.failing_in_one_line(f"models {options.action}"):
        return _ACTIONS[options.action](options, flags)


def _on_server(options: argparse.Namespace) -> int:
    from gliner_bento.client import Client  # noqa: PLC0415

    with (
        backend.failing_in_one_line(f"models {options.action}", options.url),
        Client(options.url, api_key=options.api_key, timeout_s=_LOADING_TIMEOUT_S) as client,
    ):
        if options.action == "add":
            is_archive = options.source.endswith(SUFFIXES)
            source = Path(options.source) if is_archive else options.source
            client.add_model(options.name, source, pinned=options.pinned)
        elif options.action == "delete":
            client.delete_model(options.name)
        elif options.action != "list":
            client.change_model(options.name, options.action)
        models = client.models()
    if options.json:
        sys.stdout.write(json.dumps({"models": [asdict(model) for model in models]}) + "\n")
    else:
        rows = [("name", "state", "default", "pinned", "MB", "reason")]
        rows += [
            (row.id, row.state, shown(row.default), shown(row.pinned), _megabytes(row.bytes), row.reason or "")
            for row in models
        ]
        sys.stdout.write(aligned(rows))
    return 0


def _megabytes(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / 1e6:.1f}"


def _list(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    from gliner_bento.engine.checkpoint.here import CheckpointOptions, find_checkpoints  # noqa: PLC0415

    for folder in options.folders:
        if not folder.is_dir():
            raise CommandError(f"models list: {folder}: no such folder")
    folders = options.folders or [folder for folder in (models_below(PROJECT_ROOT),) if folder]
    checkpoints = find_checkpoints(folders, Settings.load(flags).view(CheckpointOptions))
    if options.json:
        sys.stdout.write(json.dumps({"models": [asdict(checkpoint) for checkpoint in checkpoints]}) + "\n")
    else:
        for checkpoint in checkpoints:
            sys.stdout.write(f"{checkpoint.model}  {checkpoint.bytes / 1e6:.1f} MB  {checkpoint.weights}\n")
    return 0


def _list_known(options: argparse.Namespace) -> int:
    from gliner_bento.cli.known_models import COLUMNS, known_models, row  # noqa: PLC0415

    if options.folders or options.url:
        raise CommandError("models list: --known: lists public models; leave out folders and --url")
    uses = known_models()
    if options.json:
        sys.stdout.write(json.dumps({"uses": [asdict(one) for one in uses]}, ensure_ascii=False) + "\n")
        return 0
    for number, one in enumerate(uses):
        sys.stdout.write(f"{'' if number == 0 else chr(10)}{one.use}\n")
        sys.stdout.write(aligned([COLUMNS, *map(row, one.models)]))
    sys.stdout.write("\nfrom model cards, unchecked, but for the columns texts/s and tried here: docs/which-model.md\n")
    return 0


def _show(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    settings = backend.one_off(Settings.load({"enable_lora": True, **flags, "model": options.checkpoint}))
    from gliner_bento.engine.describe import (  # noqa: PLC0415  # imports torch
        EngineOptions,
        adapter_fit,
        describe,
        pick_device,
    )

    decided = settings.decided_for(str(pick_device(settings.device)), usable_cores())
    runs_on: dict[str, Any] = {"device": decided.device, "dtype": decided.dtype, "options": decided.view(EngineOptions)}
    report = describe(decided.model, **runs_on)
    if options.adapter:
        backend.announce_loading(decided.model)
        report["adapter"] = adapter_fit(options.adapter, decided.model, max_rank=decided.max_lora_rank, **runs_on)
    if options.json:
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        sys.stdout.writelines(f"{name:20} {shown(value)}\n" for name, value in report.items())
    return 0 if report.get("adapter", {}).get("fits", True) else DOES_NOT_FIT


def _fetch(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    settings = Settings.load(flags)
    from gliner_bento.engine.checkpoint.fetch import CheckpointOptions, fetch  # noqa: PLC0415  # imports torch

    exit_on_sigterm()
    size_bytes = fetch(options.checkpoint, options.output, settings.view(CheckpointOptions))
    if options.json:
        sys.stdout.write(json.dumps({"folder": str(options.output), "bytes": size_bytes}) + "\n")
    else:
        serve = f"serve it with: gliner-bento serve --model {options.output}"
        sys.stdout.write(f"{options.output}: {size_bytes / 1e6:.1f} MB; {serve}\n")
    return 0


_ACTIONS = {"list": _list, "show": _show, "fetch": _fetch}
