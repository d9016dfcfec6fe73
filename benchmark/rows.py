"""A row of the report: two quantities measured in one run, their ratio, and whether it meets the target."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Better = Literal["more", "less"]


@dataclass(frozen=True, slots=True)
class Row:
    """ours, and theirs, the baseline's: in `unit`, None if not measured (the note says why). peer: the baseline.

    target: the least ours / theirs if `better` is "more", the most if it is "less"; None: no target. The names of the
    fields are those of results.json.
    """

    section: str
    name: str
    unit: str
    ours: float | None
    theirs: float | None = None
    peer: str = ""
    target: float | None = None
    better: Better = "more"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """ours / theirs."""
        return self.ours / self.theirs if self.ours is not None and self.theirs else None

    @property
    def met(self) -> bool | None:
        """Whether the ratio meets the target; None without a ratio or a target."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio >= self.target if self.better == "more" else self.ratio <= self.target

    @property
    def verdict(self) -> str:
        """`met` as a word of the report."""
        if self.met is None:
            return "not measured" if self.target is not None else ""
        return "met" if self.met else "missed"

    def as_data(self) -> dict[str, Any]:
        """Plain values, with the derived ones for readers of the file without this code."""
        return asdict(self) | {"ratio": self.ratio, "met": self.met}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Row:
        """The row that `as_data` wrote."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


def note_if_missing(value: object, reason: str) -> str:
    """A note that gives the reason if there is no value."""
    return "" if value is not None else f"not measured: {reason}"
