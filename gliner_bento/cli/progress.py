"""A progress bar on standard error: records, rate, time left, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

_UPDATE_S = 1.0


@contextmanager
def shown(
    quiet: bool, console: Console | None = None, get_time: Callable[[], float] | None = None
) -> Iterator[Callable[[int, int, int], None]]:
    """A function that shows the numbers of records that are done, that have failed, and of all. The bar appears with
    the first call, on a terminal only. Results arrive in bursts, so it is updated once in `_UPDATE_S`.
    """
    console = console or Console(stderr=True)
    texts = TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("{task.fields[errors]}")
    columns = (BarColumn(20), MofNCompleteColumn(), *texts)
    bar = Progress(*columns, console=console, disable=quiet or not console.is_terminal, get_time=get_time)
    began_s = updated_s = begun = 0.0

    def update(done: int, failed: int, records: int) -> None:
        nonlocal began_s, updated_s, begun
        if not bar.tasks:
            bar.start()
            bar.add_task("", total=records, completed=done, rate="", errors="")
            began_s = updated_s = bar.get_time()
            begun = done
        elif done == records or bar.get_time() >= updated_s + _UPDATE_S:
            updated_s = bar.get_time()
            rate = f"{(done - begun) / max(updated_s - began_s, 1e-3):.1f} records/s"
            bar.update(bar.tasks[0].id, completed=done, rate=rate, errors=f"{failed} failed" if failed else "")

    try:
        yield update
    finally:
        bar.stop()
