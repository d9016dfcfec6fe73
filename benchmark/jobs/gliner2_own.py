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
        scores = [one for answer in _extracted(model, bodies, 0.0, "allow") for one in answer]
        logits = torch.tensor([one["score"] for one in scores]).double().logit().sort(descending=True).values
        out.bias[CONSTANT] = -float(logits[round(ENTITIES_PER_TEXT * len(bodies))])
    model.save_pretrained(folder)
    return {"entities_per_text": sum(map(len, _extracted(model, bodies, THRESHOLD, None))) / len(bodies)}


def speed(model: str, bodies: list[Body], batch_sizes: list[int], seconds: float) -> dict[str, Any]:
    """See `gliner_own.measure`."""
    warnings.simplefilter("ignore")
    loaded = AutoExtractor.from_pretrained(model)

    def predict(batch: Sequence[Body]) -> list[dict[str, Any]]:
        return [{"entities": entities} for entities in _extracted(loaded, batch, THRESHOLD, None)]

    return measure(predict, bodies, batch_sizes, seconds)


@torch.inference_mode()
def _extracted(model: Any, bodies: Sequence[Body], threshold: float, overlap: str | None) -> list[list[dict[str, Any]]]:
    """The entities of each text, in one batch. A full stop that gliner2 adds is cut off."""
    answers = model.batch_extract(
        [body["text"] for body in bodies],
        [{"entities": dict.fromkeys(body["labels"], "")} for body in bodies],
        batch_size=len(bodies),
        threshold=threshold,
        include_confidence=True,
        include_spans=True,
        overlap_policy=overlap,
    )
    return [
        [
            {
                "start": span["start"],
                "end": min(span["end"], len(body["text"])),
                "label": label,
                "score": span["confidence"],
            }
            for label, spans in answer["entities"].items()
            for span in spans
            if span["start"] < len(body["text"])
        ]
        for body, answer in zip(bodies, answers, strict=True)
    ]


if __name__ == "__main__":
    run_job(main)
