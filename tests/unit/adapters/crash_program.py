"""A program: run several operations of a store, killed at every system call that Python audits; check what is left.

    python crash_program.py <empty folder>

Prints how often each of them was killed. What is left must be whole adapters and nothing else, and doing the same thing
again must end as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from gliner_bento.adapters.archive import CONFIG_FILE, FILES, WEIGHTS_FILE
from gliner_bento.adapters.base import AdapterSettings, Source
from gliner_bento.adapters.disk import AdapterStore
from gliner_bento.settings import Settings

Action = Callable[[AdapterStore], object]

BASE = "base"

SETTINGS = Settings(max_disk_adapters=2, adapter_id_pattern=r"\w+", max_adapter_bytes=10_000).view(AdapterSettings)


def store_in(folder: Path) -> AdapterStore:
    return AdapterStore(replace(SETTINGS, disk_cache_dir=folder), BASE)


def install(store: AdapterStore, name: str, source: Source = "upload", times: int = 100, replace: bool = False) -> None:
    def fill(folder: Path) -> None:
        (folder / CONFIG_FILE).write_text(name)
        (folder / WEIGHTS_FILE).write_text(name * times)

    store.install(name, fill, source=source, check=lambda folder: None, replace=replace)


def damage(folder: Path) -> None:
    (folder / BASE / "adapters" / "a" / WEIGHTS_FILE).write_text("damaged")


THINGS: dict[str, tuple[Callable[[Path], object], Action, tuple[str, ...]]] = {
    # before, the operation, which adapters may exist in the end
    "install": (lambda folder: None, lambda store: install(store, "a"), ("a",)),
    "install again": (lambda folder: install(store_in(folder), "a"), lambda store: install(store, "a"), ("a",)),
    "repair": (
        lambda folder: (install(store_in(folder), "a"), damage(folder)),
        lambda store: install(store, "a"),
        ("a",),
    ),
    "replace": (
        lambda folder: install(store_in(folder), "a"),
        lambda store: install(store, "a", times=50, replace=True),
        ("a",),
    ),
    "evict": (
        lambda folder: [install(store_in(folder), name, "hub") for name in "ab"],
        lambda store: install(store, "c"),  # the next install evicts the third one if this one is killed just before
        ("bc", "abc"),
    ),
    "pin": (lambda folder: install(store_in(folder), "a"), lambda store: store.set_pinned("a", True), ("a",)),
    "remove": (lambda folder: install(store_in(folder), "a"), lambda store: store.remove("a"), ("",)),
}


def die_at(number: int) -> None:
    """Audit the system calls from here on."""
    numbers = count()

    def hook(event: str, _: object) -> None:
        if event.startswith(("open", "os.", "fcntl.")) and event != "os.kill" and next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def died(folder: Path, action: Action, number: int) -> bool:
    store = store_in(folder)
    child = os.fork()
    if child == 0:
        die_at(number)
        action(store)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def assert_whole(store: AdapterStore, folder: Path) -> None:
    left = {path.name for path in (folder / BASE / "adapters").glob("*")}
    found = {stored.adapter_id: stored for stored in store.all()}
    assert left == found.keys(), left
    for name, stored in found.items():
        assert {path.name for path in stored.folder.iterdir()} == {*FILES, "manifest.json"}
        assert (stored.folder / CONFIG_FILE).read_text() == name
        if (stored.folder / WEIGHTS_FILE).read_text() != "damaged":
            store.verified(stored)


def main(folder: Path) -> None:
    times = {}
    for name, (prepare, action, ends) in THINGS.items():
        for number in count():
            shutil.rmtree(folder, ignore_errors=True)
            prepare(folder)
            if not died(folder, action, number):
                break
            store = store_in(folder)
            assert_whole(store, folder)
            action(store)
            assert_whole(store_in(folder), folder)
            assert "".join(stored.adapter_id for stored in store.all()) in ends, (name, number)
            assert all(store.verified(stored) for stored in store.all())
        times[name] = number
    sys.stdout.write(json.dumps(times))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
