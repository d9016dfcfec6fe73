"""`gliner-bento bulk`: `extract` for all records of many files, written to one file."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gliner_bento.cli import backend
from gliner_bento.cli.parsers import CommandError, add_json, add_records
from gliner_bento.cli.texts import counted
from gliner_bento.errors import GLiNERBentoError, StartupError, one_line
from gliner_bento.files.records.sources import lacks_data, left_out_line
from gliner_bento.files.records.writers import FORMATS
from gliner_bento.process.exits import INTERRUPTED, write_line

if TYPE_CHECKING:
    from gliner_bento.files.bulk.job import Job, Progress, Report

EXAMPLES = """examples:
  gliner-bento bulk letters/ -o letters.parquet --labels person,organization,city
  gliner-bento bulk news.jsonl.gz more.csv -o news.jsonl --text-column body --labels @labels.yaml
  gliner-bento bulk news.parquet -o out.jsonl --labels person --url http://a:3000 --url http://b:3000

A run that was killed continues: start the same command again.

exit codes: 0 every record has a result; 1 an argument, the input, the model or a server is wrong, and one line says
which; 2 some files cannot be read, one line each, or have another format and are left out, one line with their numbers,
or some records have failed, and are in OUT.errors.jsonl; 130 interrupted"""

NOT_ALL_DONE = 2
_CONTINUE = "start the same command again to continue"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags, and those of `backend`."""
    add_records(parser, "a text file is one record")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help=", ".join(FORMATS))
    parser.add_argument("--labels-column", metavar="NAME", help="column with a record's own labels")
    parser.add_argument("--adapter-column", metavar="NAME", help="column with the id of a record's adapter")
    parser.add_argument("--overwrite", action="store_true", help="start from the beginning, and replace OUT")
    add_json(parser, "print the summary as JSON")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    backend.add_flags(parser, several=True)
    backend.add_schema_flags(parser)


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Run the job with a progress bar on standard error."""
    import httpx  # noqa: PLC0415

    from gliner_bento.cli.progress import progress_bar  # noqa: PLC0415
    from gliner_bento.files.bulk.job import Job  # noqa: PLC0415

    job = Job(
        inputs=options.inputs,
        output=options.output,
        labels=backend.names(options.labels, "--labels"),
        options=backend.request_fields(options),
        text_column=options.text_column,
        labels_column=options.labels_column,
        adapter_column=options.adapter_column,
        encoding=options.encoding,
        skip_invalid=options.skip_invalid,
    )
    try:
        job.check()
        with progress_bar(hidden=options.quiet) as progress:
            report = asyncio.run(_run(job, options, flags, progress))
    except StartupError as error:
        raise CommandError(f"bulk: {one_line(error)}") from None
    except (GLiNERBentoError, httpx.HTTPError) as error:
        raise CommandError(f"bulk: {', '.join(options.url)}: {backend.explained(error)}; {_CONTINUE}") from None
    except OSError as error:
        raise CommandError(f"bulk: {error.filename or job.output}: {error.strerror}; {_CONTINUE}") from None
    except KeyboardInterrupt:
        write_line(f"bulk: interrupted; {_CONTINUE}")
        return INTERRUPTED
    for fault in report.skipped.values():
        write_line(f"bulk: {fault}")
    if report.left_out:
        write_line(f"bulk: {left_out_line(report.left_out)}")
    _print(report, as_json=options.json)
    return NOT_ALL_DONE if report.failed or report.skipped or lacks_data(report.left_out) else 0


async def _run(job: Job, options: argparse.Namespace, flags: Mapping[str, Any], progress: Progress) -> Report:
    from gliner_bento.files.bulk.job import run as run_job  # noqa: PLC0415

    async with backend.clients(options, flags) as clients:
        return await run_job(job, clients, progress, overwrite=options.overwrite)


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(asdict(report), ensure_ascii=False) + "\n")
        return
    line = f"{report.output}: {counted(report.records - report.failed, 'record')}"
    line += f"; {report.resumed} from an earlier run" if report.resumed else ""
    line += f"; {report.failed} failed, see {report.errors}" if report.failed else ""
    line += "".join(f"; {number} with the warning {code}" for code, number in report.warnings.items())
    sys.stdout.write(line + "\n")
