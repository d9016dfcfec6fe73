"""What GLiNER2's heads share: the tasks of a text, the scores of its classes, and its relations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.overlap import Resolved, chars_of
from gliner_bento.engine.heads.predictions import (
    PredictedRelation,
    Predictions,
    Span,
    SpanTable,
    WordSpan,
    class_scores,
)
from gliner_bento.engine.heads.typed_relations import AllowedEnds
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.engine.limits import kept_of
from gliner_bento.tasks.extraction import ExtractionItem as Item


class SchemaTask(NamedTuple):
    """A task of a text, from the option `param`. number: its index in this option. marker: the row of its [P] in
    `EncoderOutput.relations`. first: the row of its first field (see `fields_of`). fields: how many fields it has."""

    param: str
    number: int
    marker: int
    first: int
    fields: int


def tasks_of(item: Item, first_label: int, first_marker: int) -> Iterator[SchemaTask]:
    """The tasks of an item, in the order of its prompt. first_label, first_marker: the text's first row in the batch's
    embeddings of labels, and of all other markers (`EncoderOutput.relations`)."""
    row = first_marker
    tasks = [
        *(("structures", number, len(structure)) for number, structure in enumerate(item.structures.values())),
        *([("labels", 0, 0)] if item.labels else ()),
        *(("relations", number, 2) for number in range(len(item.relations))),
        *(("classifications", number, len(each.labels)) for number, each in enumerate(item.classifications.values())),
    ]
    for param, number, size in tasks:  # size: the task's rows after its [P] in `EncoderOutput.relations`
        if param == "labels":
            yield SchemaTask(param, number, row, first_label, len(item.labels))
        else:
            yield SchemaTask(param, number, row, row + 1, size)
        row += 1 + size


def fields_of(task: SchemaTask, encoded: EncoderOutput) -> torch.Tensor:
    """The embeddings of a task's fields."""
    markers = encoded.labels if task.param == "labels" else encoded.relations
    return markers[task.first : task.first + task.fields]


def classes_of(
    encoded: EncoderOutput,
    texts: Sequence[Prepared],
    tasks: Sequence[Sequence[SchemaTask]],
    classify: Callable[[torch.Tensor, TextRows], torch.Tensor],
) -> list[list[NDArray[np.float64]]]:
    """The scores of each text's classes. classify: (fields, classes of each text) -> logits (classes, 1)."""
    class_tasks = [[task for task in of_text if task.param == "classifications"] for of_text in tasks]
    if not any(class_tasks):
        return [[] for _ in texts]
    fields = torch.cat([fields_of(task, encoded) for of_text in class_tasks for task in of_text])
    rows = TextRows(tuple(sum(task.fields for task in of_text) for of_text in class_tasks), encoded.rows.words.slots)
    logits = classify(fields, rows)[:, 0].float().cpu().numpy().astype(np.float64)
    sizes = [task.fields for of_text in class_tasks for task in of_text]
    logits_of_tasks = iter(np.split(logits, np.cumsum(sizes)[:-1]))
    scores = []
    for text in texts:
        classifications = text.item.classifications.values()
        scores.append([class_scores(next(logits_of_tasks), multi_label=each.multi_label) for each in classifications])
    return scores


def clipped(spans: SpanTable, own: slice) -> SpanTable:
    """The spans, cut to `own`, the words of the text. Of spans that become equal, the best by score is kept."""
    last = np.minimum(spans.last, own.stop - 1)
    if (last == spans.last).all():
        return spans
    order = np.argsort(-spans.score, kind="stable")
    keys = np.stack([spans.first, last, spans.label])[:, order]
    _, best = np.unique(keys, axis=1, return_index=True)
    kept = np.sort(order[best])
    return replace(spans, last=last).take(kept[spans.first[kept] < own.stop])


class Related(NamedTuple):
    """A predicted relation between two spans of words. relation: an index into the item's relations."""

    relation: int
    head: WordSpan
    tail: WordSpan
    score: float


def with_relations(text: Prepared, entities: Resolved, related: Sequence[Related]) -> Predictions:
    """The entities, with the relations that the item allows and its limits keep. Raises LimitExceeded."""
    table = entities.entities
    index_of = table.index_of_words()
    best: dict[tuple[int, WordSpan, WordSpan], float] = {}
    allowed = AllowedEnds.of(text.item)
    for predicted in related:
        if allowed is None or _is_allowed(predicted, allowed, index_of, table):
            key = predicted.relation, predicted.head, predicted.tail
            best[key] = max(predicted.score, best.get(key, 0.0))
    not_entities = {span: None for _, head, tail in best for span in (head, tail) if span not in index_of}
    ends = SpanTable.of([Span(*span, 0, 0.0) for span in not_entities])
    index_of |= {span: len(table) + number for number, span in enumerate(not_entities)}
    relations = [
        PredictedRelation(relation, index_of[head], index_of[tail], score)
        for (relation, head, tail), score in best.items()
    ]
    cut = list(entities.cut)
    if relations and not text.is_pass:
        chars = np.concatenate([chars_of(text, table), chars_of(text, ends)])
        lengths = np.array([chars[relation.head] + chars[relation.tail] for relation in relations])
        fitting = kept_of(text.item, "max_relations", np.array([relation.score for relation in relations]), lengths)
        if fitting is not None:
            relations = [relations[number] for number in fitting.tolist()]
            cut.append("max_relations")
    return Predictions(table, entities.suppressed, cut, relations, ends)


def _is_allowed(related: Related, allowed: AllowedEnds, index_of: dict[WordSpan, int], entities: SpanTable) -> bool:
    """Whether both ends are entities whose labels the relation may have."""
    head, tail = index_of.get(related.head), index_of.get(related.tail)
    if head is None or tail is None:
        return False
    return bool(allowed.permit(related.relation, entities.label[head], entities.label[tail]))
