"""A progress bar on standard error: records, rate, time left, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Records per second."""
        return Text(f"{task.speed:.1f} records/s" if task.speed else "")


@contextmanager
def shown(quiet: bool) -> Iterator[Callable[[int, int, int], None]]:
    """Takes the numbers of records that are done, that have failed, and of all. Shows nothing without a terminal."""
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(), TextColumn("{task.fields[errors]}"))
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=None, errors="")

        def update(done: int, failed: int, records: int) -> None:
            if bar.tasks[0].total is None:
                bar.reset(task, total=records, completed=done)
            bar.update(task, completed=done, errors=f"{failed} failed" if failed else "")

        yield update
