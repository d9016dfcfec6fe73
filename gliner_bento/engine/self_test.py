"""The self-test at start: an engine's scores of three short texts against those of gliner's own code.

The reference is gliner's public interface, text by text, so that an upgrade of torch, transformers, tokenizers or
gliner that changes words, tokens, scores or relations is found. The engine gets the texts in one batch. All scores are
compared, not only those of answers: the thresholds are 0. Knows engines and gliner's models, not how either computes.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import inf, isnan
from typing import Any, NamedTuple

import torch

from gliner_bento.engine.base import Engine
from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Span
from gliner_bento.engine.families import EncoderModel
from gliner_bento.engine.results import PassResult
from gliner_bento.tasks.classifications import Classification
from gliner_bento.types import Item, ModelInfo

logger = logging.getLogger(__name__)

CharSpan = tuple[int, int]
"""[start, end), in characters."""
Key = tuple[str] | tuple[CharSpan, str] | tuple[CharSpan, CharSpan, str]
"""The label of a text; the span and label of an entity; head, tail and name of a relation."""

# (text, labels, relations). Few words: gliner scores the relations of every pair of spans. Different lengths and
# numbers of labels: the texts must not affect each other.
_TEXTS: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    ("Ada Lovelace lived in London", ("person", "city"), ("lived in", "works for")),
    ("Paris", ("city",), ("capital of",)),
    ("Microsoft hired Zoë", ("organization", "person"), ("works for",)),
)


class Tolerance(NamedTuple):
    """Limits of the differences between two scores of 0 to 1: of the largest, and of their root mean square."""

    largest: float
    rms: float


TOLERANCES: Mapping[str, Tolerance] = {
    "float32": Tolerance(1e-4, 1e-4),
    "float16": Tolerance(0.05, 0.012),
    "bfloat16": Tolerance(0.3, 0.07),
    "int8": Tolerance(1.0, 0.2),
}
"""By dtype. Over every family of the contract tests, whose random weights amplify rounding, a correct forward pass
reaches 7e-6 and 2e-6, 0.026 and 0.006, 0.17 and 0.036, 0.7 and 0.12. int8 is compared with unquantized weights."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one text. spans: of the entities that overlap resolution kept; relations are between those."""

    scores: Mapping[Key, float]
    spans: frozenset[CharSpan]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two scores of the same entity or relation."""

    text: str
    key: Key
    engine: float
    reference: float

    @property
    def size(self) -> float:
        """From 0 to 1; infinite if one of them is not a number."""
        size = abs(self.engine - self.reference)
        return inf if isnan(size) else size

    def __str__(self) -> str:
        *spans, name = self.key
        words = " → ".join(repr(self.text[start:end]) for start, end in spans or [(0, len(self.text))])
        return f"{name!r} of {words} has score {self.engine:.5f}, the package's is {self.reference:.5f}"


def self_test(engine: Engine, model: Any) -> str | None:
    """The largest difference between the engine and gliner's `model` with the same weights; None if the test passed.

    An exception, of either, counts as a difference.
    """
    # A quantized ONNX file runs on both sides.
    dtype = "float32" if model.is_runtime_model and engine.info.dtype == "int8" else engine.info.dtype
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # enough for short texts; waiting for more would take seconds on a busy machine
    try:
        return exceeded(list(_differences(engine, model, _items(engine.info))), TOLERANCES[dtype])
    except Exception as error:
        logger.debug("the self-test raised an exception", exc_info=True)
        return f"the self-test raised {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    finally:
        torch.set_num_threads(threads)


def exceeded(differences: Sequence[Difference], tolerance: Tolerance) -> str | None:
    """How the differences exceed the tolerance; None if they do not."""
    largest = max(differences, key=lambda difference: difference.size)
    rms = (sum(difference.size**2 for difference in differences) / len(differences)) ** 0.5
    if largest.size <= tolerance.largest and rms <= tolerance.rms:
        return None
    return (
        f"{largest}; over {len(differences)} scores the largest difference is {largest.size:.2g} (tolerance "
        f"{tolerance.largest:g}), the root mean square {rms:.2g} (tolerance {tolerance.rms:g})"
    )


def cannot_reproduce(failure: str) -> str:
    """The operator's message where no forward pass gives gliner's answers."""
    return (
        f"gliner's answers cannot be reproduced with {versions()}: {failure}. Install the versions of "
        "requirements.lock, try dtype=float32, or serve unverified answers with self_test=false"
    )


def versions() -> str:
    """Versions of the libraries that compute the answers."""
    names = ["torch", "transformers", "tokenizers", "gliner", *(["gliner2"] if "gliner2" in sys.modules else [])]
    return ", ".join(f"{name} {version(name)}" for name in names)


def _items(info: ModelInfo) -> list[Item]:
    """The texts, with labels that fit one pass."""
    limit = info.max_labels_per_pass
    # GLiNER2 models read a full stop behind a text without one, and may relate it: such relations are not served.
    stop = "." if "structures" in info.tasks else ""
    return [
        all_scores(info, text + stop, labels[:limit], relations[:limit] if info.supports_relations else ())
        for text, labels, relations in _TEXTS
    ]


def all_scores(info: ModelInfo, text: str, labels: Sequence[str], relations: Sequence[str]) -> Item:
    """An item whose result has all scores: thresholds of 0, and as few overlaps as possible resolved."""
    named = {label: label for label in labels}
    classes = {"all": Classification(named, multi_label=True)} if "classifications" in info.tasks else {}
    return Item(
        text,
        named if "entities" in info.tasks else {},
        {relation: relation for relation in relations},
        threshold=0.0,
        relation_threshold=0.0,
        flat_ner=False,
        multi_label=True,
        long_text="truncate",
        classifications=classes,
    )


def _differences(engine: Engine, model: Any, items: Sequence[Item]) -> Iterator[Difference]:
    # As passes, whose results have the suppressed entities too.
    prepared = [replace(engine.prepare(item), is_pass=True) for item in items]
    results = engine.decode(engine.forward(engine.collate(prepared), 1))
    for item, one, result in zip(items, prepared, results, strict=True):
        words = frozenset(one.payload.words) if item.labels else frozenset()
        if not item.labels:
            yield from _class_differences(model, item, result)
        elif isinstance(model, GLiNER2Span):
            yield from _schema_differences(model, item, result, words)
        else:
            yield from _compared(item, engine_scores(result), reference_scores(model, item), words)


def _compared(item: Item, ours: Scores, reference: Scores, words: frozenset[CharSpan]) -> Iterator[Difference]:
    for key in _comparable(ours, reference, words):
        yield Difference(item.text, key, ours.scores.get(key, 0.0), reference.scores.get(key, 0.0))


def _schema_differences(
    model: GLiNER2Span, item: Item, result: PassResult, words: frozenset[CharSpan]
) -> Iterator[Difference]:
    """Compares the best score of each relation, not its ends: of two spans with nearly equal scores, either may be an
    end."""
    of_spans, of_text = model.scores(item)
    reference = Scores({key: score for key, score in of_spans.items()}, frozenset(span for span, _ in of_spans))
    yield from _compared(item, engine_scores(replace(result, relations=())), reference, words)
    scores = dict(zip(item.labels, result.classes["all"], strict=True))
    for one in result.relations:
        scores[one.relation] = max(one.score, scores.get(one.relation, 0.0))
    for name in (*item.labels, *item.relations):
        yield Difference(item.text, (name,), scores.get(name, 0.0), of_text.get(name, 0.0))


def _class_differences(model: Any, item: Item, result: PassResult) -> Iterator[Difference]:
    """model: a `GLiClass`."""
    for name, one in item.classifications.items():
        ((*reference,),) = model.pipeline([item.text], list(one.labels.values()), threshold=0.0)
        for label, score, theirs in zip(one.labels, result.classes[name], reference, strict=True):
            yield Difference(item.text, (label,), score, theirs["score"])


def _comparable(ours: Scores, reference: Scores, words: frozenset[CharSpan]) -> Iterator[Key]:
    """Keys that both sides must have, or leave out because their score rounds to 0.

    Overlap resolution may keep different spans if two scores are nearly equal. It drops none of a single word, and on
    our side suppressed entities are added.
    """
    spans = ours.spans & reference.spans
    for key in ours.scores.keys() | reference.scores.keys():
        if len(key) == 2:
            if key in reference.scores or key[0] in words:
                yield key
        elif key[0] in spans and key[1] in spans:
            yield key


def engine_scores(result: PassResult) -> Scores:
    """The scores in the engine's result for a text."""
    spans = [(entity.start, entity.end) for entity in result.entities]
    scores: dict[Key, float] = {}
    for entity in (*result.entities, *result.suppressed):
        key = (entity.start, entity.end), entity.label
        scores[key] = max(entity.score, scores.get(key, 0.0))  # GLiNER2: with and without a full stop behind the text
    scores |= {(spans[one.head], spans[one.tail], one.relation): one.score for one in result.relations}
    return Scores(scores, frozenset(spans))


