"""Limits the restarts of `bentoml serve`: ends a server that cannot work, with one line and exit code 1. Knows nothing
of models and HTTP.

`bentoml serve` is a supervisor: it starts the processes of the services, and restarts each one whenever it ends. Two
rules limit that:

- a process that fails before its service has been ready ends the server;
- a process that dies later, or is killed because it hangs, is restarted, the first time immediately, then with backoff,
  at most `max_restarts` times within `restart_window_s`.

A supervisor that is killed cannot end the processes, so they end by themselves.

The supervisor makes a folder and sets its path in the environment of all processes (`supervise`). The folder has a
journal per service, written by the service's processes (`ServiceProcess`), and the metrics files of all processes;
BentoML's own folder for these is shared by all servers of a user. Without a supervisor, as in the plain ASGI app, a
service that fails to start ends its process.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

import click

from gliner_bento.errors import StartupError, one_line
from gliner_bento.host.journal import ModelsJournal
from gliner_bento.process.announcement import ADDRESS, announce_when, url_of
from gliner_bento.process.bentoml_options import bentoml_options, default_host
from gliner_bento.process.deaths import notice_deaths
from gliner_bento.process.exits import exit_with, write_line
from gliner_bento.process.heartbeat import Heartbeat, HeartbeatMonitor, are_stopping
from gliner_bento.process.port import check_address_or_exit, listen_when_ready, refuse_connections
from gliner_bento.process.shutdown import Shutdown
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import SettingsError
from gliner_bento.storage.files import is_alive
from gliner_bento.storage.parent import when_orphaned
from gliner_bento.storage.scratch import scratch_folder, use_scratch_folder
from gliner_bento.telemetry import log

logger = logging.getLogger(__name__)

FOLDER = "_GLINER_SUPERVISION"
STARTS = "_GLINER_STARTS"
"""Environment variables: the supervisor's folder, and the number of its starts (see `_start_again`)."""

METRICS = "metrics"
"""Subfolder of the supervisor's folder: the files of prometheus_client."""

_MAX_STARTS = 3
_POLL_S = 0.1
_ANSWERED_S = 1.0
_SIGNAL_SPREAD_S = 2.0  # all processes get a signal within this time
_MAX_DOUBLINGS = 5  # of the backoff: up to 32 s
_EXPECTED = (StartupError, SettingsError, OSError, MemoryError)
"""Errors whose message suffices. For all others, which are bugs, the traceback is logged."""
_OUT_OF_MEMORY = "out of memory"
"""Part of the message of torch's out-of-memory errors, whose classes cannot be imported without torch."""

Event = Literal["started", "ready", "stopped", "died"]


def supervise(settings: Settings) -> None:
    """Apply the rules to this process, which runs `bentoml serve` and has not started any other process yet."""
    log.configure(settings)
    context = click.get_current_context(silent=True)
    if context is None:
        return  # bentoml.serve() in a user's program, which must not be ended
    check_address_or_exit("bentoml", settings, default_host(settings))
    url = url_of(context.params, bentoml_options(settings, "GLiNERService"))
    if url:
        os.environ[ADDRESS] = url
    # The variable is no longer needed: it has determined the address above. With it, BentoML would restart no process,
    # and end with a traceback when one dies.
    os.environ.pop("BENTOML_CONTAINERIZED", None)
    logging.getLogger("bentoml.serve").addFilter(_reword_first_line)
    context.with_resource(_supervisor(settings, urlsplit(url).port if url else None))


@contextmanager
def _supervisor(settings: Settings, port: int | None) -> Iterator[None]:
    """Make the folder and run the monitor until the server has ended; then exit with 1 if it has failed. port: None if
    the server does not listen on a TCP port."""
    try:
        with scratch_folder() as folder:
            os.environ[FOLDER] = str(folder)
            (folder / "supervisor").write_text(str(os.getpid()))
            (folder / METRICS).mkdir()
            monitor = HeartbeatMonitor(folder, settings.hang_timeout_s, lambda: refuse_connections(port))
            monitor.start()
            notice_deaths()
            listen_when_ready()
            try:
                yield
            finally:
                monitor.stop()
                gc.freeze()  # else the interpreter searches all modules for garbage as it ends: 0.4 s of CPU time
                if (folder / "failed").exists():
                    raise SystemExit(1)
    except Exception as error:
        error_number = getattr(error, "errno", None)  # of an OSError, or a ZMQError, which is no OSError
        if error_number is None:
            raise
        if error_number == errno.EADDRINUSE:
            _start_again()
        exit_with(f"the server cannot start: {one_line(error)}; start it again, or choose another --port")


