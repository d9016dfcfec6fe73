"""The head of GLiNER2's span models: entities, relations between any spans, classes, and structures.

    [P] of a task ──▶ number of instances ──▶ a query for each instance and field ──▶ a score for each query and span

[P] and [L] are marker tokens of the prompt (`text/schema_prompts.py`): a [P] for each task, an [L] for each class.

- Entities: one instance; each label is a field, and has one query.
- A relation: two fields, its head and its tail. Each instance is a relation between the best spans of both.
- A structure: each instance has the values of all fields.
- A classification: no instances; a class is scored from the embedding of its [L].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.count_queries import CountQueries, FieldGroup
from gliner_bento.engine.heads.decode import decode_spans, thresholds_of
from gliner_bento.engine.heads.overlap import Resolved, kept_spans, resolve
from gliner_bento.engine.heads.predictions import (
    NO_SPANS,
    FieldSpans,
    Predictions,
    Span,
    SpanTable,
    WordSpan,
)
from gliner_bento.engine.heads.schema_tasks import (
    Related,
    SchemaTask,
    classes_of,
    clipped,
    fields_of,
    tasks_of,
    with_ends,
)
from gliner_bento.engine.heads.span_scores import MarkerV0, WordEnds
from gliner_bento.engine.heads.typed_relations import relation_thresholds_of
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.layers.rows import PaddedRows, TextRows, copied
from gliner_bento.engine.limits import too_many
from gliner_bento.engine.text.schema_prompts import choice_row, choice_words
from gliner_bento.errors import LimitExceeded, ScoresNotFinite
from gliner_bento.tasks.extraction import ExtractionItem as Item

MAX_SCORED_WORDS = 4_000_000
"""Maximum number of words times number of queries, of one text in one pass."""


class TextTask(NamedTuple):
    """A task that has instances. queries: number of the text's queries before those of this task."""

    task: SchemaTask
    group: FieldGroup
    queries: int


class SchemaScores(NamedTuple):
    """spans: embeddings of the batch's spans; None: not computed yet. instances: for each [P], logits of numbers of
    instances, (markers, numbers)."""

    spans: Any
    instances: torch.Tensor


