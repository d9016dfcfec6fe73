"""`gliner-bento keys new`: makes an API key and its entry for the file of keys."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from gliner_bento.api_keys import ApiKey, hash_of, new_key
from gliner_bento.configuration import SettingsError


def run(options: argparse.Namespace, _flags: Mapping[str, Any]) -> int:
    """Write the entry to standard output and the key, which is stored nowhere, to standard error."""
    key = new_key()
    scopes = options.scopes.split(",")
    entry = {"name": options.name, "sha256": hash_of(key), "scopes": scopes}
    if options.tenant:
        entry["tenant"] = options.tenant
    try:
        ApiKey.model_validate(entry)
    except ValidationError as invalid:
        fault = invalid.errors(include_input=False, include_url=False)[0]
        raise SettingsError(f"keys: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    sys.stdout.write(yaml.safe_dump([entry], sort_keys=False))
    sys.stderr.write(f"gliner-bento: the key of {options.name}, shown only now: {key}\n")
    return 0
