"""No entity runs over an empty line: such spans are dropped before overlap resolution, so that shorter ones can win.

The models read words and no line ends: of a name, an empty line and another name, they may predict a single one. A
single line end is allowed inside a name, because lines wrap. Scores are not changed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.predictions import SpanTable
from gliner_bento.paragraphs import has_empty_line


def empty_lines_before(text: Prepared) -> NDArray[np.int64] | None:
    """For each word that the model reads, how many gaps with an empty line are between the text's first word and it.

    None if there are none, or the item allows entities across empty lines (`across_empty_lines`)."""
    item, bounds = text.item, text.payload.bounds
    start, stop, _ = text.payload.own.indices(len(bounds))
    if item.across_empty_lines or stop - start < 2:
        return None
    if not has_empty_line(item.text, int(bounds[start, 1]), int(bounds[stop - 1, 0])):
        return None
    ends, starts = bounds[start : stop - 1, 1], bounds[start + 1 : stop, 0]
    lines = np.zeros(len(bounds), np.int64)
    for gap in np.flatnonzero(starts > ends).tolist():
        if has_empty_line(item.text, int(ends[gap]), int(starts[gap])):
            lines[start + 1 + gap :] += 1
    return lines


def within_paragraphs(text: Prepared, spans: SpanTable) -> SpanTable:
    """The spans that do not run over an empty line. text: of the pass whose words the spans have."""
    if not len(spans) or (lines := empty_lines_before(text)) is None:
        return spans
    return spans.take(lines[spans.first] == lines[spans.last])
