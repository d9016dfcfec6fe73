"""A real Redis for tests and faults: on a Unix socket, in a folder of its own, without files of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

PROGRAM = shutil.which("redis-server")
"""None if it is not installed; it is a package of Debian."""


class RedisServer:
    """A server in a folder, which is to have a short path. `url`: for the setting `redis_url`."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, empty; returns when it accepts connections."""
        options = {"port": "0", "unixsocket": str(self.socket), "save": "", "dir": str(self._folder)}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([str(PROGRAM), *words], stdout=subprocess.PIPE)
        for line in self._process.stdout or ():
            if b"ready to accept connections" in line.lower():
                return
        raise RuntimeError("redis-server has ended")

    def stop(self) -> None:
        """Stop it (SIGSTOP): it answers no more."""
        if self._process:
            self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it, also if it is stopped; what it had is lost."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def fill(self) -> None:
        """Let it refuse to store anything."""
        words = ("CONFIG", "SET", "maxmemory", "1")
        subprocess.run(["redis-cli", "-s", str(self.socket), *words], check=True, capture_output=True)
