"""The documentation's site: `python -m tools.docs_site build` writes it to gliner_bento/gateway/pages/docs, which the
gateway serves at /docs; `... serve [HOST:PORT]` shows it, and builds it again when a source changes.

Zensical builds a site from one folder. `stage` fills it: with the pages of docs/, with what they link to elsewhere in
the repository (code becomes a page), and with the generated pages of reference.py. Links are rewritten to match.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .reference import command_line_page, http_api_page, settings_table

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "docs"
SITE = ROOT / "gliner_bento" / "gateway" / "pages" / "docs"

_FENCE = re.compile(r"^([ ]*)(```+|~~~+).*?^\1\2[ ]*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`|^ {4,}.*$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()[^)\s]+")
_ELSEWHERE = re.compile(r"[a-z]+:|#|/")
_BADGES = re.compile(r"(?:^\[!\[.*\n)+\n", re.MULTILINE)
"""Lines of pictures from other hosts, from which a server's pages load nothing."""
_MOVED = {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", "": "dockerfile"}
_FOLDERS = {
    "docs/decisions": ("Decisions", "Choices that someone may ask about, with the numbers that they rest on."),
    "docs/migrate": ("From another server", "Clients of these servers work after changing only the host."),
}


def links(text: str) -> Iterator[re.Match[str]]:
    """Each target of a link or a picture in a Markdown text, outside of its code."""
    blocks = [block.span() for code in (_FENCE, _CODE) for block in code.finditer(text)]
    for link in _LINK.finditer(text):
        if not any(start <= link.start() < end for start, end in blocks):
            yield link


def target_of(link: str, page: Path) -> Path | None:
    """The file or folder that a link of a page leads to; None for an anchor of the page, or a URL."""
    if _ELSEWHERE.match(link):
        return None
    return Path(os.path.normpath(page.parent / link.partition("#")[0]))


def site_path(file: Path) -> str:
    """The path of a file of the repository in the site's sources."""
    name = file.relative_to(ROOT).as_posix()
    page_path = _MOVED.get(name, name.removeprefix("docs/"))
    if file.is_dir():
        return f"{page_path}/index.md"
    return f"{page_path}.md" if file.suffix in _LANGUAGES else page_path


def rewritten(text: str, page: Path) -> str:
    """A page whose links lead to the staged pages, without badges."""
    text = _BADGES.sub("", text)
    folder = Path(site_path(page)).parent
    pieces, end = [], 0
    for link in links(text):
        target = target_of(link[0], page)
        if target and target.exists():
            page_path = os.path.relpath(site_path(target), folder)
            _, hash_sign, anchor = link[0].partition("#")
            pieces += [text[end : link.start()], page_path, hash_sign, anchor]
            end = link.end()
    return "".join([*pieces, text[end:]])


def sources() -> set[Path]:
    """The pages of docs/, their style and script, and all that they link to, with what that links to."""
    found = {ROOT / "docs" / "site.css", ROOT / "docs" / "search.js"}
    waiting = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in _FOLDERS)]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            if file.suffix == ".md":
                text = file.read_text(encoding="utf-8")
                targets = (target_of(link[0], file) for link in links(text))
                waiting += [target for target in targets if target and target.exists()]
    return found


def stage(folder: Path) -> None:
    """Write the sources of the site."""
    for file in sources():
        page_path = folder / site_path(file)
        page_path.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            _write(page_path, _contents_of(file))
        elif file.suffix == ".md":
            table = f"\n{settings_table()}" if file == ROOT / "docs" / "settings.md" else ""
            _write(page_path, rewritten(file.read_text(encoding="utf-8"), file) + table)
        elif file.suffix in _LANGUAGES:
            code = file.read_text(encoding="utf-8").rstrip()
            name = file.relative_to(ROOT).as_posix()
            _write(page_path, f"# {file.name}\n\n`{name}`:\n\n````{_LANGUAGES[file.suffix]}\n{code}\n````\n")
        elif not page_path.exists() or page_path.read_bytes() != file.read_bytes():
            shutil.copyfile(file, page_path)
    _write(folder / "all-pages.md", _all_pages(folder))
    (folder / "reference").mkdir(exist_ok=True)
    _write(folder / "reference" / "http-api.md", http_api_page())
    _write(folder / "reference" / "command-line.md", command_line_page())
    _write(folder.parent / "zensical.toml", (ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8"))


def _contents_of(folder: Path) -> str:
    title, about = _FOLDERS.get(folder.relative_to(ROOT).as_posix(), (folder.name, ""))
    rows = [f"- [{title_of(file)}]({file.name})\n" for file in sorted(folder.glob("*.md"))]
    return f"# {title}\n\n{about}\n\n{''.join(rows)}"


def _all_pages(folder: Path) -> str:
    """A page that links to all pages of docs/, also those that the navigation does not have."""
    page_paths = sorted(site_path(page) for page in (ROOT / "docs").glob("*.md"))
    rows = [f"- [{title_of(folder / page_path)}]({page_path})\n" for page_path in page_paths]
    return f"# All pages\n\n{''.join(rows)}"


def title_of(page: Path) -> str:
    """The first heading of a page."""
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading else page.stem


def _write(file: Path, text: str) -> None:
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def build(site: Path = SITE) -> int:
    """Build the site. Returns Zensical's exit code, which is not 0 if there is a warning."""
    shutil.rmtree(WORK, ignore_errors=True)
    stage(WORK / "pages")
    if code := subprocess.run(_zensical("build", "--strict"), check=False).returncode:
        return code
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(WORK / "site", site, ignore=shutil.ignore_patterns("404.html"))  # its links need the host's root
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    print(f"{site.relative_to(ROOT) if site.is_relative_to(ROOT) else site}: {size / 1e6:.1f} MB; served at /docs")
    return 0


def serve(address: str = "localhost:8000") -> int:
    """Show the site until Ctrl+C."""
    stage(WORK / "pages")
    server = subprocess.Popen(_zensical("serve", "--dev-addr", address))
    try:
        _every_second_until(lambda: server.poll() is not None)
    except KeyboardInterrupt:
        server.terminate()
    return server.wait()


def _every_second_until(ended: Callable[[], bool]) -> None:
    """Write the sources again when one has changed; Zensical builds what differs."""
    before = _state()
    while not ended():
        time.sleep(1)
        if (now := _state()) != before:
            stage(WORK / "pages")
            before = now


def _state() -> set[tuple[Path, float]]:
    return {(file, file.stat().st_mtime) for file in sources()}


def _zensical(command: str, *options: str) -> Sequence[str]:
    return [sys.executable, "-m", "zensical", command, "--config-file", str(WORK / "zensical.toml"), *options]
