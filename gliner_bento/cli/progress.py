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

_UPDATE_S = 1.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Records per second since the start of this run, once they say something."""
        elapsed_s = task.elapsed or 0.0
        return Text(f"{(task.completed - task.fields['begun']) / elapsed_s:.1f}/s" if elapsed_s >= _UPDATE_S else "")


@contextmanager
def shown(
    quiet: bool, console: Console | None = None, get_time: Callable[[], float] | None = None
) -> Iterator[Callable[[int, int, int], None]]:
    """Takes the numbers of records that are done, that have failed, and of all. Shows nothing before the first ones,
    and nothing without a terminal. Results arrive in bursts, so it is updated once in `_UPDATE_S`.
    """
    console = console or Console(stderr=True)
    columns = (BarColumn(20), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(), TextColumn("{task.fields[errors]}"))
    bar = Progress(*columns, console=console, disable=quiet or not console.is_terminal, get_time=get_time)
    updated_s = 0.0

    def update(done: int, failed: int, records: int) -> None:
        nonlocal updated_s
        if not bar.tasks:
            bar.start()
            bar.add_task("", total=records, completed=done, begun=done, errors="")
            updated_s = bar.get_time()
        elif done == records or bar.get_time() >= updated_s + _UPDATE_S:
            updated_s = bar.get_time()
            bar.update(bar.tasks[0].id, completed=done, errors=f"{failed} failed" if failed else "")

    try:
        yield update
    finally:
        bar.stop()