class SchemaModules(Protocol):
    """The layers of a `SchemaHead`. name: of the implementation, for `/v1/model`."""

    name: str

    def spans(self, words: torch.Tensor, rows: TextRows) -> Any:
        """Embeddings of the spans, in the form that `logits` takes."""

    def instances(self, markers: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """For each [P], logits of the number of its task's instances, (markers, numbers)."""

    def queries(self, fields: torch.Tensor, groups: Sequence[FieldGroup], rows: TextRows) -> torch.Tensor:
        """The queries of all groups, (Q, D). rows: the queries of each text."""

    def classes(self, fields: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """Logits, (classes, 1). rows: the classes of each text."""

    def logits(self, spans: Any, queries: torch.Tensor, rows: TextRows, words: TextRows) -> list[torch.Tensor]:
        """For each text, (words, widths, queries): a span is its first word and its width. rows: the queries of each
        text."""


class PackedModules:
    """The fast layers, for all texts of the batch together."""

    def __init__(self, model: Any, layers: LayerFactory) -> None:
        self.spans: Any = MarkerV0(model.span_rep.span_rep_layer, model.max_width, layers)
        self._count = Projection(model.count_pred, layers)
        self._classify = Projection(model.classifier, layers)
        self.queries: Any = CountQueries(model.count_embed, layers)
        self.name = f"{self.spans.name}, {self.queries.name}"

    def instances(self, markers: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """See `SchemaModules`."""
        return self._count(markers, rows.slot_rows)

    def classes(self, fields: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """See `SchemaModules`."""
        return self._classify(fields, rows.slot_rows)

    def logits(self, spans: WordEnds, queries: torch.Tensor, rows: TextRows, words: TextRows) -> list[torch.Tensor]:
        """See `SchemaModules`."""
        if not isinstance(words, PaddedRows):
            return [block[0] for block in self.spans.scores(spans, queries, rows)]
        height = max(rows.counts)
        padded = PaddedRows(rows.counts, rows.slots, words.texts, height)
        index = torch.tensor([text * height + at for text, count in enumerate(rows.counts) for at in range(count)])
        filled = queries.new_zeros(padded.size, queries.shape[1])
        filled[copied(index, queries.device)] = queries
        (block,) = self.spans.scores(spans, filled, padded)
        return [block[text, ..., :count] for text, count in enumerate(rows.counts)]


class OwnModules:
    """gliner2's own modules, text by text."""

    def __init__(self, model: Any, layers: LayerFactory) -> None:
        self._model = model
        self._own_shapes = layers.own_shapes
        for module in (model.span_rep, model.count_pred, model.count_embed, model.classifier):
            layers.adapt(module)
        for layer in model.count_embed.modules():
            if isinstance(layer, nn.TransformerEncoderLayer):
                layer.activation_relu_or_gelu = 0  # torch's fused form would not call the adapted layers
        self.name = f"gliner2's {type(model).__name__}, text by text"

    def spans(self, words: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """See `SchemaModules`."""
        return words

    def instances(self, markers: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """See `SchemaModules`."""
        return self._by_text(self._model.count_pred, markers, rows)

    def classes(self, fields: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """See `SchemaModules`."""
        return self._by_text(self._model.classifier, fields, rows)

    def _by_text(self, module: Any, x: torch.Tensor, rows: TextRows) -> torch.Tensor:
        computed = []
        for slot, block, _ in rows.by_slot(x):
            with on_slot(slot), self._own_shapes():
                computed.append(module(block))
        return rows.joined(computed)

    def queries(self, fields: torch.Tensor, groups: Sequence[FieldGroup], rows: TextRows) -> torch.Tensor:
        """See `SchemaModules`."""
        texts = np.searchsorted(np.cumsum(rows.counts), np.cumsum([group.queries for group in groups])).tolist()
        queries = []
        for text, group, part in zip(
            texts, groups, fields.split_with_sizes([group.fields for group in groups]), strict=True
        ):
            with on_slot(rows.slot(text)), self._own_shapes():
                queries.append(self._model.count_embed(part, group.instances).flatten(0, 1))
        return torch.cat(queries)

    def logits(self, spans: torch.Tensor, queries: torch.Tensor, rows: TextRows, words: TextRows) -> list[torch.Tensor]:
        """See `SchemaModules`."""
        logits = []
        for text, (text_words, text_queries) in enumerate(zip(words.split(spans), rows.split(queries), strict=True)):
            with on_slot(rows.slot(text)), self._own_shapes():
                logits.append(self._model.compute_span_rep(text_words)["span_rep"] @ text_queries.T)
        return logits


class SchemaHead:
    """The `Head` of GLiNER2's span models."""

    def __init__(self, modules: SchemaModules) -> None:
        self._modules = modules
        self.name = modules.name

    @classmethod
    def packed(cls, model: Any, layers: LayerFactory, relations: object) -> SchemaHead:
        """With the fast layers."""
        return cls(PackedModules(model, layers))

    @classmethod
    def own_modules(cls, model: Any, layers: LayerFactory, relations: object) -> SchemaHead:
        """With gliner2's own modules."""
        return cls(OwnModules(model, layers))

    def scores(self, encoded: EncoderOutput) -> SchemaScores:
        """See `Head`. On a GPU, spans are computed here, because the CUDA graph ends here. On a CPU, `predictions`
        computes them, and only if the batch has entities, relations or structures."""
        rows = encoded.rows
        on_gpu = isinstance(rows.words, PaddedRows)
        spans = self._modules.spans(encoded.words, rows.words) if on_gpu else None
        return SchemaScores(spans, self._modules.instances(encoded.relations, rows.relations))

    def predictions(self, scores: SchemaScores, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """See `Head`."""
        firsts = zip(encoded.rows.labels.firsts, encoded.rows.relations.firsts, strict=True)
        every = [list(tasks_of(text.item, *of_text)) for text, of_text in zip(texts, firsts, strict=False)]
        instances = _instances(scores.instances, encoded)
        tasks = [list(_with_instances(of_text, instances)) for of_text in every]
        too_large = {n: error for n, of_text in enumerate(tasks) if (error := _too_many_queries(texts[n], of_text))}
        tasks = [[] if n in too_large else of_text for n, of_text in enumerate(tasks)]
        spans = self._spans(scores.spans, encoded, texts, tasks)
        predictions = [Predictions.or_error(_predicted, *of_text) for of_text in zip(texts, tasks, spans, strict=True)]
        predictions = [replace(one, error=too_large.get(n, one.error)) for n, one in enumerate(predictions)]
        classes = classes_of(encoded, texts, every, self._modules.classes)
        return [replace(one, classes=of_text) for one, of_text in zip(predictions, classes, strict=True)]

    def _spans(
        self, spans: Any, encoded: EncoderOutput, texts: Sequence[Prepared], tasks: Sequence[Sequence[TextTask]]
    ) -> list[SpanTable]:
        """For each text, the spans that score above the threshold of a query; their labels are numbers of queries."""
        groups = [one.group for of_text in tasks for one in of_text]
        if not groups:
            return [NO_SPANS for _ in texts]
        fields = torch.cat([fields_of(one.task, encoded) for of_text in tasks for one in of_text])
        counts = tuple(sum(one.group.queries for one in of_text) for of_text in tasks)
        rows = TextRows(counts, encoded.rows.words.slots)
        queries = self._modules.queries(fields, groups, rows)
        words = encoded.rows.words
        spans = self._modules.spans(encoded.words, words) if spans is None else spans
        logits = self._modules.logits(spans, queries, rows, words)
        thresholds = [_thresholds(text.item, of_text) for text, of_text in zip(texts, tasks, strict=True)]
        above = decode_spans(
            [one[: text.words] for one, text in zip(logits, texts, strict=True)],
            [float(of_text.min(initial=1)) for of_text in thresholds],
        )
        return [
            spans.take(spans.score.astype(np.float32) > of_text[spans.label])
            for of_text, spans in zip(thresholds, above, strict=True)
        ]


def _too_many_queries(text: Prepared, tasks: Sequence[TextTask]) -> LimitExceeded | None:
    """The error of a text whose scores would take gigabytes: too many instances of too many fields."""
    queries = sum(one.group.queries for one in tasks)
    if queries * text.words <= MAX_SCORED_WORDS:
        return None
    param = max(tasks, key=lambda one: one.group.queries).task.param
    return LimitExceeded(
        f"{param}: the text has {text.words} words and {queries} fields in all instances, more than fit in one pass; "
        "request fewer fields, or lower window_words",
        param=param,
    )


def _instances(logits: torch.Tensor, encoded: EncoderOutput) -> list[int]:
    """The number of instances of each marker's task. Waits for the device. Raises `ScoresNotFinite`."""
    counts = logits.argmax(-1)
    if encoded.thresholds is None:  # `EncoderOutput.check_finite` has checked the embeddings
        return counts.tolist()
    report = torch.cat([encoded.sum().double(), counts.double()]).cpu()
    if not bool(report[0].isfinite()):
        raise ScoresNotFinite
    return report[1:].long().tolist()


def _with_instances(tasks: Iterable[SchemaTask], instances: Sequence[int]) -> Iterator[TextTask]:
    """The tasks that have instances. Entities have at most one."""
    queries = 0
    for task in tasks:
        if task.param != "classifications" and (count := instances[task.marker]):
            group = FieldGroup(task.fields, 1 if task.param == "labels" else count)
            yield TextTask(task, group, queries)
            queries += group.queries


def _thresholds(item: Item, tasks: Sequence[TextTask]) -> NDArray[np.float32]:
    """For each query, the number that a score must exceed: the largest float32 below the threshold, because gliner2
    includes scores that are equal to it."""
    structures = list(item.structures.values())
    parts: list[NDArray[np.float64]] = [np.empty(0)]
    for one in tasks:
        if one.task.param == "labels":
            parts.append(np.broadcast_to(thresholds_of(item), len(item.labels)))
        elif one.task.param == "relations":
            of_relations = np.broadcast_to(relation_thresholds_of(item), len(item.relations))
            parts.append(np.repeat(of_relations[one.task.number], one.group.queries))
        else:
            of_fields = [field.threshold for field in structures[one.task.number].values()]
            parts.append(np.tile(of_fields, one.group.instances))
    thresholds = np.concatenate(parts).astype(np.float32)
    least: NDArray[np.float32] = np.nextafter(thresholds, np.float32(-1))
    return least


def _predicted(text: Prepared, tasks: Sequence[TextTask], above: SpanTable) -> Predictions:
    """above: see `SchemaHead._spans`. Raises LimitExceeded."""
    item, own = text.item, text.payload.own  # own: the words of the text, without the choices before it
    inside = above.take(above.first >= own.start)
    entities = Resolved(NO_SPANS)
    for one in tasks:
        if one.task.param == "labels":
            of_labels = inside.take((inside.label >= one.queries) & (inside.label < one.queries + one.group.queries))
            entities = resolve(text, replace(of_labels, label=of_labels.label - one.queries), within_labels=True)
    entities = Resolved(clipped(entities.entities, own), clipped(entities.suppressed, own), entities.cut)
    others = [one for one in tasks if one.task.param != "labels"]
    values = _values(item, inside, own) if others else {}
    predictions = with_ends(text, entities, list(_related(others, values)))
    return replace(predictions, structures=_structures(text, others, values, above)) if item.structures else predictions


def _values(item: Item, inside: SpanTable, own: slice) -> dict[int, list[Span]]:
    """The spans of each query, best first. A span of words after the text is empty: it ends before it begins."""
    kept = inside.take(kept_spans(inside, item, within_labels=True))
    values: dict[int, dict[WordSpan, Span]] = {}
    for span in kept.take(np.lexsort((kept.last, kept.first, -kept.score))):
        clipped = span._replace(last=min(span.last, own.stop - 1))
        values.setdefault(span.label, {}).setdefault(clipped[:2], clipped)
    return {query: list(spans.values()) for query, spans in values.items()}


def _structures(
    text: Prepared, tasks: Sequence[TextTask], values: Mapping[int, Sequence[Span]], above: SpanTable
) -> list[list[FieldSpans]]:
    """The instances of each structure that have a value. Raises LimitExceeded."""
    structures: list[list[FieldSpans]] = [[] for _ in text.item.structures]
    structure_fields = list(text.item.structures.values())
    words = choice_words(text.item.structures)  # in the prompt, before the text
    choice_spans = above.take((above.first == above.last) & (above.first < len(words)))
    chosen = {(span.label, span.first): span.score for span in choice_spans}
    for one in tasks:
        if one.task.param != "structures":
            continue
        fields = list(structure_fields[one.task.number].values())
        for first in range(one.queries, one.queries + one.group.queries, one.group.fields):
            instance = []
            for query, field in enumerate(fields, first):
                spans = values.get(query, ())
                if field.choices:
                    rows = [choice_row(words, choice) for choice in field.choices]
                    spans = [
                        Span(0, 0, number, chosen[query, row])
                        for number, row in enumerate(rows)
                        if (query, row) in chosen
                    ]
                if field.type == "string":
                    spans = [max(spans, key=lambda span: span.score)] if spans else []
                instance.append([span for span in spans if span.first <= span.last])
            if any(instance):
                structures[one.task.number].append(instance)
    if sum(len(spans) for one in structures for instance in one for spans in instance) > text.item.max_entities:
        raise too_many(text.item, "max_entities")
    return structures


def _related(tasks: Sequence[TextTask], values: Mapping[int, Sequence[Span]]) -> Iterator[Related]:
    """The relations of all instances; the score is the lower of both ends' scores."""
    for one in tasks:
        if one.task.param != "relations":
            continue
        for query in range(one.queries, one.queries + one.group.queries, 2):
            if query in values and query + 1 in values:
                head, tail = values[query][0], values[query + 1][0]
                if head.first <= head.last and tail.first <= tail.last:
                    ends = (head.first, head.last), (tail.first, tail.last)
                    yield Related(one.task.number, *ends, min(head.score, tail.score))
