"""`gliner-bento adapters`: the LoRA adapters of a server."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gliner_bento.adapter_types import AdapterInfo
from gliner_bento.cli.backend import failing_in_one_line
from gliner_bento.cli.parsers import DEFAULT_URL, add_json, add_server, command
from gliner_bento.cli.texts import aligned, shown

EXAMPLES = """examples:
  gliner-bento adapters list
  gliner-bento adapters put tenant-a ./adapter --pinned --url https://gliner.example.org
  gliner-bento adapters put tenant-b hub:owner/name --revision v2
  gliner-bento adapters pin tenant-b
  gliner-bento adapters unpin tenant-b
  gliner-bento adapters delete tenant-a

exit codes: 0 done; 1 an argument or the server's answer is wrong, and one line says which"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = command(actions, "list", "show all adapters", EXAMPLES)
    put = command(actions, "put", "upload a folder or archive, or install one that the server can read", EXAMPLES)
    put.add_argument("id", metavar="ID", help="id of the adapter")
    put.add_argument(
        "source", metavar="SOURCE", help="a local folder that PEFT saved, or a .zip or .tar.gz of it; hub:owner/name"
    )
    put.add_argument("--pinned", action="store_true", default=None, help="keep it in memory, evicted after all others")
    put.add_argument("--replace", action="store_true", help="replace an adapter of this id with other content")
    put.add_argument("--on-server", action="store_true", help="the source is a folder below the server's adapter_root")
    put.add_argument("--revision", help="branch, tag or commit of the hub repository")
    pin = command(actions, "pin", "keep an adapter in memory: it is evicted only after all others", EXAMPLES)
    unpin = command(actions, "unpin", "let an adapter be evicted from memory like the others", EXAMPLES)
    delete = command(actions, "delete", "delete an adapter", EXAMPLES)
    for action in (pin, unpin, delete):
        action.add_argument("id", metavar="ID", help="id of the adapter")
    for action in (listed, put, pin, unpin, delete):
        add_server(action, f"the server (default: {DEFAULT_URL})", default=DEFAULT_URL)
        add_json(action, "print what the API answers")


def run(options: argparse.Namespace, _flags: Mapping[str, Any]) -> int:
    """Call the server and print its answer."""
    from gliner_bento.client import Client  # noqa: PLC0415

    with (
        failing_in_one_line("adapters", options.url),
        Client(options.url, api_key=options.api_key, model=options.model_name) as client,
    ):
        adapters = _call(client, options)
    if options.json:
        plain = [asdict(adapter) for adapter in adapters]
        shown: Any = {"adapters": plain} if options.action == "list" else next(iter(plain), None)
        sys.stdout.write(json.dumps(shown) + "\n")
    elif options.action == "delete":
        sys.stdout.write(f"{options.id} is deleted\n")
    else:
        sys.stdout.write(_table(adapters))
    return 0


def _call(client: Any, options: argparse.Namespace) -> list[AdapterInfo]:
    if options.action == "list":
        return list(client.adapters().adapters)
    if options.action == "delete":
        client.delete_adapter(options.id)
        return []
    if options.action == "put":
        read_by_server = options.on_server or options.source.startswith("hub:")
        source = options.source if read_by_server else Path(options.source)
        return [
            client.put_adapter(
                options.id, source, revision=options.revision, pinned=options.pinned, replace=options.replace
            )
        ]
    return [client.put_adapter(options.id, pinned=options.action == "pin", preload=False)]


def _table(adapters: list[AdapterInfo]) -> str:
    rows = [("id", "source", "rank", "MB", "tier", "pinned", "uses")]
    rows += [
        (one.id, one.source, str(one.rank), f"{one.bytes / 1e6:.1f}", one.tier, shown(one.pinned), str(one.uses))
        for one in adapters
    ]
    return aligned(rows)
