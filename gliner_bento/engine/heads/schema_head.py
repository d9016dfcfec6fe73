"""The head of GLiNER2's span models: entities, relations between any spans, classes, and structures.

    [P] of a task ──▶ number of instances ──▶ a query for each instance and field ──▶ a score for each query and span

[P] and [L] are marker tokens of the prompt (`text/schema_prompts.py`): a [P] for each task, an [L] for each class.

- Entities: one instance; each label is a field, and has one query.
- A relation: two fields, its head and its tail. Each instance is a relation between the best spans of both fields.
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
from gliner_bento.engine.heads.empty_lines import within_paragraphs
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
    with_relations,
)
from gliner_bento.engine.heads.span_scores import MarkerV0, WordEnds
from gliner_bento.engine.heads.typed_relations import relation_thresholds_of
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.layers.rows import PaddedRows, TextRows, copied
from gliner_bento.engine.limits import too_many
from gliner_bento.engine.text.schema_prompts import choice_index, choice_words
from gliner_bento.errors import LimitExceeded, ScoresNotFinite
from gliner_bento.tasks.extraction import ExtractionItem as Item

MAX_WORDS_TIMES_QUERIES = 4_000_000
"""Maximum number of words times number of queries, of one text in one pass."""


class TextTask(NamedTuple):
    """A task that has instances. first: the number of its first query, among the text's queries."""

    task: SchemaTask
    group: FieldGroup
    first: int


class SchemaScores(NamedTuple):
    """spans: embeddings of the batch's spans; None: not computed yet. instances: (markers, n), for each marker except
    those of labels the logits of 0, 1, ... n - 1 instances. Only the rows of [P] are used."""

    spans: Any
    instances: torch.Tensor


