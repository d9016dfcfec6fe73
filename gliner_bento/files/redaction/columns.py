"""The columns of a file that are redacted, and those that nobody looks at."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gliner_bento.files.records.columns import delimiter_hint

ALL = "*"
_MAX_UNSEEN, _MAX_CHARS = 100, 80


class Columns:
    """Chooses columns of a file by name, and notes the others that have texts.

    names: those to redact; `*`: all, and all strings of JSON. kept: those that need no look.
    """

    def __init__(self, names: Sequence[str], kept: Collection[str] = ()) -> None:
        self.takes_all = ALL in names
        self.names = [] if self.takes_all else names
        self._kept = kept
        self._unseen: dict[str, None] = {}

    @property
    def unseen(self) -> Sequence[str]:
        """The names of columns and strings that were passed over, the first `_MAX_UNSEEN`."""
        return list(self._unseen)

    def takes(self, name: str) -> bool:
        """Whether a column is redacted."""
        return (self.takes_all or name in self.names) and name not in self._kept

    def pass_over(self, column: str, name: str = "") -> None:
        """Note a text that is not redacted. name: of a string in the column, such as `customer.name`."""
        if column not in self._kept and len(self._unseen) < _MAX_UNSEEN:
            self._unseen[(name or column)[:_MAX_CHARS]] = None

    def check(self, present: Collection[str]) -> None:
        """Raise ValueError if a column is missing."""
        if missing := [name for name in self.names if name not in present]:
            names = ", ".join(map(repr, present)) or "none"
            raise ValueError(
                f"no column {missing[0]!r}; there are {names}: choose with --columns{delimiter_hint(present)}"
            )
