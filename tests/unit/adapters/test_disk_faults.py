"""The disk tier with full disks, crashes, and several processes and threads."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier

import pytest
from disk_store import BASE, filled, ids, in_cache, install, store_in

from gliner_bento.adapters.archive import CONFIG_FILE
from gliner_bento.adapters.manifest import Manifest
from gliner_bento.errors import AdapterNotFound, Conflict, StorageFull, StorageUnavailable
from gliner_bento.settings.configuration import PROJECT_ROOT

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if the system has one, because it is fast."""
    disk = Path("/dev/shm")
    with TemporaryDirectory(dir=disk if os.access(disk, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_what_was_there(store, cache, code):
    stored = install(store)

    def fill(folder: Path) -> None:
        (folder / CONFIG_FILE).write_text("{}")
        raise OSError(code, os.strerror(code), str(folder))

    with pytest.raises(StorageFull) as raised:
        install(store, "b", fill)
    assert str(cache) not in raised.value.message
    assert store.all() == [stored]
    assert in_cache(cache) == ["a"]


@contextmanager
def small_disk(most_bytes: int) -> Iterator[None]:
    """Limit the size of files, which raises the errors of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("most_bytes", [0, 1, 5, 50])
def test_a_disk_that_fills_up_anywhere_leaves_what_was_there(store, cache, most_bytes):
    """With 0 the configuration does not fit, with 5 the weights, with 50 the manifest."""
    stored = install(store)
    with small_disk(most_bytes), pytest.raises(StorageFull):
        install(store, "b", filled("0123456789"))
    assert store.all() == [stored]
    assert in_cache(cache) == ["a"]
    assert install(store, "b", filled("0123456789"))


def test_a_read_only_cache_is_reported_without_its_path(caplog):
    """Even root cannot create folders in /sys."""
    place = Path("/sys/adapters-of-a-test")
    store = store_in(place)
    assert store.all() == []
    with pytest.raises(StorageUnavailable, match="cannot write") as raised:
        install(store)
    assert str(place) not in raised.value.message
    assert str(place) in caplog.text


def test_a_store_that_cannot_be_written_to_is_noticed_without_an_installation(tmp_path):
    """Its parent may be writable. Even root cannot create folders in /sys/kernel."""
    (tmp_path / BASE).symlink_to("/sys/kernel")
    with pytest.raises(OSError, match="/base/adapters"):
        store_in(tmp_path).check_writable()


def test_a_store_that_can_be_written_to_is_left_as_it_was(store, cache):
    store.check_writable()
    assert in_cache(cache) == []


def test_a_read_only_fill_is_reported_the_same_way(store, cache):
    def fill(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    with pytest.raises(StorageUnavailable, match="cannot write") as raised:
        install(store, "a", fill)
    assert str(cache) not in raised.value.message
    assert in_cache(cache) == []


class Process:
    """`install_program.py` in a process of its own; it waits at the given step."""

    def __init__(self, cache: Path, adapter_id: str, content: str, wait_at: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, HERE / "install_program.py", cache, adapter_id, content, wait_at],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.communicate()

    def wait(self) -> None:
        """Until it waits."""
        assert self._process.stdout.readline() == "waits\n"

    def go_on(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def result(self) -> str:
        return self._process.communicate()[0].split()[-1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("place", ["fill", "check"])
def test_a_killed_process_leaves_no_adapter_and_no_files(cache, place):
    with Process(cache, "a", "weights", place) as process:
        process.wait()
        store = store_in(cache)
        assert len(in_cache(cache)) == 1
        process.kill()
    with pytest.raises(AdapterNotFound):
        store.find("a")
    assert store.all() == []
    assert install(store, "a", filled("others"))
    store_in(cache)
    assert in_cache(cache) == ["a"]


def test_a_start_does_not_touch_a_running_installation(cache):
    with Process(cache, "a", "weights", "check") as process:
        process.wait()
        store_in(cache)
        process.go_on()
        version = process.result()
    assert store_in(cache).find("a").version == version


def test_a_start_keeps_what_is_not_its_own(memory):
    adapters = memory / "cache" / BASE / "adapters"
    for name in (".git", ".new-0", ".old-0"):
        (adapters / name).mkdir(parents=True)
    (adapters / ".gitignore").touch()
    store_in(memory / "cache")
    assert sorted(path.name for path in adapters.iterdir()) == [".git", ".gitignore"]
    assert list((adapters / ".git").iterdir()) == []


def test_killed_at_any_system_call_whole_adapters_are_left(memory):
    run = subprocess.run(
        [sys.executable, HERE / "crash_program.py", memory / "cache"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
    )
    assert run.returncode == 0, run.stderr
    times = json.loads(run.stdout)
    assert len(times) == 7
    assert min(times.values()) > 3
    assert times["install"] > 20


def test_two_processes_install_the_same_concurrently(cache):
    with Process(cache, "a", "weights", "check") as one, Process(cache, "a", "weights", "check") as other:
        one.wait()
        other.wait()
        one.go_on()
        other.go_on()
        assert one.result() == other.result() == store_in(cache).find("a").version
    assert in_cache(cache) == ["a"]


def test_of_two_processes_with_different_content_one_wins(cache):
    with Process(cache, "a", "weights", "check") as one, Process(cache, "a", "others", "check") as other:
        one.wait()
        other.wait()
        one.go_on()
        other.go_on()
        results = {one.result(), other.result()}
    store = store_in(cache)
    assert results == {"conflict", store.find("a").version}
    assert store.verified(store.find("a"))
    assert in_cache(cache) == ["a"]


def test_an_adapter_that_is_installed_again_while_it_is_looked_up_is_not_damaged(cache, monkeypatch):
    store, other = store_in(cache), store_in(cache)
    install(store, "a", filled("a" * 1000))

    def between(_: Path) -> None:
        """Its folder is not there."""
        monkeypatch.undo()
        store.remove("a")
        install(store, "a", filled("b" * 1000))

    monkeypatch.setattr(Manifest, "read", between)
    assert other.find("a").version == store.find("a").version


def test_threads_that_install_and_remove_never_show_half_an_adapter(cache):
    store = store_in(cache)
    start = Barrier(6)

    def write(number: int) -> int:
        done = 0
        start.wait()
        for _ in range(15):
            with suppress(Conflict):
                done += install(store, "a", filled("ab"[number % 2] * 1000)).size_bytes == 1002
            done += store.remove("a")
        return done

    def look(_: int) -> None:
        other = store_in(cache)
        start.wait()
        for _ in range(200):
            with suppress(AdapterNotFound):
                found = other.find("a")
                assert found.size_bytes == 1002
                assert other.verified(found)
            assert set(ids(other)) <= {"a"}

    with ThreadPoolExecutor(6) as pool:
        results = [pool.submit(task, number) for number, task in enumerate([write, write, write, write, look, look])]
        done = [result.result() for result in results]
    assert sum(done[:4]) >= 2
    with suppress(AdapterNotFound):
        store.verified(store.find("a"))
    store_in(cache)
    assert set(in_cache(cache)) <= {"a"}
