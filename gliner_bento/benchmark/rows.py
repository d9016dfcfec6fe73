"""A row of the report: two numbers that were measured in one run, their ratio, and whether it is what we want."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Better = Literal["more", "less"]


@dataclass(frozen=True, slots=True)
class Row:
    """ours and theirs: in `unit`, None where they were not measured (the note says why).

    target: what ours / theirs should be at least (`better` is "more") or at most ("less"); None: told, not judged.
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
        """Ours over theirs."""
        return self.ours / self.theirs if self.ours is not None and self.theirs else None

    @property
    def met(self) -> bool | None:
        """Whether the ratio is as wanted; None where there is no ratio or no target."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio >= self.target if self.better == "more" else self.ratio <= self.target

    @property
    def verdict(self) -> str:
        """In words, with how much is missing."""
        if self.met is None:
            return "not measured" if self.target is not None else ""
        if self.met:
            return "met"
        assert self.ratio is not None
        assert self.target is not None
        return f"short by {abs(self.ratio / self.target - 1):.0%}"

    def as_data(self) -> dict[str, Any]:
        """Plain values, with what follows from them for those who read the file without this code."""
        return asdict(self) | {"ratio": self.ratio, "met": self.met}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Row:
        """The row that `as_data` wrote."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


def unless(value: object, note: str) -> str:
    """A note that says what is missing where there is no value."""
    return "" if value is not None else f"not measured: {note}"
