"""`gliner-bento serve --backend ray`: the gateway in this process, and replicas on a Ray cluster. The cluster already
exists, or is started on this machine and ends with this process.

Requests do not pass Ray's proxy, which takes more CPU time than the gateway, so the gateway limits connections. Ray's
processes must find this package, under the same path as this process or installed on their node.
"""

from __future__ import annotations

import os
import signal
import sys

from gliner_bento.errors import install_hint, one_line
from gliner_bento.process.exits import exit_with, load_or_exit
from gliner_bento.ray.options import FOR_THROUGHPUT, check
from gliner_bento.settings.configuration import SettingsError

NAME = "gliner-bento"


def main(host: str, port: int) -> None:
    """Serve with the settings of the environment until SIGTERM or Ctrl+C. A failure to start ends the process with one
    line and exit code 1."""
    settings = load_or_exit()
    try:
        check(settings, proxied=False)
    except SettingsError as error:
        exit_with(str(error))
    for name, value in FOR_THROUGHPUT.items():  # read when Ray Serve is imported, here and in a new cluster's processes
        os.environ.setdefault(name, value)
    try:
        import ray  # noqa: PLC0415
        from ray import serve  # noqa: PLC0415

        from gliner_bento.ray.cluster import connect, reason  # noqa: PLC0415
        from gliner_bento.ray.deployments import deploy  # noqa: PLC0415
        from gliner_bento.ray.server import GatewayServer  # noqa: PLC0415  # need the extra ray
    except ImportError as missing:
        exit_with(f"--backend ray: {one_line(missing)}; {install_hint('ray')}")
    try:
        connect()
    except Exception as error:
        exit_with(f"Ray does not start: {one_line(error)}")
    for number in (signal.SIGINT, signal.SIGTERM):  # replaces Ray's handlers
        signal.signal(number, lambda *_: sys.exit(0))
    failure: str | None = None
    try:
        serve.start(proxy_location="Disabled")
        GatewayServer(settings, deploy(settings, NAME), host, port).run()
    except Exception as error:
        failure = reason(error)
    finally:
        serve.shutdown()
        ray.shutdown()
    if failure:
        exit_with(failure)
