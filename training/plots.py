"""The reliability plot of a checkpoint: share of right answers over their scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from training.calibration import Scored, reliability

_STYLE = {"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none",
          "svg.hashsalt": "gliner-bento"}  # fmt: skip


def draw_reliability(entities: Sequence[Scored], relations: Sequence[Scored], path: Path) -> None:
    """Write an SVG file."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.6, 3.4), layout="constrained")
        for axes, name, outcomes in zip(
            figure.subplots(1, 2), ("entities", "relations"), (entities, relations), strict=True
        ):
            bins = reliability(outcomes)
            axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="calibrated")
            axes.plot(
                [score for score, _, _ in bins], [share for _, share, _ in bins], "o-", color="#1b6ca8", label=name
            )
            for score, share, count in bins:
                axes.annotate(f"{count}", (score, share), textcoords="offset points", xytext=(4, -11), fontsize=7.5)
            axes.set(title=name, xlabel="score", ylabel="share of right answers", xlim=(0, 1), ylim=(0, 1))
        figure.savefig(path, metadata={"Date": None})
