"""Command line: `python -m deploy.containers image|pod` prints and stores a measurement; 1 if a target is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from deploy.containers.image import image
from deploy.containers.pod import pod
from deploy.containers.podman import ContainerError
from reliability.__main__ import add_common_flags


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, store, print; the exit code."""
    flags = _parser().parse_args(argv)
    settings = dict(flags.set)
    try:
        if flags.what == "image":
            measurement = image(base=flags.base, torch=flags.torch, settings=settings)
        else:
            measurement = pod(image=flags.image, settings=settings)
    except ContainerError as error:
        sys.stderr.write(f"{flags.what}: {error}\n")
        return 1
    sys.stdout.write(measurement.store(flags.out))
    return 0 if measurement.met else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.containers", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("image", help="the container image under restrictions, with podman")
    command.add_argument("--base", help="an image with Python 3.11 (default: one made of Debian's packages)")
    command.add_argument("--torch", choices=("cpu", "cuda"), default="cpu", help="build of torch (default: cpu)")
    add_common_flags(command)
    command = commands.add_parser("pod", help="the pod of the Helm chart, with podman")
    default = "localhost/gliner-bento:latest"
    command.add_argument("--image", default=default, help=f"(default: {default})")
    add_common_flags(command)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
