"""The forward of checkpoints that are ONNX graphs, run by gliner's own ONNX Runtime model.

A graph gives scores alone, so it answers for the families whose entities come from one table of scores. Of the others
gliner's export leaves out what the answer is made of: the threshold and the relations are those of the export's example
(relations), the spans' own scores are missing (`represent_spans`), a generative decoder cannot be exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gliner import model as families

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.collate import Batch, Collator
from gliner_bento.engine.decode import Span, spans_above, tag_scores, tagged_spans
from gliner_bento.engine.forward.findings import Findings, displaced, entities
from gliner_bento.engine.graph import Graph
from gliner_bento.engine.loading import ModelError

_SPANS = (families.UniEncoderSpanGLiNER, families.BiEncoderSpanGLiNER)
_TAGS = (families.UniEncoderTokenGLiNER, families.BiEncoderTokenGLiNER)
_BI_ENCODERS = (families.BiEncoderSpanGLiNER, families.BiEncoderTokenGLiNER)

Part = dict[str, torch.Tensor]
"""A graph's inputs for one run."""


class Parts(tuple[Part, ...]):
    """The runs of a batch, one after the other, for all of its rows in order."""

    __slots__ = ()

    def to(self, _: torch.device) -> Parts:
        """The same: the runtime takes its inputs from the CPU, wherever it computes."""
        return self


class OnnxForward:
    """Over gliner's `model`, whose own `model` is a `Graph`. Raises ModelError for a family that is not served so.

    packs: rows run one by one, without padding, because they may not meet: a bi-encoder's graph has one set of labels,
        dynamic quantization takes its scales from all rows at once, and a few configurations let padding into the
        scores (a mean or a last word taken over padding too). Else they run padded.
    name: how it computes, in words.
    """

    def __init__(self, model: Any) -> None:
        if type(model) not in (*_SPANS, *_TAGS) or (isinstance(model, _TAGS) and model.config.represent_spans):
            raise ModelError(
                f"runtime onnxruntime: a graph of a {type(model).__name__} lacks what its answers are made of"
            )
        self._graph: Graph = model.model
        self._find = spans_above if isinstance(model, _SPANS) else _tagged_spans
        self._pad = Collator.of(model)
        self.packs = (
            isinstance(model, _BI_ENCODERS) or self._graph.facts.quantizes_batches or lets_padding_in(model.config)
        )
        self.name = "onnxruntime, row by row" if self.packs else "onnxruntime"

    encoded_labels = 0

    def collate(self, items: Sequence[Prepared]) -> Batch:
        """Inputs are `Parts`."""
        rows = tuple(item for item in items if item.tokens)
        parts: list[Sequence[Prepared]] = [[row] for row in rows] if self.packs else [rows] if rows else []
        return Batch(tuple(items), rows, Parts(self._part(part) for part in parts))

    def __call__(self, inputs: Parts, rows: Sequence[Prepared]) -> list[Findings]:
        """What each row holds."""
        findings: list[Findings] = []
        for part in inputs:
            logits = self._graph.logits(part)
            mates = rows[len(findings) : len(findings) + len(logits)]
            found = self._find(logits, mates)
            for row, spans in zip(mates, found, strict=True):
                standing = entities(row, spans)
                findings.append(Findings(standing, displaced=displaced(row, spans, standing)))
        return findings

    def _part(self, rows: Sequence[Prepared]) -> Part:
        inputs = self._pad(rows).inputs
        if "labels_gather_indices" in inputs:  # the graph knows none: its labels are one row's, in that row's order
            order = inputs["labels_gather_indices"][0]
            inputs |= {name: inputs[name][order] for name in ("labels_input_ids", "labels_attention_mask")}
        return {name: inputs[name] for name in self._graph.input_names}


def lets_padding_in(config: Any) -> bool:
    """Whether a row's scores depend on how far it is padded, in gliner's own forward."""
    return bool(config.fuse_layers or config.span_encoder_config or config.span_mode in {"markerV1", "markerV2"})


def _tagged_spans(logits: torch.Tensor, rows: Sequence[Prepared]) -> list[list[Span]]:
    scores = tag_scores(logits, rows)
    return [tagged_spans(scored, row.item.threshold) for row, scored in zip(rows, scores, strict=True)]
