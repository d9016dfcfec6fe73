"""Runs what README.md, docs/quickstart.md and docs/deployment.md promise, in this clone, and uses what is built.

The bento is imported into another BENTOML_HOME and served; the image's context is served by the image's entrypoint, as
there may be no container engine here (`make image-test` builds the image with podman); the wheels are installed into
fresh environments. Each server must answer a request, and have the documentation's site at /docs.

Standard library only, and `.venv` as `make setup` leaves it: nothing is downloaded but the tools that build the site.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from first_answer import ROOT, cpu_seconds, served

BIN = ROOT / ".venv" / "bin"
PAGES = ("README.md", "docs/quickstart.md", "docs/deployment.md")
ELSEWHERE = {
    "make setup": "the first step of .ci/run",
    "make serve": "tools/first_answer.py",
    "make test": "the last step of .ci/run",
    "make image-test": "needs podman",
    "gliner-bento models": "`models fetch` needs a model hub; tests/e2e has one on loopback",
}
"""Promised commands that this script does not run, and why."""

ENGINE = """\
#!/usr/bin/env bash
# In the place of docker: notes what it is called with.
case $1 in
build) printf '%s\\n' "$@" >"$(dirname "$0")/build" ;;
image) echo 1000000000 ;;
esac
"""
_COMMAND = re.compile(r"(?:^|[`(])(make|gliner-bento)((?: [A-Z_]+=\S*| --?[a-z-]+| [a-z-]+)+)", re.MULTILINE)
CODE = re.compile(r"^ *```(\w*)\n(.*?)^ *```|(`[^`\n]+`)", re.DOTALL | re.MULTILINE)


class Trial:
    """The steps, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(("GLINER_", "BENTOML_", "PYTHONPATH"))}
        self.environment = inherited | {"BENTOML_HOME": self.new("store"), "BENTOML_DO_NOT_TRACK": "True"}
        self.ran: set[str] = set()

    def new(self, name: str) -> str:
        """The path of a new, empty folder."""
        (self.folder / name).mkdir()
        return str(self.folder / name)

    def run(self, command: str, folder: Path = ROOT, **environment: str) -> str:
        """What a shell command prints. Raises SystemExit with it if the command fails."""
        self.ran |= commands(command)
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise SystemExit(f"{ended.stdout}\nexit code {ended.returncode}: {command}")
        return ended.stdout

    @contextmanager
    def serve(self, *command: str, **environment: str) -> Iterator[str]:
        """The URL of a server that runs in an empty folder, answers a request, has the site, and leaves no file."""
        with tempfile.TemporaryDirectory(dir=self.folder) as empty:
            log = self.folder / "log"
            with served([*command, "--port", "{port}"], Path(empty), log, self.environment | environment) as url:
                for path, text in (("/docs", 'id="gliner-bento"'), ("/docs/quickstart.html", 'id="redact-a-folder"')):
                    with urllib.request.urlopen(url + path, timeout=60) as page:
                        if text not in page.read().decode():
                            raise SystemExit(f"{' '.join(command)}: {path} is not the site's page with {text!r}")
                yield url
            if left := [one.name for one in Path(empty).iterdir()]:
                raise SystemExit(f"{' '.join(command)} leaves {', '.join(left)} where it runs")

    def build(self) -> None:
        """All that make builds here. The image's build ends with the call of the engine."""
        engine = self.folder / "engine"
        engine.write_text(ENGINE)
        engine.chmod(0o755)
        self.run("make help")
        self.run(f"make sbom docs dist bento image ENGINE={engine}")

    def image(self) -> None:
        """The image's context: it has what the Dockerfile copies, and its entrypoint serves."""
        *arguments, context = (self.folder / "build").read_text().splitlines()
        dockerfile = (ROOT / "deploy" / "docker" / arguments[arguments.index("--file") + 1]).read_text()
        sources = re.findall(r"^COPY (?!--from)(\S+)", dockerfile, re.MULTILINE)
        (entrypoint,) = re.findall(r'^ENTRYPOINT \["/home/bentoml/bento/(\S+)"\]', dockerfile, re.MULTILINE)
        if missing := [name for name in (*sources, entrypoint) if not Path(context, name).exists()]:
            raise SystemExit(f"the image's context has no {', '.join(missing)}")
        variables = {"BENTO_PATH": context, "PYTHONPATH": f"{context}/src", "PATH": f"{BIN}:{os.environ['PATH']}"}
        with self.serve(f"{context}/{entrypoint}", "--host", "127.0.0.1", **variables):
            pass

    def bento(self) -> None:
        """Export and import; the other store's bento serves with packages among which gliner_bento is not."""
        file, home = self.folder / "bento.tar", self.new("other-store")  # a .bento is compressed for a minute
        self.run(f"{BIN}/bentoml export gliner-bento:latest {file}")
        self.run(f"{BIN}/bentoml import {file}", BENTOML_HOME=home)
        python = str(self.fresh("packages") / "python")
        command = ["-m", "bentoml", "serve", "gliner-bento:latest", "--host", "127.0.0.1"]
        with self.serve(python, *command, BENTOML_HOME=home):
            pass

    def wheels(self) -> None:
        """The quickstart's `pip install` lines, from `dist`; its program runs in the environment of the client."""
        client, server = self.fresh("client"), self.fresh("server")
        (program,) = (code for language, code in blocks("docs/quickstart.md") if language == "python")
        for line in re.findall(r"^pip install (.+)", (ROOT / "docs/quickstart.md").read_text(), re.MULTILINE):
            python = server / "python" if "[serve]" in line else client / "python"
            self.run(f"{BIN}/python -m pip --python {python} install --quiet --no-index --find-links dist {line}")
        with self.serve(str(server / "gliner-bento"), "serve") as url:
            self.run(f"{client}/python -c '{program.replace('http://localhost:3000', url)}'", self.folder)
            self.quickstart(url, server.parent)

    def quickstart(self, url: str, environment: Path) -> None:
        """The commands of the quickstart print what it shows; and those of the other pages that need no cluster."""
        folder = Path(self.new("quickstart"))
        (folder / ".venv").symlink_to(environment)
        steps, shown = quickstart_blocks(url)
        keys = re.findall(r"^gliner-bento keys .*", (ROOT / "docs/deployment.md").read_text(), re.MULTILINE)
        printed = self.run("\n".join([steps, *keys, "gliner-bento --help", "gliner-bento models list"]), folder)
        if missing := [code for code in (*shown, "site-packages/gliner_bento_demo/demo  ") if code not in printed]:
            raise SystemExit(f"{printed}\nthis was not printed:\n{missing[0]}")

    def fresh(self, name: str) -> Path:
        """The programs of a new environment that also has the packages of .venv, but not this clone's."""
        venv.create(self.folder / name, with_pip=False)
        (here,) = (self.folder / name).glob("lib/python3*/site-packages")
        (packages,) = (ROOT / ".venv").glob("lib/python3*/site-packages")
        others = Path(self.new(f"{name}-packages"))
        for entry in packages.iterdir():
            if "gliner_bento" not in entry.name:
                (others / entry.name).symlink_to(entry)
        (here / "packages.pth").write_text(f"{others}\n")
        return self.folder / name / "bin"


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and code of each block of a page before its section about installing."""
    text = (ROOT / page).read_text(encoding="utf-8").partition("\n## Install\n")[0]
    return [(language, code) for language, code, _ in CODE.findall(text) if code]


def quickstart_blocks(url: str) -> tuple[str, list[str]]:
    """The commands of the quickstart, against a server that runs, and the outputs that it shows of them."""
    page = blocks("docs/quickstart.md")
    steps = [code for language, code in page if language == "bash" and "make " not in code]
    shown = [code for language, code in page if language == "text" and "ready on" not in code]
    return "\n".join(steps).replace("http://127.0.0.1:3000", url), shown


def commands(code: str) -> set[str]:
    """The calls of make and gliner-bento: the program with each target, or with the first word behind it."""
    found = set()
    for program, words in _COMMAND.findall(code):
        named = [word for word in words.split() if "=" not in word]
        found |= {f"{program} {word}" for word in (named if program == "make" else named[:1])}
    return found


def promised() -> Mapping[str, str]:
    """The commands in the code of the pages, and a page of each."""
    return {
        command: page
        for page in PAGES
        for _, code, inline in CODE.findall((ROOT / page).read_text(encoding="utf-8"))
        for command in commands(code or inline)
    }


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fresh-clone-") as folder:
        trial = Trial(Path(folder))
        steps: list[Callable[[], None]] = [trial.build, trial.image, trial.bento, trial.wheels]
        for step in steps:
            started, used = time.monotonic(), cpu_seconds()
            step()
            times = f"{time.monotonic() - started:.0f} s (CPU time {cpu_seconds() - used:.0f} s)"
            print(f"fresh clone: {step.__name__} ok, {times}", flush=True)
    if missed := {command: page for command, page in promised().items() if command not in trial.ran | ELSEWHERE.keys()}:
        raise SystemExit(f"promised, and neither run nor in ELSEWHERE: {missed}")
    print(f"fresh clone: ran {', '.join(sorted(trial.ran))} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
