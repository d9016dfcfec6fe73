"""A progress bar on standard error: records, rate, time left, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_UPDATE_S = 1.0


@contextmanager
def progress_bar(
    hidden: bool, console: Console | None = None, get_time: Callable[[], float] | None = None
) -> Iterator[Callable[[int, int, int], None]]:
    """Yield a function that updates the bar; its arguments are the numbers of done, failed and all records. The first
    call shows the bar, on a terminal only. The bar changes once in `_UPDATE_S`, because results arrive in bursts.
    """
    console = console or Console(stderr=True)
    texts = TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("{task.fields[errors]}")
    columns = (BarColumn(20), MofNCompleteColumn(), *texts)
    bar = Progress(*columns, console=console, disable=hidden or not console.is_terminal, get_time=get_time)
    began_s = updated_s = 0.0
    done_before = 0

    def update(done: int, failed: int, total: int) -> None:
        nonlocal began_s, updated_s, done_before
        if not bar.tasks:
            bar.start()
            bar.add_task("", total=total, completed=done, rate="", errors="")
            began_s = updated_s = bar.get_time()
            done_before = done
        elif done == total or bar.get_time() >= updated_s + _UPDATE_S:
            updated_s = bar.get_time()
            rate = f"{(done - done_before) / max(updated_s - began_s, 1e-3):.1f} records/s"
            bar.update(bar.tasks[0].id, completed=done, rate=rate, errors=f"{failed} failed" if failed else "")

    try:
        yield update
    finally:
        bar.stop()
