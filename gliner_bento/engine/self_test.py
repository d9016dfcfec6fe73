"""The self-test at start: an engine's scores of three short texts against those of gliner's own code.

The reference is gliner's public interface, text by text. So the test detects an upgrade of torch, transformers,
tokenizers or gliner that changes words, tokens, scores or relations. The engine gets the texts in one batch. With
thresholds of 0, all scores are compared. Uses engines and gliner's models only through their interfaces.

An upgrade that breaks gliner's own code in the same way passes, and so do damaged weights. So `missed_entities` also
looks at the scores of entities that any model of general entities finds.
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

from gliner_bento.engine.base import Engine, Prepared
from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Span
from gliner_bento.engine.families import EncoderModel
from gliner_bento.engine.layers.threads import torch_threads
from gliner_bento.engine.results import PassResult
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.classifications import Classification
from gliner_bento.tasks.extraction import ExtractionItem as Item

logger = logging.getLogger(__name__)

CharSpan = tuple[int, int]
"""[start, end), in characters."""
Key = tuple[str] | tuple[CharSpan, str] | tuple[CharSpan, CharSpan, str]
"""What has a score: (label) of a text, (span, label) of an entity, or (head, tail, name) of a relation."""

# (text, labels, relations). The texts are short because gliner scores the relations of every pair of spans. They differ
# in length and number of labels to show whether texts of a batch affect each other.
_TEXTS: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    ("Ada Lovelace lived in London", ("person", "city"), ("lived in", "works for")),
    ("Paris", ("city",), ("capital of",)),
    ("Microsoft hired Zoë", ("organization", "person"), ("works for",)),
)


_OBVIOUS: Mapping[str, str] = {
    "Ada Lovelace": "person",
    "London": "city",
    "Paris": "city",
    "Microsoft": "organization",
    "Zoë": "person",
}
"""Entities of the texts."""
_LOW_SCORE = 0.3
_THREADS = 1  # enough for short texts, and more may take seconds to start on a busy machine


class Tolerance(NamedTuple):
    """Limits for the differences of scores from 0 to 1: for the largest, and for the root mean square of all."""

    largest: float
    rms: float


TOLERANCES: Mapping[str, Tolerance] = {
    "float32": Tolerance(1e-4, 1e-4),
    "float16": Tolerance(0.05, 0.012),
    "bfloat16": Tolerance(0.3, 0.07),
    "int8": Tolerance(1.0, 0.2),
}
"""By dtype. In the contract tests, whose random weights amplify rounding, correct forward passes differ by (7e-6, 2e-6)
in float32, (0.026, 0.006) in float16, (0.17, 0.036) in bfloat16 and (0.7, 0.12) in int8. int8 is compared with
unquantized weights."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one text. spans: the entities that overlap resolution kept; only these have relations."""

    scores: Mapping[Key, float]
    spans: frozenset[CharSpan]


@dataclass(frozen=True, slots=True)
class Difference:
    """The engine's score and the reference's for one key."""

    text: str
    key: Key
    engine: float
    reference: float

    @property
    def size(self) -> float:
        """From 0 to 1; infinite if a score is not a number."""
        size = abs(self.engine - self.reference)
        return inf if isnan(size) else size

    def __str__(self) -> str:
        *spans, name = self.key
        words = " → ".join(repr(self.text[start:end]) for start, end in spans or [(0, len(self.text))])
        return f"{name!r} of {words} has score {self.engine:.5f}, the reference is {self.reference:.5f}"


def self_test(engine: Engine, model: Any) -> str | None:
    """How the engine differs from gliner's `model` with the same weights; None if the test passed.

    An exception in one of them counts as a difference.
    """
    # For an int8 ONNX checkpoint, gliner runs the same file, so the tolerance of float32 applies.
    dtype = "float32" if model.is_runtime_model and engine.info.dtype == "int8" else engine.info.dtype
    try:
        with torch_threads(_THREADS):
            return exceeded(list(_differences(engine, model, _items(engine.info))), TOLERANCES[dtype])
    except Exception as error:
        logger.debug("the self-test raised an exception", exc_info=True)
        lines = str(error).splitlines() or [""]
        return f"the self-test raised {type(error).__name__}: {lines[0]}"


