"""`gliner-bento serve --backend ray`: connects to a Ray cluster, or starts one here, and serves until it is stopped.

Ray's processes find this package where this process does, or installed on their node.
"""

from __future__ import annotations

import signal
import threading

from gliner_bento.configuration import SettingsError
from gliner_bento.exits import exit_with, one_line, write_line
from gliner_bento.ray.options import check
from gliner_bento.settings import load_or_exit

NAME = "gliner-bento"


def main(host: str, port: int) -> None:
    """Serve with the settings of the environment until SIGTERM or Ctrl+C. What cannot start ends the process with one
    line and exit code 1."""
    settings = load_or_exit()
    try:
        check(settings)
    except SettingsError as error:
        exit_with(str(error))
    try:
        import ray  # noqa: PLC0415
        from ray import serve  # noqa: PLC0415

        from gliner_bento.ray.app import application  # noqa: PLC0415
        from gliner_bento.ray.cluster import connect, reason  # noqa: PLC0415  # need the extra ray
    except ImportError as missing:
        exit_with(f"--backend ray: {one_line(missing)}; install gliner-bento[ray]")
    try:
        connect()
    except Exception as error:
        exit_with(f"Ray does not start: {one_line(error)}")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # Ray has installed its own
        signal.signal(number, lambda *_: stopped.set())
    failure: str | None = None
    try:
        http = {"host": host, "port": port, "keep_alive_timeout_s": settings.keep_alive_timeout_s}
        serve.start(proxy_location="HeadOnly", http_options=http)
        serve.run(application(settings), name=NAME, route_prefix="/", blocking=False)
        write_line(f"serving on http://{host}:{port} (Ctrl+C ends)")
        stopped.wait()
        serve.delete(NAME)  # waits for the requests; the end of the proxies would drop their connections
    except Exception as error:
        failed = serve.status().applications.get(NAME)
        details = [deployment.message for deployment in failed.deployments.values()] if failed else []
        failure = reason(error, details)
    serve.shutdown()
    ray.shutdown()
    if failure:
        exit_with(failure)
