"""The head of GLiNER2's boundary models (GLiNER2.5): gliner2's own modules over the engine's encoder, text by text.

gliner2 divides the distance between a relation's ends by the length of the batch's longest text, so a text's scores
would depend on the other texts. Here each text is a batch of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import thresholds_of
from gliner_bento.engine.heads.empty_lines import empty_lines_before
from gliner_bento.engine.heads.overlap import Resolved, resolve
from gliner_bento.engine.heads.predictions import NO_SPANS, FieldSpans, Predictions, Span, SpanTable, WordSpan
from gliner_bento.engine.heads.schema_tasks import (
    Related,
    SchemaTask,
    classes_of,
    clipped,
    fields_of,
    tasks_of,
    with_relations,
)
from gliner_bento.engine.heads.typed_relations import relation_thresholds_of
from gliner_bento.engine.layers.factory import LayerFactory, without
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.engine.limits import too_many
from gliner_bento.engine.text.schema_prompts import choice_words
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.tasks.structures import Structure

_DTYPE_OF_FIELD_TYPE = {"string": "str", "list": "list"}  # gliner2's `dtype`


class BoundaryHead:
    """A `Head` that runs gliner2's model. Changes the model: replaces its linear layers by ones that take adapters."""

    def __init__(self, model: Any, layers: LayerFactory, relations: object) -> None:
        self._classify = Projection(model.classifier, layers)
        self._temperature: float = model.boundary_settings.classification_temperature
        self._model: Any = without(model, "encoder", "classifier")
        layers.adapt(self._model)
        self._own_shapes = layers.own_shapes
        self.name = f"gliner2's {type(model.boundary_head).__name__}, text by text"

    def scores(self, encoded: EncoderOutput) -> tuple[()]:
        return ()

    def predictions(self, scores: object, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        encoded.check_finite()
        rows = encoded.rows
        first_rows = zip(rows.labels.firsts, rows.relations.firsts, strict=True)
        tasks = [list(tasks_of(text.item, *firsts)) for text, firsts in zip(texts, first_rows, strict=False)]
        predictions = []
        for number, (text, words) in enumerate(zip(texts, rows.words.split(encoded.words), strict=False)):
            span_tasks = [task for task in tasks[number] if task.param != "classifications"]
            with on_slot(rows.words.slot(number)), self._own_shapes():
                predictions.append(Predictions.or_error(self._predicted, text, span_tasks, words, encoded))
        classes = classes_of(encoded, texts, tasks, self._class_logits)
        return [replace(of_text, classes=scores) for of_text, scores in zip(predictions, classes, strict=True)]

    def _class_logits(self, fields: torch.Tensor, rows: TextRows) -> torch.Tensor:
        return self._classify(fields, rows.slot_rows) / self._temperature

    def _predicted(
        self, text: Prepared, tasks: Sequence[SchemaTask], words: torch.Tensor, encoded: EncoderOutput
    ) -> Predictions:
        """The predictions of one text, except for classifications. words: (W, D). Raises LimitExceeded."""
        if not tasks:
            return Predictions()
        item, own = text.item, text.payload.own
        schema = _Schema.of(self._model, item, tasks)
        queries = torch.cat([fields_of(task, encoded) for task in tasks])
        core = {  # gliner2's name for the input of its heads and decoders
            "text_states": words[None],
            "text_mask": words.new_ones((1, len(words)), dtype=torch.bool),
            "query_states": queries[None],
            "query_mask": words.new_ones((1, len(queries)), dtype=torch.bool),
            "rel_specs": [schema.relation_specs(queries)],
        }
        states = (core[name] for name in ("text_states", "text_mask", "query_states", "query_mask"))
        output = _within_paragraphs(text, self._model.boundary_head(*states, return_candidates=True))
        grouped = self._candidates_above(output, item, tasks)
        label_spans = _spans(schema.label_queries, grouped, self._abstaining(output))
        resolved = resolve(replace(text, item=replace(item, overlap=schema.overlap)), label_spans, within_labels=True)
        tables = resolved.entities, resolved.suppressed  # the spans of the choices before the text are dropped below
        spans, suppressed = (clipped(table.take(table.first >= own.start), own) for table in tables)
        entities = Resolved(spans, suppressed, resolved.cut)
        source = _Source.of(text)
        related = list(schema.related(core, output.candidates, source)) if item.relations else []
        predictions = with_relations(text, entities, related)
        if not item.structures:
            return predictions
        instances = schema.instances(core, output.candidates, grouped, source)
        return replace(predictions, structures=_structures(item, instances, source))

    def _candidates_above(self, output: Any, item: Item, tasks: Sequence[SchemaTask]) -> list[Any]:
        """For each query, the candidates that reach its threshold, as (score, start, end) in words.

        The candidates of relations' queries are not used."""
        from gliner2.models.boundary.model import _group_scored_candidates  # noqa: PLC0415  # takes seconds

        settings = self._model.boundary_settings
        thresholds = torch.from_numpy(_thresholds(item, tasks))[None]
        grouped: list[Any] = _group_scored_candidates(
            output.candidates,
            threshold=thresholds,
            probabilities=torch.sigmoid(output.candidates.pair_logits / settings.pair_temperature),
            count_log_rates=output.count_log_rates,
            adaptive_threshold=settings.adaptive_threshold,
        )[0]
        return grouped

    def _abstaining(self, output: Any) -> Sequence[bool]:
        """For each query, whether the model predicts that the text has no entities for it."""
        if output.null_logits is None:
            return [False] * output.candidates.indices.shape[1]
        above = torch.sigmoid(output.null_logits[0]).float() > self._model.boundary_settings.abstention_threshold
        abstaining: list[bool] = above.tolist()
        return abstaining


@dataclass(frozen=True, slots=True)
class _Source:
    """A text as gliner2 reads it: with the full stop that may have been added to it (see `schema_prompts`).

    starts, ends: [start, end) of each word, in characters. own: see `Tokenized`."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    own: slice

    @classmethod
    def of(cls, text: Prepared) -> _Source:
        own, bounds = text.payload.own, text.payload.bounds
        starts, ends = bounds[own.start :].T.tolist()
        if own.stop == len(bounds):
            return cls(text.item.text, starts, ends, own)
        # The last word is the added full stop. It begins where the last word of the text ends.
        end = starts[-1]
        before_stop = text.item.text[:end] if text.item.text[end:].strip() else text.item.text
        return cls(f"{before_stop}.", [*starts[:-1], len(before_stop)], [*ends[:-1], len(before_stop) + 1], own)

    def words(self, start: int, end: int) -> WordSpan | None:
        """The first and the last word of the characters [start, end); None if they begin after the text's last word."""
        first, last = (int(np.searchsorted(self.starts, at, "right")) - 1 + self.own.start for at in (start, end - 1))
        return None if first >= self.own.stop else (first, min(last, self.own.stop - 1))

    @property
    def decoder_arguments(self) -> tuple[Any, ...]:
        """Arguments that all of gliner2's decoders take: first word, starts, ends, text, number of words."""
        return self.own.start, self.starts, self.ends, self.text, len(self.starts)


@dataclass(frozen=True, slots=True)
class _Schema:
    """Converts an item's tasks to the input of the decoders of gliner2's `model`. firsts: the first query of each task.

    gliner2 identifies tasks by name. Here it gets their numbers, because several tasks may have the same name."""

    model: Any
    item: Item
    tasks: Sequence[SchemaTask]
    firsts: Sequence[int]

    @classmethod
    def of(cls, model: Any, item: Item, tasks: Sequence[SchemaTask]) -> _Schema:
        return cls(model, item, tasks, np.cumsum([0, *(task.fields for task in tasks)])[:-1].tolist())

    def _first_queries(self, param: str) -> Iterator[tuple[int, int]]:
        """The number and the first query of each task of the option `param`."""
        for task, first in zip(self.tasks, self.firsts, strict=True):
            if task.param == param:
                yield task.number, first

    @property
    def overlap(self) -> Any:
        """The policy for overlaps: the item's, or the model's."""
        policy: str = self.model._resolved_overlap_policy(self.item.overlap)
        return "flat" if policy == "disallow" else policy

    @property
    def label_queries(self) -> range:
        """The queries of the labels."""
        first = next((first for _, first in self._first_queries("labels")), 0)
        return range(first, first + len(self.item.labels))

    def relation_specs(self, queries: torch.Tensor) -> list[dict[str, Any]]:
        """gliner2's specifications of the relations. queries: (Q, D)."""
        from gliner2.models.boundary.relations import RelationTypeSpec  # noqa: PLC0415

        directional = self.model.boundary_settings.directional_relation_states
        specs = []
        for number, head in self._first_queries("relations"):
            ends = queries[head : head + 2]
            state = ends.flatten() if directional else ends.mean(dim=0)
            specs.append({"spec": RelationTypeSpec(str(number), (head,), (head + 1,)), "query_state": state})
        return specs

    def related(self, core: Any, candidates: Any, source: _Source) -> Iterator[Related]:
        """The relations above their thresholds."""
        thresholds = np.broadcast_to(relation_thresholds_of(self.item), len(self.item.relations)).tolist()
        metadata = {"relation_metadata": {str(number): {"threshold": value} for number, value in enumerate(thresholds)}}
        edges_of_relations = self.model._decode_relations(
            0, core, candidates, metadata, self.item.threshold, *source.decoder_arguments,
            include_confidence=True, include_spans=True,
        )  # fmt: skip
        for number, edges in edges_of_relations.items():
            for edge in edges:
                head, tail = (source.words(edge[side]["start"], edge[side]["end"]) for side in ("head", "tail"))
                if head and tail:
                    yield Related(int(number), head, tail, edge["confidence"])

    def instances(
        self, core: Any, candidates: Any, grouped: Sequence[Any], source: _Source
    ) -> Mapping[str, list[dict[str, Any]]]:
        """For each structure, by its number, the values of its instances, as gliner2's `extract_json` decodes them. If
        the model has no record decoder, each structure has one instance."""
        structures = list(self.item.structures.values())
        # Stands in for gliner2's batch. Of its tokens, the decoders read only those before the text.
        batch = SimpleNamespace(text_tokens=[choice_words(self.item.structures)], record_specs=[])
        metadata = {
            "field_metadata": {
                f"{number}.{name}": {
                    "dtype": _DTYPE_OF_FIELD_TYPE[field.type],
                    "choices": list(field.choices),
                    # Without one, gliner2 returns the best value of an instance, whatever its score.
                    "threshold": field.threshold if field.own_threshold else None,
                }
                for number, fields in enumerate(structures)
                for name, field in fields.items()
            }
        }
        if not self.model.enable_records:
            specs = [{"task_type": ""}] * len(grouped)
            for number, first in self._first_queries("structures"):
                for query, name in enumerate(structures[number], first):
                    specs[query] = {"task_type": "json_structures", "task_name": str(number), "field_name": name}
            single: dict[str, list[dict[str, Any]]] = self.model._decode_legacy_structures(
                batch, 0, core, specs, grouped, metadata, set(), self.overlap, *source.decoder_arguments,
                self.item.threshold, include_confidence=True, include_spans=True,
            )  # fmt: skip
            return single
        records = {
            number: _record(number, first, structures[number]) for number, first in self._first_queries("structures")
        }
        batch.record_specs = [records]

        def decoded(candidates: Any) -> dict[str, list[dict[str, Any]]]:
            packed, copied = self._packed_records(core, candidates, records)
            instances: dict[str, list[dict[str, Any]]] = self.model._decode_records(
                batch, 0, core, copied, *source.decoder_arguments, include_confidence=True, include_spans=True,
                threshold=self.item.threshold, metadata=metadata, overlap_policy=self.overlap,
                packed_record_output=packed,
            )  # fmt: skip
            return instances

        try:
            return decoded(candidates)
        except ValueError:  # gliner2 fails if the anchor's value (see `_record`) is a choice before the text
            valid_mask = candidates.valid_mask.clone()
            for record in records.values():  # exclude the candidates of anchors that begin before the text
                anchor = record.anchor_query_id
                valid_mask[:, anchor] &= candidates.indices[:, anchor, :, 0] >= source.own.start
            return decoded(replace(candidates, valid_mask=valid_mask))

    def _packed_records(self, core: Any, candidates: Any, records: Mapping[int, Any]) -> tuple[Any, Any]:
        """Run gliner2's record decoder for all structures together; returns its output and the candidates, on the CPU.
        Without a shared candidate pool, returns (None, `candidates`): gliner2 then decodes structures one by one."""
        settings = self.model.boundary_settings
        if settings.candidate_pool != "shared":
            return None, candidates
        from gliner2.models.boundary.engine import _copy_record_decode_inputs_to_cpu  # noqa: PLC0415
        from gliner2.processing.boundary_preprocessing import pack_record_routes  # noqa: PLC0415

        routes = pack_record_routes([records])
        dense = self.model.record_decoder.forward_groups_dense(core["query_states"], candidates, routes)
        packed: tuple[Any, Any] = _copy_record_decode_inputs_to_cpu(
            dense, candidates, self.item.threshold, settings.record_temperature
        )
        return packed


def _record(number: int, first: int, fields: Structure) -> Any:
    """gliner2's specification of a structure. first: its first query. Each value of the anchor, which is one of the
    fields, makes an instance. The anchor is the first field without choices, or else the first field."""
    from gliner2.processing.records import FieldCardinality, RecordFieldSpec, RecordSpec  # noqa: PLC0415

    cardinality = {"string": FieldCardinality.REQUIRED_ONE, "list": FieldCardinality.ZERO_OR_MORE}
    anchor = next((role for role, field in enumerate(fields.values()) if not field.choices), 0)
    specs = tuple(
        RecordFieldSpec(first + role, name, role, cardinality[field.type], is_anchor=role == anchor, exclusive=True)
        for role, (name, field) in enumerate(fields.items())
    )
    return RecordSpec(number, str(number), "json_structures", "natural", specs, first + anchor)


def _thresholds(item: Item, tasks: Sequence[SchemaTask]) -> NDArray[np.float32]:
    """For each query, the minimum score of its candidates."""
    structures = list(item.structures.values())
    parts: list[Any] = []
    for task in tasks:
        if task.param == "labels":
            parts.append(np.broadcast_to(thresholds_of(item), task.fields))
        elif task.param == "relations":
            parts.append([item.threshold] * task.fields)
        else:
            parts.append([field.threshold for field in structures[task.number].values()])
    return np.concatenate(parts).astype(np.float32)


def _within_paragraphs(text: Prepared, output: Any) -> Any:
    """gliner2's output without the candidates that run over an empty line. The indexes of candidates are [start, end),
    in words; shape (1, queries, candidates, 2)."""
    if (lines := empty_lines_before(text)) is None:
        return output
    candidates = output.candidates
    starts, ends = candidates.indices.unbind(-1)
    before = torch.from_numpy(lines).to(starts.device)
    within = before[starts.clamp(0, len(lines) - 1)] == before[(ends - 1).clamp(0, len(lines) - 1)]
    return replace(output, candidates=replace(candidates, valid_mask=candidates.valid_mask & within))


def _spans(queries: range, grouped: Sequence[Any], abstaining: Sequence[bool]) -> SpanTable:
    """The candidates of the labels, as spans. queries: the queries of the labels."""
    spans = [
        Span(start, end - 1, label, score)
        for label, query in enumerate(queries)
        if not abstaining[query]
        for score, start, end in grouped[query]
    ]
    return SpanTable.of(spans) if spans else NO_SPANS


def _structures(item: Item, instances: Mapping[str, Sequence[Any]], source: _Source) -> list[list[FieldSpans]]:
    """For each structure, its instances with at least one value. Raises LimitExceeded."""
    structures: list[list[FieldSpans]] = []
    for number, fields in enumerate(item.structures.values()):
        converted = [
            [list(_values(instance.get(name), field.choices, source)) for name, field in fields.items()]
            for instance in instances.get(str(number), ())
        ]
        structures.append([values for values in converted if any(values)])
    total = sum(len(spans) for instances in structures for instance in instances for spans in instance)
    if total > item.max_entities:
        raise too_many(item, "max_entities")
    return structures


def _values(given: Any, choices: Sequence[str], source: _Source) -> Iterator[Span]:
    """The values of a field in an instance, each once. given: gliner2's value, a list of values, or None."""
    seen = set()
    if not isinstance(given, list):
        given = [given] if given else []
    for value in given:
        if choices:
            yield Span(0, 0, choices.index(value["text"]), value["confidence"])
        elif (words := source.words(value["start"], value["end"])) and words not in seen:
            seen.add(words)
            yield Span(*words, -1, value["confidence"])