def missed_entities(engine: Engine) -> str | None:
    """A warning if the engine does not find most of the obvious entities of the texts; else None, also for a model
    without entities. An entity is found if its label has the highest score of the text's labels, and no low one.

    A warning does not say what is wrong: a model for another language or domain may miss them, too."""
    if "entities" not in engine.info.tasks:
        return None
    missed, number = [], 0
    items = [replace(item, relations={}) for item in _items(engine.info)]
    try:
        with torch_threads(_THREADS):
            results = _results(engine, items)
    except Exception as error:  # a warning never keeps a model from being served
        logger.debug("the search for obvious entities raised an exception", exc_info=True)
        return f"obvious entities could not be looked for: {type(error).__name__}"
    for item, (_, result) in zip(items, results, strict=True):
        scores = engine_scores(result).scores
        for name, label in _OBVIOUS.items():
            start = item.text.find(name)
            if start >= 0 and label in item.labels:
                of_labels = {other: scores.get(((start, start + len(name)), other), 0.0) for other in item.labels}
                score = of_labels.pop(label)
                number += 1
                if score < _LOW_SCORE or score <= max(of_labels.values(), default=0.0):
                    missed.append(f"{name!r} as {label} ({score:.2f})")
    if 2 * len(missed) <= number:
        return None
    return (
        f"obvious entities score low: {', '.join(missed)}; the weights may be damaged, or an upgrade may have broken "
        "the model; expected of a model that is made for other languages or labels"
    )


def exceeded(differences: Sequence[Difference], tolerance: Tolerance) -> str | None:
    """A message if the differences exceed the tolerance, else None."""
    largest = max(differences, key=lambda difference: difference.size)
    rms = (sum(difference.size**2 for difference in differences) / len(differences)) ** 0.5
    if largest.size <= tolerance.largest and rms <= tolerance.rms:
        return None
    return (
        f"{largest}; over {len(differences)} scores the largest difference is {largest.size:.2g} (tolerance "
        f"{tolerance.largest:g}), the root mean square {rms:.2g} (tolerance {tolerance.rms:g})"
    )


def cannot_reproduce_message(failure: str) -> str:
    """The message for the operator if no forward pass gives gliner's answers."""
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
    # GLiNER2 models append a full stop to a text without one. Relations with an appended full stop are not served.
    stop = "." if "structures" in info.tasks else ""  # only GLiNER2 models have structures
    return [
        unfiltered_item(info, text + stop, labels[:limit], relations[:limit] if info.supports_relations else ())
        for text, labels, relations in _TEXTS
    ]


def unfiltered_item(info: ModelInfo, text: str, labels: Sequence[str], relations: Sequence[str]) -> Item:
    """An item whose result has all scores: thresholds are 0, and overlap resolution drops as little as possible."""
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
    for item, (prepared, result) in zip(items, _results(engine, items), strict=True):
        single_words = frozenset(prepared.payload.words) if item.labels else frozenset()
        if not item.labels:
            yield from _class_differences(model, item, result)
        elif isinstance(model, GLiNER2Span):
            yield from _schema_differences(model, item, result, single_words)
        else:
            yield from _compared(item, engine_scores(result), reference_scores(model, item), single_words)


def _results(engine: Engine, items: Sequence[Item]) -> list[tuple[Prepared, Any]]:
    """The prepared items with their results. Items run as passes, because the results of passes include suppressed
    entities."""
    passes = [replace(engine.prepare(item), is_pass=True) for item in items]
    return list(zip(passes, engine.decode(engine.forward(engine.collate(passes), 1)), strict=True))


def _compared(item: Item, ours: Scores, reference: Scores, single_words: frozenset[CharSpan]) -> Iterator[Difference]:
    for key in _comparable(ours, reference, single_words):
        yield Difference(item.text, key, ours.scores.get(key, 0.0), reference.scores.get(key, 0.0))


