"""Bulk jobs in processes of their own, which a test may kill: small chunks, over a gateway without a model.

python bulk_program.py OUTPUT INPUT... [RECORDS OF A CHUNK]
python bulk_program.py -

The latter reads such arguments as lines of JSON, and starts a process for each without loading the packages again: it
prints the process id, and the exit status (as `Popen.returncode`) when the process has ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx

sys.path += [str(Path(__file__).parents[up] / name) for up, name in ((3, ""), (2, ""), (1, "gateway"))]

from doubles.memory_replica import MemoryReplica
from gateway_options import OPTIONS

from gliner_bento.client import AsyncClient
from gliner_bento.files.bulk import job as bulk
from gliner_bento.files.bulk.job import Job, Report
from gliner_bento.gateway.app import GatewayApp

LARGER = replace(OPTIONS, max_batch_items=64, max_body_bytes=2**20)


def client(replica: MemoryReplica | None = None) -> AsyncClient:
    """Of the real gateway; texts of more than 100 characters are refused."""
    app = GatewayApp(LARGER)
    app.bind(replica or MemoryReplica())
    return AsyncClient("http://test", transport=httpx.ASGITransport(app))


def run(output: Path, inputs: Sequence[str], **options) -> Report:
    """The report of a job with one label, `city`."""
    overwrite = options.pop("overwrite", False)
    clients = options.pop("clients", None) or [client()]
    job = Job(inputs, output, **{"labels": ["city"], **options})
    job.check()
    return asyncio.run(bulk.run(job, clients, lambda *_: None, overwrite=overwrite))


def main(output: str, *given: str) -> None:
    inputs = list(given)
    bulk.CHUNK_RECORDS = int(inputs.pop()) if inputs[-1].isdigit() else 10
    replica = MemoryReplica()
    hold = Path(output).with_name("hold")  # while it exists, the job does not reach its end
    replica.step = lambda: not (replica._running[0].item.text.startswith("399 ") and hold.exists())
    replica.calls, replica.admitted, replica.passes = deque(maxlen=0), deque(maxlen=0), deque(maxlen=0)
    run(Path(output), inputs, clients=[client(replica)])


def fork(arguments: Sequence[str]) -> None:
    """Run a job in a child of this process, which waits for its end."""
    if not (pid := os.fork()):
        try:
            main(*arguments)
            os._exit(0)
        finally:
            os._exit(1)
    write_line(pid)
    write_line(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def write_line(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        for line in sys.stdin:
            fork(json.loads(line))
    else:
        main(*sys.argv[1:])
