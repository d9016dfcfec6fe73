"""A program: find checkpoints with the hub that huggingface_hub's environment names.

    python find_program.py <settings as JSON> <model>...

Prints a JSON line for each: `files` or `error`, and `seconds`. Imports no torch, as a model that cannot be found is
reported fast.
"""

from __future__ import annotations

import json
import sys
import time

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.resolve import find_checkpoint
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.settings import Settings


def main(settings: str, *models: str) -> None:
    given = json.loads(settings)
    onnx_file = given.pop("onnx_file", None)
    options = Settings(**given).view(CheckpointOptions)
    for model in models:
        started_s = time.monotonic()
        try:
            folder = find_checkpoint(model, options, onnx_file).folder
            found: dict[str, object] = {
                "files": sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
            }
        except ModelError as error:
            found = {"error": str(error)}
        assert "torch" not in sys.modules
        sys.stdout.write(json.dumps(found | {"seconds": time.monotonic() - started_s}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