def reference_scores(model: Any, item: Item) -> Scores:
    """The scores that gliner's model gives a text. Relations of a span with itself are not served, and left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entities, relations = _inferred(model, item)
    spans = [(entity["start"], entity["end"]) for entity in entities]
    scores: dict[Key, float] = {
        (span, entity["label"]): entity["score"] for span, entity in zip(spans, entities, strict=True)
    }
    for one in reversed(relations):  # of a repeated relation, the first counts
        head, tail = spans[one["head"]["entity_idx"]], spans[one["tail"]["entity_idx"]]
        if head != tail:
            scores[head, tail, one["relation"]] = one["score"]
    return Scores(scores, frozenset(spans))


def _inferred(model: Any, item: Item) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """gliner's entities and relations, with thresholds of 0."""
    options = {"threshold": 0.0, "flat_ner": False, "multi_label": True}
    if hasattr(model, "predict_relations"):
        entities, relations = model.inference(
            [item.text], list(item.labels), list(item.relations), relation_threshold=0.0, **options
        )
        return entities[0], relations[0]
    if not hasattr(model, "generate_labels"):
        return model.inference([item.text], list(item.labels), **options)[0], []
    # With a label decoder: without its generated labels, which are not served, and which fail in a text without spans.
    prepared = model.prepare_batch([item.text], list(item.labels))
    batch = model.collate_batch(prepared["input_x"], prepared["entity_types"])
    output = EncoderModel.run_batch(model, batch, threshold=0.0)
    decoded = EncoderModel.decode_batch(model, output, batch, **options)
    mapped = EncoderModel.map_entities_to_text(
        model,
        decoded,
        *(prepared[name] for name in ("valid_texts", "valid_to_orig_idx", "start_token_map", "end_token_map")),
        1,
    )
    return mapped[0], []
