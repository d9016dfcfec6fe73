"""`gliner-bento models fetch`: writes a model to a folder that can be served without the hub."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from gliner_bento.exits import write_line
from gliner_bento.settings import Settings

_ENDED_BY_SIGTERM = 143


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Fetch the model. Returns 1, with one line, if it cannot be served."""
    settings = Settings.load(flags)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # The other commands do not load torch.
    from gliner_bento.engine.checkpoint.fetch import CheckpointOptions, ModelError, fetch  # noqa: PLC0415

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED_BY_SIGTERM))  # so that nothing half-written remains
    try:
        size_bytes = fetch(options.model, options.output, settings.view(CheckpointOptions))
    except ModelError as error:
        write_line(f"models fetch: {error}")
        return 1
    sys.stdout.write(
        f"{options.output}: {size_bytes / 1e6:.1f} MB; serve it with: gliner-bento serve --model {options.output}\n"
    )
    return 0