class SchemaModules(Protocol):
    """The layers of a `SchemaHead`. name: how they compute, for `/v1/model`."""

    name: str

    def spans(self, words: torch.Tensor, rows: TextRows) -> Any:
        """Embeddings of the spans, in a form that only `logits` reads."""

    def instances(self, markers: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """See `SchemaScores`. markers: embeddings of all markers except those of labels."""

    def queries(self, fields: torch.Tensor, groups: Sequence[FieldGroup], rows: TextRows) -> torch.Tensor:
        """The queries of all groups, (Q, D). rows: the queries of each text."""

    def classes(self, fields: torch.Tensor, rows: TextRows) -> torch.Tensor:
        """Logits, (classes, 1). rows: the classes of each text."""

    def logits(self, spans: Any, queries: torch.Tensor, rows: TextRows, words: TextRows) -> list[torch.Tensor]:
        """For each text, (words, K, queries), with spans as in `decode`. rows, words: the queries and the words of each
        text."""


class PackedModules:
    """`SchemaModules` of the engine's own layers, which compute all texts of a batch together."""

    def __init__(self, model: Any, layers: LayerFactory) -> None:
        self.spans: Any = MarkerV0(model.span_rep.span_rep_layer, model.max_width, layers)
        self._count = Projection(model.count_pred, layers)
        self._classify = Projection(model.classifier, layers)
        self.queries: Any = CountQueries(model.count_embed, layers)
        self.name = f"{self.spans.name}, {self.queries.name}"

    def instances(self, markers: torch.Tensor, rows: TextRows) -> torch.Tensor:
        return self._count(markers, rows.slot_rows)

    def classes(self, fields: torch.Tensor, rows: TextRows) -> torch.Tensor:
        return self._classify(fields, rows.slot_rows)

    def logits(self, spans: WordEnds, queries: torch.Tensor, rows: TextRows, words: TextRows) -> list[torch.Tensor]:
        if not isinstance(words, PaddedRows):
            return [block[0] for block in self.spans.scores(spans, queries, rows)]
        height = max(rows.counts)
        padded = PaddedRows(rows.counts, rows.slots, words.texts, height)
        row_of_query = torch.tensor([text * height + n for text, count in enumerate(rows.counts) for n in range(count)])
        padded_queries = queries.new_zeros(padded.size, queries.shape[1])
        padded_queries[copied(row_of_query, queries.device)] = queries
        (block,) = self.spans.scores(spans, padded_queries, padded)
        return [block[text, ..., :count] for text, count in enumerate(rows.counts)]


class Gliner2Modules:
    """`SchemaModules` of gliner2's own layers, text by text."""

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
        return words

    def instances(self, markers: torch.Tensor, rows: TextRows) -> torch.Tensor:
        return self._by_text(self._model.count_pred, markers, rows)

    def classes(self, fields: torch.Tensor, rows: TextRows) -> torch.Tensor:
        return self._by_text(self._model.classifier, fields, rows)

    def _by_text(self, module: Any, x: torch.Tensor, rows: TextRows) -> torch.Tensor:
        computed = []
        for slot, block, _ in rows.by_slot(x):
            with on_slot(slot), self._own_shapes():
                computed.append(module(block))
        return rows.joined(computed)

    def queries(self, fields: torch.Tensor, groups: Sequence[FieldGroup], rows: TextRows) -> torch.Tensor:
        group_ends = np.cumsum([group.queries for group in groups])
        text_ends = np.cumsum(rows.counts)
        text_of_group = np.searchsorted(text_ends, group_ends).tolist()
        fields_of_group = fields.split_with_sizes([group.fields for group in groups])
        queries = []
        for text, group, group_fields in zip(text_of_group, groups, fields_of_group, strict=True):
            with on_slot(rows.slot(text)), self._own_shapes():
                queries.append(self._model.count_embed(group_fields, group.instances).flatten(0, 1))
        return torch.cat(queries)

    def logits(self, spans: torch.Tensor, queries: torch.Tensor, rows: TextRows, words: TextRows) -> list[torch.Tensor]:
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
        """With the engine's own layers."""
        return cls(PackedModules(model, layers))

    @classmethod
    def own_modules(cls, model: Any, layers: LayerFactory, relations: object) -> SchemaHead:
        """With gliner2's own modules."""
        return cls(Gliner2Modules(model, layers))

    def scores(self, encoded: EncoderOutput) -> SchemaScores:
        """See `Head`. On a GPU, spans are computed here, because the CUDA graph ends here. On a CPU, `predictions`
        computes them, and only if the batch has entities, relations or structures."""
        rows = encoded.rows
        on_gpu = isinstance(rows.words, PaddedRows)
        spans = self._modules.spans(encoded.words, rows.words) if on_gpu else None
        return SchemaScores(spans, self._modules.instances(encoded.relations, rows.relations))

    def predictions(self, scores: SchemaScores, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        first_rows = zip(encoded.rows.labels.firsts, encoded.rows.relations.firsts, strict=True)
        all_tasks = [list(tasks_of(text.item, *firsts)) for text, firsts in zip(texts, first_rows, strict=False)]
        instances = _instances(scores.instances, encoded)
        tasks = [list(_with_instances(of_text, instances)) for of_text in all_tasks]
        errors = list(map(_too_many_queries, texts, tasks))
        tasks = [[] if error else of_text for error, of_text in zip(errors, tasks, strict=True)]
        spans = self._spans(scores.spans, encoded, texts, tasks)
        predictions = [Predictions.or_error(_predicted, *inputs) for inputs in zip(texts, tasks, spans, strict=True)]
        classes = classes_of(encoded, texts, all_tasks, self._modules.classes)
        return [
            replace(of_text, classes=scores_of_text, error=error or of_text.error)
            for of_text, scores_of_text, error in zip(predictions, classes, errors, strict=True)
        ]

    def _spans(
        self, spans: Any, encoded: EncoderOutput, texts: Sequence[Prepared], tasks: Sequence[Sequence[TextTask]]
    ) -> list[SpanTable]:
        """For each text, the spans above the threshold of a query; `label` is the query. spans: see `SchemaScores`."""
        groups = [group for of_text in tasks for _, group, _ in of_text]
        if not groups:
            return [NO_SPANS for _ in texts]
        fields = torch.cat([fields_of(task, encoded) for of_text in tasks for task, _, _ in of_text])
        counts = tuple(sum(group.queries for _, group, _ in of_text) for of_text in tasks)
        rows = TextRows(counts, encoded.rows.words.slots)
        queries = self._modules.queries(fields, groups, rows)
        words = encoded.rows.words
        spans = self._modules.spans(encoded.words, words) if spans is None else spans
        logits = self._modules.logits(spans, queries, rows, words)
        thresholds = [_thresholds(text.item, of_text) for text, of_text in zip(texts, tasks, strict=True)]
        above = decode_spans(
            [of_text[: text.words] for of_text, text in zip(logits, texts, strict=True)],
            [float(of_queries.min(initial=1)) for of_queries in thresholds],
        )
        return [
            table.take(table.score.astype(np.float32) > of_queries[table.label])
            for of_queries, table in zip(thresholds, above, strict=True)
        ]


def _too_many_queries(text: Prepared, tasks: Sequence[TextTask]) -> LimitExceeded | None:
    """The error of a text whose scores would take too much memory; None if they do not."""
    queries = sum(group.queries for _, group, _ in tasks)
    if queries * text.words <= MAX_WORDS_TIMES_QUERIES:
        return None
    param = max(tasks, key=lambda text_task: text_task.group.queries).task.param
    return LimitExceeded(
        f"{param}: the text has {text.words} words and {queries} fields in all instances, more than fit in one pass; "
        "request fewer fields, or lower window_words",
        param=param,
    )


def _instances(logits: torch.Tensor, encoded: EncoderOutput) -> list[int]:
    """For each marker, the most likely number of instances. Waits for the device. Raises `ScoresNotFinite`."""
    counts = logits.argmax(-1)
    if encoded.thresholds is None:  # `EncoderOutput.check_finite` has checked the embeddings
        return counts.tolist()
    report = torch.cat([encoded.sum().double(), counts.double()]).cpu()
    if not bool(report[0].isfinite()):
        raise ScoresNotFinite
    return report[1:].long().tolist()


def _with_instances(tasks: Iterable[SchemaTask], instances: Sequence[int]) -> Iterator[TextTask]:
    """The tasks that have instances. The task of the labels has at most one."""
    first = 0
    for task in tasks:
        if task.param != "classifications" and (count := instances[task.marker]):
            group = FieldGroup(task.fields, 1 if task.param == "labels" else count)
            yield TextTask(task, group, first)
            first += group.queries


def _thresholds(item: Item, tasks: Sequence[TextTask]) -> NDArray[np.float32]:
    """For each query, the number that a score must exceed: the largest float32 below the threshold, because gliner2
    includes scores that are equal to it."""
    structures = list(item.structures.values())
    parts: list[NDArray[np.float64]] = [np.empty(0)]
    for task, group, _ in tasks:
        if task.param == "labels":
            parts.append(np.broadcast_to(thresholds_of(item), len(item.labels)))
        elif task.param == "relations":
            of_relations = np.broadcast_to(relation_thresholds_of(item), len(item.relations))
            parts.append(np.repeat(of_relations[task.number], group.queries))
        else:
            of_fields = [field.threshold for field in structures[task.number].values()]
            parts.append(np.tile(of_fields, group.instances))
    thresholds = np.concatenate(parts).astype(np.float32)
    largest_below: NDArray[np.float32] = np.nextafter(thresholds, np.float32(-1))
    return largest_below


def _predicted(text: Prepared, tasks: Sequence[TextTask], above: SpanTable) -> Predictions:
    """The predictions of one text, except for classifications. above: see `SchemaHead._spans`. Raises LimitExceeded."""
    item, own = text.item, text.payload.own
    inside = above.take(above.first >= own.start)  # without the choices before the text
    inside = within_paragraphs(text, inside)
    entities = Resolved(NO_SPANS)
    for task, group, first in tasks:
        if task.param == "labels":
            of_labels = inside.take((inside.label >= first) & (inside.label < first + group.queries))
            entities = resolve(text, replace(of_labels, label=of_labels.label - first), within_labels=True)
    entities = Resolved(clipped(entities.entities, own), clipped(entities.suppressed, own), entities.cut)
    other_tasks = [text_task for text_task in tasks if text_task.task.param != "labels"]
    values = _values(item, inside, own) if other_tasks else {}
    predictions = with_relations(text, entities, list(_related(other_tasks, values)))
    if not item.structures:
        return predictions
    return replace(predictions, structures=_structures(text, other_tasks, values, above))


def _values(item: Item, inside: SpanTable, own: slice) -> dict[int, list[Span]]:
    """The spans of each query, best first, cut to the text.

    A span of the added full stop alone becomes invalid (last < first): it may be the best, but is never returned."""
    kept = inside.take(kept_spans(inside, item, within_labels=True))
    values: dict[int, dict[WordSpan, Span]] = {}
    for span in kept.take(np.lexsort((kept.last, kept.first, -kept.score))):
        within = span._replace(last=min(span.last, own.stop - 1))
        values.setdefault(span.label, {}).setdefault((within.first, within.last), within)
    return {query: list(spans.values()) for query, spans in values.items()}


def _structures(
    text: Prepared, tasks: Sequence[TextTask], values: Mapping[int, Sequence[Span]], above: SpanTable
) -> list[list[FieldSpans]]:
    """For each structure, its instances with at least one value. Raises LimitExceeded."""
    structures: list[list[FieldSpans]] = [[] for _ in text.item.structures]
    structure_fields = list(text.item.structures.values())
    words = choice_words(text.item.structures)  # which the model reads before the text
    choice_spans = above.take((above.first == above.last) & (above.first < len(words)))
    choice_scores = {(span.label, span.first): span.score for span in choice_spans}
    for task, group, first in tasks:
        if task.param != "structures":
            continue
        fields = list(structure_fields[task.number].values())
        for first_of_instance in range(first, first + group.queries, group.fields):
            instance = []
            for query, field in enumerate(fields, first_of_instance):
                spans = values.get(query, ())
                if field.choices:
                    keys = [(query, choice_index(words, choice)) for choice in field.choices]
                    spans = [
                        Span(0, 0, number, choice_scores[key])
                        for number, key in enumerate(keys)
                        if key in choice_scores
                    ]
                if field.type == "string":
                    spans = [max(spans, key=lambda span: span.score)] if spans else []
                instance.append([span for span in spans if span.first <= span.last])
            if any(instance):
                structures[task.number].append(instance)
    total = sum(len(spans) for instances in structures for instance in instances for spans in instance)
    if total > text.item.max_entities:
        raise too_many(text.item, "max_entities")
    return structures


def _related(tasks: Sequence[TextTask], values: Mapping[int, Sequence[Span]]) -> Iterator[Related]:
    """The relations of all instances. A relation's score is the lower of the scores of its head and tail."""
    for task, group, first in tasks:
        if task.param != "relations":
            continue
        for query in range(first, first + group.queries, 2):
            if query in values and query + 1 in values:
                head, tail = values[query][0], values[query + 1][0]
                if head.first <= head.last and tail.first <= tail.last:
                    ends = (head.first, head.last), (tail.first, tail.last)
                    yield Related(task.number, *ends, min(head.score, tail.score))
