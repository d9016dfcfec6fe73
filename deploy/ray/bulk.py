"""Entities of all rows of Parquet or JSONL files, on a Ray cluster. Run it again to continue after a failure.

python deploy/ray/bulk.py texts/ --output results/ --labels person,company

Settings of the server (GLINER_MODEL, GLINER_DTYPE, ...) come from the environment and configuration.yaml; RAY_ADDRESS
names the cluster. See docs/scaling.md.

Exit codes: 0 every row has a result; 1 the job cannot start, or has ended early, and one line says why; 2 some rows
have failed, or files of other formats are left out, and one line has their numbers.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gliner_bento.errors import StartupError, install_hint, one_line
from gliner_bento.files.records.sources import lacks_data, left_out_line
from gliner_bento.process.exits import exit_with, write_line
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.settings.cores import usable_cores


def main() -> None:
    """Run the job. What cannot start ends the process with one line and exit code 1."""
    options = arguments()
    try:
        from gliner_bento.ray.bulk import RayBulkJob, run  # noqa: PLC0415  # needs the extra ray
        from gliner_bento.ray.tables import READABLE  # noqa: PLC0415

        values = {name: value for name, value in vars(options).items() if value is not None}
        job = RayBulkJob(**{**values, "cpus": options.cpus or max(1, usable_cores() // options.actors)})
        report = run(job, Settings.load(), lambda done, blocks: print(f"{done} of {blocks} blocks", flush=True))
    except ImportError as missing:
        exit_with(f"{one_line(missing)}; {install_hint('ray')}")
    except (SettingsError, StartupError) as error:
        exit_with(str(error))
    errors = ", ".join(f"{number} {code}" for code, number in report.errors.items()) or "none"
    written = report.blocks - report.skipped
    print(f"{report.rows} rows in {written} blocks; {report.skipped} blocks were there; errors: {errors}")
    if report.left_out:
        write_line(left_out_line(report.left_out, READABLE))
    sys.exit(2 if report.errors or lacks_data(report.left_out) else 0)


def arguments() -> argparse.Namespace:
    """The fields of `RayBulkJob`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("inputs", nargs="+", help=".parquet and .jsonl files, or folders of them")
    parser.add_argument("--output", required=True, help="folder for the results, which all nodes see")
    parser.add_argument("--labels", type=names, required=True, help="separated by commas")
    parser.add_argument("--relations", type=names, help="separated by commas")
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--adapter-id")
    parser.add_argument("--text-column", help="column of the input with the text (default: text)")
    parser.add_argument("--block-rows", type=positive, help="rows of an output file (default: 1024)")
    parser.add_argument("--actors", type=positive, default=1, help="processes with the model, at most (default: 1)")
    parser.add_argument("--cpus", type=positive, help="of each actor (default: those of this machine / actors)")
    parser.add_argument("--gpus", type=float, help="of each actor (default: 0)")
    return parser.parse_args()


def names(value: str) -> dict[str, Any]:
    """Labels that are their own descriptions."""
    found = {name: name for name in map(str.strip, value.split(",")) if name}
    if not found:
        raise argparse.ArgumentTypeError("at least one is needed")
    return found


def positive(value: str) -> int:
    """At least 1."""
    if not value.isdigit() or not int(value):
        raise argparse.ArgumentTypeError("must be a whole number of at least 1")
    return int(value)


if __name__ == "__main__":
    main()