def _start_again() -> None:
    """Start this program again in place of this process. Returns if it has been started `_MAX_STARTS` times.

    Called if a port is in use: BentoML chooses ports for its internal sockets before it binds them, and another server
    may take one in between.
    """
    starts = int(os.environ.get(STARTS, "1"))
    if starts < _MAX_STARTS:
        os.environ[STARTS] = str(starts + 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # its sockets would be inherited
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _reword_first_line(record: logging.LogRecord) -> bool:
    """Reword BentoML's first line, which says "listening" while nothing is loaded."""
    if str(record.msg).startswith("Starting production") and isinstance(record.args, tuple):
        record.msg = "starting; the server will answer on %s://%s:%d (Ctrl+C ends it)"
        record.args = record.args[-3:]
        record.name = __name__  # `log.configure` drops this level of BentoML's loggers, not of ours
    return True


class ServiceProcess:
    """This process of a service: applies the supervisor's rules to it. Create it before the process's metrics."""

    def __init__(self, service: str, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        self._max_restarts = settings.max_restarts
        self._window_s = settings.restart_window_s
        self._shutdown_timeout_s = settings.shutdown_timeout_s
        self._folder = Path(os.environ[FOLDER]) if FOLDER in os.environ else None
        if self._folder:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self._folder / METRICS)
            self._uses_folder = use_scratch_folder(self._folder)
            when_orphaned(self._end_orphaned)

    @property
    def models_journal(self) -> ModelsJournal | None:
        """The journal from which the service's next process learns which models to serve; None without a supervisor."""
        return ModelsJournal(self._folder, self._service) if self._folder else None

    @contextmanager
    def starting(self, after: str | None = None) -> Iterator[None]:
        """The service starts in this context. An exception ends the process, or the server.

        after: a service that must be ready before this one starts. If that one fails, the server ends.
        """
        with self._ended_by_signals():
            self._limit_restarts()
            while self._folder and after and not self._was_ready(after):
                time.sleep(_POLL_S)
            self._report("started")
            try:
                yield
            except Exception as error:
                self._fail(error)
        self._report("ready")

    def serve(self, *, needed_by: str | None, begin: Callable[[], object], fail: Callable[[], object]) -> None:
        """The service is ready: start its heartbeat; from now on a signal ends it within `shutdown_timeout_s`.

        needed_by: a service that sends requests to this one, and ends before it. begin: called in the signal handler.
        fail: fails the requests that still run.
        """
        heartbeat = Heartbeat(self._folder, self._service) if self._folder else None
        if heartbeat:
            heartbeat.begin()

        def on_signal() -> None:
            if heartbeat:
                heartbeat.stop()
            begin()

        needed = self._needed_by(needed_by) if needed_by else lambda: False
        Shutdown(self._shutdown_timeout_s, begin=on_signal, needed=needed, fail=fail, ending=self.stopped).install()

    def announce_when(self, ready: Callable[[], Awaitable[bool]], pages: Mapping[str, str]) -> None:
        """Print the server's address as soon as it is ready. Uses the running event loop."""
        self._announcing = asyncio.ensure_future(announce_when(ready, pages, self._settings, self._folder))

    def end_hung(self, reason: str) -> NoReturn:
        """End the process because a thread hangs. Waits a second first, so that its failed requests are answered."""
        time.sleep(_ANSWERED_S)
        write_line(f"{self._service} hangs: {reason}; its process ends")
        os._exit(1)

    def stopped(self) -> None:
        """Note in the journal that the process ends on request of the supervisor."""
        self._report("stopped")

    def _end_orphaned(self) -> None:
        """The supervisor was killed: end as on its signal, so that the port is free. Runs in a thread."""
        write_line(f"{self._service} ends, because its supervisor has ended")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self._shutdown_timeout_s + _SIGNAL_SPREAD_S)
        os._exit(1)

    def _needed_by(self, service: str) -> Callable[[], bool]:
        """A function that returns whether processes of `service` still finish requests. It is first called at the
        signal, which those processes may get a little later."""
        call_times_s: list[float] = []

        def needed() -> bool:
            call_times_s.append(time.monotonic())
            stopping = are_stopping(self._folder, service) if self._folder else []
            may_lack_signal = call_times_s[-1] - call_times_s[0] < _SIGNAL_SPREAD_S
            return any(stopping) or (bool(stopping) and may_lack_signal)

        return needed

    def _limit_restarts(self) -> None:
        """Wait, or end the server, if processes of this service have died."""
        if self._folder and (self._folder / "failed").exists():
            os._exit(1)  # the server ends; its supervisor has not noticed yet
        deaths = self._recent_deaths()
        if not deaths:
            return
        # If the load of a model has failed, the start is allowed, because it first loads that model in another process.
        if not self._was_ready() and not (self.models_journal and self.models_journal.failures()):
            self.end_server(
                f"{self._service} was killed while it started; the system does that when memory has run out: use a "
                "smaller model or dtype, or a machine with more memory"
            )
        circumstances = f"(deaths within {self._window_s:g} s: {deaths}, max_restarts: {self._max_restarts})"
        if deaths > self._max_restarts:
            self.end_server(f"{self._service} has died too often {circumstances}; the log may say why")
        backoff_s = 2.0 ** min(deaths - 1, _MAX_DOUBLINGS) if deaths > 1 else 0.0
        logger.error("%s has died %s; restarting it in %g s", self._service, circumstances, backoff_s)
        time.sleep(backoff_s)

    def _fail(self, error: Exception) -> NoReturn:
        if not isinstance(error, _EXPECTED) and _OUT_OF_MEMORY not in str(error):
            logger.critical("%s failed to start", self._service, exc_info=error)
        if self._was_ready():
            write_line(f"{self._service} failed to start: {one_line(error)}")
            os._exit(1)
        self.end_server(one_line(error))

    def end_server(self, message: str) -> NoReturn:
        """Write `message` as one line, and end the supervisor and this process with exit code 1."""
        write_line(message)
        with suppress(OSError):  # the supervisor has ended
            if self._folder and (self._folder / "supervisor").read_text() == str(os.getppid()):
                (self._folder / "failed").touch()
                os.kill(os.getppid(), signal.SIGTERM)
        os._exit(1)  # BentoML and uvicorn log a SystemExit with its traceback

    def _recent_deaths(self) -> int:
        """How many processes of this service have died within the window."""
        ended = {pid for event, pid, _ in self._journal() if event in ("stopped", "died")}
        started = {pid for event, pid, _ in self._journal() if event == "started"}
        for pid in started - ended:
            if not is_alive(pid):
                self._report("died", pid)
        since_s = time.monotonic() - self._window_s
        return len({pid for event, pid, time_s in self._journal() if event == "died" and time_s >= since_s})

    def _was_ready(self, service: str | None = None) -> bool:
        return any(event == "ready" for event, _, _ in self._journal(service))

    def _journal(self, service: str | None = None) -> list[tuple[str, int, float]]:
        """The lines of a service's journal: event, process id, and time on the machine's monotonic clock."""
        with suppress(OSError):  # no supervisor, or the first process of the service
            file = self._file_of(service or self._service)
            lines = file.read_text().splitlines() if file else []
            return [(event, int(pid), float(time_s)) for event, pid, time_s in map(str.split, lines)]
        return []

    def _report(self, event: Event, pid: int | None = None) -> None:
        with suppress(OSError):  # the supervisor has ended
            if journal := self._file_of(self._service):
                with journal.open("a") as file:
                    file.write(f"{event} {pid or os.getpid()} {time.monotonic()}\n")

    def _file_of(self, service: str) -> Path | None:
        return self._folder / f"{service}.journal" if self._folder else None

    @contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        """Signals end the process immediately; uvicorn's handlers would wait until the service has started."""
        if not self._folder or threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(*_: Any) -> None:
            self.stopped()
            os._exit(0)

        handlers = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
