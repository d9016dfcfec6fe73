"""The table of tasks."""

from __future__ import annotations

from gliner_bento.tasks.base import AnyTask
from gliner_bento.tasks.extraction import EXTRACTION

TASKS: dict[str, AnyTask] = {task.name: task for task in (EXTRACTION,)}
"""By name. A new task is a module and an entry here."""