def _schema_differences(
    model: GLiNER2Span, item: Item, result: PassResult, single_words: frozenset[CharSpan]
) -> Iterator[Difference]:
    """Compares the best score of each relation, but not its head and tail: of two spans with nearly equal scores,
    either may be chosen."""
    span_scores, text_scores = model.scores(item)
    # Copied for mypy: the key type of a mapping is invariant.
    reference = Scores({key: score for key, score in span_scores.items()}, frozenset(span for span, _ in span_scores))
    yield from _compared(item, engine_scores(replace(result, relations=())), reference, single_words)
    scores = dict(zip(item.labels, result.parts["classifications"]["all"], strict=True))
    for relation in result.relations:
        scores[relation.relation] = max(relation.score, scores.get(relation.relation, 0.0))
    for name in (*item.labels, *item.relations):
        yield Difference(item.text, (name,), scores.get(name, 0.0), text_scores.get(name, 0.0))


def _class_differences(model: Any, item: Item, result: PassResult) -> Iterator[Difference]:
    """model: a `GLiClass`."""
    for name, classification in item.classifications.items():
        (reference,) = model.pipeline([item.text], list(classification.labels.values()), threshold=0.0)
        for label, score, theirs in zip(
            classification.labels, result.parts["classifications"][name], reference, strict=True
        ):
            yield Difference(item.text, (label,), score, theirs["score"])


def _comparable(ours: Scores, reference: Scores, single_words: frozenset[CharSpan]) -> Iterator[Key]:
    """The keys that are compared. A score that one side leaves out counts as 0.

    If two scores are nearly equal, overlap resolution may keep different spans. So an entity is compared if the
    reference has it or if it is a single word, which is never dropped; a relation, if both sides kept head and tail.
    """
    spans = ours.spans & reference.spans
    for key in ours.scores.keys() | reference.scores.keys():
        if len(key) == 2:
            if key in reference.scores or key[0] in single_words:
                yield key
        elif key[0] in spans and key[1] in spans:
            yield key


def engine_scores(result: PassResult) -> Scores:
    """The scores in the engine's result for a text."""
    spans = [(entity.start, entity.end) for entity in result.entities]
    scores: dict[Key, float] = {}
    for entity in (*result.entities, *result.suppressed):
        key = (entity.start, entity.end), entity.label
        scores[key] = max(entity.score, scores.get(key, 0.0))  # a span may occur with and without an appended full stop
    scores |= {(spans[pair.head], spans[pair.tail], pair.relation): pair.score for pair in result.relations}
    return Scores(scores, frozenset(spans))


def reference_scores(model: Any, item: Item) -> Scores:
    """The scores that gliner's model gives a text. Leaves out relations of a span with itself: they are not served."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entities, relations = _inferred(model, item)
    spans = [(entity["start"], entity["end"]) for entity in entities]
    scores: dict[Key, float] = {
        (span, entity["label"]): entity["score"] for span, entity in zip(spans, entities, strict=True)
    }
    for relation in reversed(relations):  # in reverse, so that of equal relations the first one counts
        head, tail = spans[relation["head"]["entity_idx"]], spans[relation["tail"]["entity_idx"]]
        if head != tail:
            scores[head, tail, relation["relation"]] = relation["score"]
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
    # The model's label decoder does not run: its labels are not served, and gliner's code for it fails without spans.
    prepared = model.prepare_batch([item.text], list(item.labels))
    batch = model.collate_batch(prepared["input_x"], prepared["entity_types"])
    output = EncoderModel.run_batch(model, batch, threshold=0.0)
    decoded = EncoderModel.decode_batch(model, output, batch, **options)
    mapped = EncoderModel.map_entities_to_text(
        model,
        decoded,
        *(prepared[name] for name in ("valid_texts", "valid_to_orig_idx", "start_token_map", "end_token_map")),
        num_original=1,
    )
    return mapped[0], []
