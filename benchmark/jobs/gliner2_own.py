"""gliner2 itself in process: a checkpoint with random weights, its answers, and its speed at several batch sizes.

Scores are calibrated as in `checkpoints`: a constant, carried by one hidden dimension of the product of spans and
queries, lets texts have `ENTITIES_PER_TEXT` entities on average. Every text has one instance of its entities.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gliner2 import AutoExtractor
from gliner2.configuration import ExtractorConfig
from gliner2.inference.engine import SpanExtractor
from transformers import AutoConfig, PreTrainedTokenizerFast

from benchmark.answers import THRESHOLD
from benchmark.jobs import run_job
from benchmark.jobs.checkpoints import _DEBERTA, CONSTANT, ENTITIES_PER_TEXT, _tokenizer
from benchmark.jobs.gliner_own import measure

Body = dict[str, Any]


def main(what: str, **arguments: Any) -> dict[str, Any]:
    """Do `what`: one of the public functions below."""
    return build(**arguments) if what == "build" else speed(**arguments)


def build(folder: str, tokenizer: str, bodies: list[Body], seed: int = 0) -> dict[str, Any]:
    """Write a checkpoint of the shape of deberta-v3-small into `folder`."""
    warnings.simplefilter("ignore")
    words: PreTrainedTokenizerFast = _tokenizer(Path(tokenizer), Path(folder) / "tokenizer")
    torch.manual_seed(seed)
    encoder = AutoConfig.for_model(**{**_DEBERTA, "vocab_size": len(words)})
    config = ExtractorConfig(model_name="random", counting_layer="count_lstm", max_len=384)
    model = SpanExtractor(config, encoder_config=encoder, tokenizer=words).eval()
    with torch.no_grad():
        out, query = model.span_rep.span_rep_layer.out_project[-1], model.count_embed.projector[-1]
        for layer, value in ((out, 0.0), (query, 1.0)):
            layer.weight[CONSTANT], layer.bias[CONSTANT] = 0.0, value
        model.count_pred[-1].bias[1] = 100.0
        scores = [one for found in _found(model, bodies, 0.0, "allow") for one in found]
        logits = torch.tensor([one["score"] for one in scores]).double().logit().sort(descending=True).values
        out.bias[CONSTANT] = -float(logits[round(ENTITIES_PER_TEXT * len(bodies))])
    model.save_pretrained(folder)
    return {"entities_per_text": sum(map(len, _found(model, bodies))) / len(bodies)}


def speed(model: str, bodies: list[Body], batch_sizes: list[int], seconds: float) -> dict[str, Any]:
    """See `gliner_own.measure`. The bodies may have all tasks."""
    warnings.simplefilter("ignore")
    loaded = AutoExtractor.from_pretrained(model)

    def predict(batch: Sequence[Body]) -> list[dict[str, Any]]:
        return [
            {"entities": _entities(answer, body), "classes": [answer[task]["label"] for task in _classes(body)]}
            for body, answer in zip(batch, extract(loaded, batch), strict=True)
        ]

    return measure(predict, bodies, batch_sizes, seconds)


@torch.inference_mode()
def extract(
    model: Any, bodies: Sequence[Body], threshold: float = THRESHOLD, overlap: str | None = None
) -> list[dict[str, Any]]:
    """gliner2's own answers to bodies of `/v1/extract`, in one batch."""
    answers: list[dict[str, Any]] = model.batch_extract(
        [body["text"] for body in bodies],
        [_schema(model, body) for body in bodies],
        batch_size=len(bodies),
        threshold=threshold,
        include_confidence=True,
        include_spans=True,
        overlap_policy=overlap,
    )
    return answers


def _found(model: Any, bodies: Sequence[Body], *options: Any) -> list[list[dict[str, Any]]]:
    answers = extract(model, bodies, *options)
    return [_entities(answer, body) for answer, body in zip(answers, bodies, strict=True)]


def _schema(model: Any, body: Body) -> Any:
    schema = model.create_schema()
    if body.get("labels"):
        schema.entities(body["labels"])
    if body.get("relations"):
        schema.relations(body["relations"])
    for task, labels in _classes(body).items():
        schema.classification(task, labels)
    for name, fields in body.get("structures", {}).items():
        structure = schema.structure(name)
        for field, kind in fields.items():
            structure.field(field, dtype="str" if kind == "string" else kind)
    return schema


def _classes(body: Body) -> dict[str, list[str]]:
    classes: dict[str, list[str]] = body.get("classifications", {})
    return classes


def _entities(answer: dict[str, Any], body: Body) -> list[dict[str, Any]]:
    """The entities of a text. A full stop that gliner2 adds is cut off."""
    end = len(body["text"])
    return [
        {"start": span["start"], "end": min(span["end"], end), "label": label, "score": span["confidence"]}
        for label, spans in answer.get("entities", {}).items()
        for span in spans
        if span["start"] < end
    ]


if __name__ == "__main__":
    run_job(main)
