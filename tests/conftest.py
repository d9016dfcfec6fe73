"""What every test needs: nothing is sent anywhere, nothing outside a private folder is touched."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine fails no property. Each run draws the same examples; `make test-all` draws others.
settings.register_profile(
    "searching",
    settings.get_profile("default"),  # not of `ci`, which Hypothesis loads in CI: its examples are always the same
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("repeatable", settings.get_profile("searching"), derandomize=True)
settings.load_profile("repeatable")

_PRIVATE = Path(tempfile.mkdtemp(prefix="gliner-bento-tests-"))
atexit.register(shutil.rmtree, _PRIVATE, ignore_errors=True)  # a built bento alone has 60 MB

# Without these caches, each run rewrites the assertions of all tests first: a third of the time until tests begin.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ["BENTOML_DO_NOT_TRACK"] = "True"
os.environ["BENTOML_HOME"] = str(_PRIVATE / "bentoml")
os.environ["HF_HUB_CACHE"] = str(_PRIVATE / "hub")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "passive"  # threads that wait leave the cores to other workers and servers
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(_PRIVATE / "metrics")
for folder in ("BENTOML_HOME", "PROMETHEUS_MULTIPROC_DIR"):
    Path(os.environ[folder]).mkdir(parents=True, exist_ok=True)


_TOGETHER = ("e2e", "service")
"""Folders of tests that share servers. The longer comes first."""


@pytest.fixture
def no_level_of_logs() -> None:
    """A server that ran in this process gave our logger its level: it would hide or add records in others' tests."""
    logging.getLogger("gliner_bento").setLevel(logging.NOTSET)


@pytest.fixture
def no_gradients() -> Iterator[None]:
    """Torch records nothing for gradients, as when the engine runs."""
    import torch

    with torch.inference_mode():
        yield


@pytest.fixture
def restless() -> Iterator[None]:
    """Switch threads as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def pytest_collection_finish() -> None:
    """Garbage collections skip the objects of the collected tests: hundreds of thousands."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What one worker runs alone comes first, and small files last: no worker waits for another at the end."""
    order = (*_TOGETHER, "contract", "unit")
    items.sort(key=lambda item: order.index(folder) if (folder := _place(item.nodeid)[0]) in order else len(order))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker runs a folder of tests that share servers, so that these are started once; any worker runs another
    file. Of more than three workers, each runs files."""
    if config.option.numprocesses > 3:
        return None
    from xdist.scheduler import LoadScopeScheduling

    class LoadFolderScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder, file = _place(nodeid)
            return folder if folder in _TOGETHER else f"{folder}/{file}"

    return LoadFolderScheduling(config, log)


def _place(nodeid: str) -> tuple[str, str]:
    """Folder of `tests`, and file in it."""
    folder, _, file = nodeid.partition("::")[0].removeprefix("tests/").partition("/")
    return folder, file


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A long run ends with the seconds of its slowest files, of all workers."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            seconds[getattr(report, "nodeid", "").partition("::")[0]] += getattr(report, "duration", 0.0)
    if seconds.total() > 60:
        terminalreporter.section("slowest files, in seconds")
        for file, spent_s in seconds.most_common(15):
            terminalreporter.write_line(f"{spent_s:6.1f} {file}")
