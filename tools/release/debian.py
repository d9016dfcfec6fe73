"""Debian's packages without an installation: the files of one, and a clean root with Python and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from deploy.containers import pip_configuration

from .table import NotHere, output_of
from .tools import FOLDER, fetched, program

_MIRROR = "http://deb.debian.org/debian"
_ENTER = """
root=$1; shift
mount -t proc proc "$root/proc"
for path in $SHARED; do
    if [ -d "$path" ]; then mkdir -p "$root$path"; else mkdir -p "$root${path%/*}"; touch "$root$path"; fi
    mount --bind "$path" "$root$path"
done
PATH=/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 PATH="$PATH" bash -euo pipefail -c "$@"
"""


def files_of(package: str) -> Path:
    """A folder with the files of a package, in build/release-tools. Raises NotHere without apt or its answer, and
    ValueError."""
    program("python")  # makes the folder
    folder = FOLDER / "debian" / package
    if not folder.exists():
        if not shutil.which("apt-get"):
            raise NotHere(f"{package} is a package of Debian: it needs apt-get")
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
            fetched("apt-get", "download", "--quiet", package, cwd=Path(downloads))
            output_of("dpkg-deb", "--extract", *Path(downloads).glob("*.deb"), Path(downloads, "files"))
            Path(downloads, "files").rename(folder)
    return folder


class CleanRoot:
    """A system with Debian's packages, in a folder. Its programs see its files alone, and this machine's network.

    /venv, once made there, is the first folder of PATH.
    """

    def __init__(self, folder: Path, suite: str, packages: str, **pip: str) -> None:
        """packages: their names, with commas. pip: what pip is configured with beside this machine's configuration.

        Raises NotHere without root's rights or the mirror's answer, ValueError if it cannot be made.
        """
        if os.geteuid() != 0:
            raise NotHere("a clean root needs root's rights")
        self.folder = folder
        bootstrap = files_of("mmdebstrap") / "usr" / "bin" / "mmdebstrap"
        stale = '--aptopt=Acquire::Check-Valid-Until "false"'  # a mirror may be weeks old
        options = ("--quiet", "--mode=root", "--variant=minbase", stale, f"--include={packages}")
        fetched("perl", bootstrap, *options, suite, folder, _MIRROR)
        self._pip, self._shared = pip_configuration.write(folder / "etc", **pip)
        shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
        (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")

    def command(self, line: str) -> tuple[list[str], dict[str, str]]:
        """The words and the environment of a process that runs a line of shell in the root."""
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", _ENTER, "enter"]
        return [*words, str(self.folder), line], {**os.environ, "SHARED": " ".join(self._shared)}

    def run(self, line: str) -> str:
        """What a line of shell prints. Raises ValueError with the end of it if it fails."""
        words, environment = self.command(line)
        ended = subprocess.run(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if ended.returncode:
            raise ValueError(f"{line.strip().splitlines()[-1]}: {' / '.join(ended.stdout.splitlines()[-4:])[-600:]}")
        return ended.stdout
