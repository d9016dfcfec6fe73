"""`gliner-bento keys new`: makes an API key and its entry for the file of keys."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from gliner_bento.cli.parsers import CommandError, add_json, command
from gliner_bento.storage.api_keys import ALL_SCOPES, ApiKey, hash_of, new_key

EXAMPLES = """examples:
  gliner-bento keys new tenant-a >> keys.yaml
  gliner-bento keys new operator --scopes extract,adapters,metrics --tenant operations --json

exit codes: 0 done; 1 an argument is wrong, and one line says which"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = command(actions, "new", "make a key; print its entry for the file of keys, and the key itself", EXAMPLES)
    new.add_argument("name", metavar="NAME", help="name of the key and, by default, of its tenant")
    new.add_argument(
        "--scopes",
        default="extract",
        metavar="NAMES",
        help=f"some of {','.join(sorted(ALL_SCOPES))} (default: extract)",
    )
    new.add_argument(
        "--tenant", metavar="NAME", help="the key's tenant; several keys may share one (default: the name)"
    )
    add_json(new, "print the entry and the key as one JSON object")


def run(options: argparse.Namespace, _flags: Mapping[str, Any]) -> int:
    """Write the entry to standard output and the key, which is stored nowhere, to standard error; JSON has both."""
    key = new_key()
    scopes = options.scopes.split(",")
    entry = {"name": options.name, "sha256": hash_of(key), "scopes": scopes}
    if options.tenant:
        entry["tenant"] = options.tenant
    try:
        ApiKey.model_validate(entry)
    except ValidationError as invalid:
        fault = invalid.errors(include_input=False, include_url=False)[0]
        raise CommandError(f"keys: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    if options.json:
        sys.stdout.write(json.dumps({"entry": entry, "key": key}) + "\n")
        return 0
    sys.stdout.write(yaml.safe_dump([entry], sort_keys=False))
    sys.stdout.flush()  # a key is of no use if its entry cannot be written
    sys.stderr.write(f"gliner-bento: the key of {options.name}, shown only now: {key}\n")
    return 0
