"""A program: read pickled weights through the cache of conversions, when a line arrives on its standard input.

    python convert_program.py <folder of the weights> <conversion_cache_dir>

Prints "ready", and at the end the number of tensors.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gliner_bento.engine.checkpoint.convert import read_converted
from gliner_bento.engine.checkpoint.find import find_weights
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.settings import Settings


def main(folder: str, cache: str) -> None:
    options = Settings(conversion_cache_dir=Path(cache)).view(CheckpointOptions)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(f"{len(read_converted(find_weights(Path(folder), folder), options))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
