"""Calibration: scores become probabilities by a scale and a shift of the logits, which are folded into the weights.

Those of entities are chosen on the development split, the types that are never trained (`data/held_out`) and the
questions (`data/questions`), those of relations on the last two: the development split lacks many relations that its
texts state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER
from torch import Tensor, nn

from training.batching import Collator
from training.evaluate import ASKED, HELD_OUT, Answer, dev_answers, held_out_answers, question_answers
from training.export import save_checkpoint
from training.model import reload_model
from training.sampling import Example

LOWEST = 0.05
"""Answers with lower scores are not collected."""

MISSED_ENTITY, MISSED_RELATION = 2.0, 1.5
"""What a missed answer costs, in wrong ones: at threshold 0.5 somewhat more is found than with equal costs."""

BINS = 10

Scored = tuple[float, bool]
"""The score of an answer, and whether it is right."""


@dataclass(frozen=True, slots=True)
class Correction:
    """Logit to calibrated logit: `scale * logit + shift`."""

    scale: float
    shift: float


def fit(outcomes: Sequence[Scored], miss: float) -> Correction:
    """Platt scaling: the correction under which the answers are most likely, where a right one counts `miss` times."""
    scores = torch.tensor([min(max(score, 1e-6), 1 - 1e-6) for score, _ in outcomes], dtype=torch.float64)
    right = torch.tensor([float(value) for _, value in outcomes], dtype=torch.float64)
    logits = torch.logit(scores)
    costs = torch.where(right > 0, miss, 1.0)
    weights = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(logits * weights[0] + weights[1], right, costs)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return Correction(*weights.tolist())


@torch.no_grad()
def label_states(model: Any, asked: Iterable[Answer]) -> tuple[Tensor, Tensor]:
    """Representations of the entity types (N, D) and relations (M, D) of the prompts."""
    core = model.model.eval()
    collator = Collator(model.data_processor.transformer_tokenizer, model.config)
    types, relations = [], []
    for one in asked:
        batch = collator.batch([Example(one.words, one.types, one.relations)])
        states = core.token_rep_layer(batch.input_ids, batch.attention_mask)[0]
        types.append(core.prompt_rep_layer(states[batch.label_token[0][: len(one.types)]]))
        relations.append(states[batch.relation_token[0][: len(one.relations)]])
    return torch.cat(types), torch.cat(relations)


def direction(states: Tensor) -> Tensor:
    """The vector (D,) whose product with all label representations is nearest to one."""
    states = states.double()
    ridge = 1e-3 * states.square().sum() / states.shape[1] * torch.eye(states.shape[1], dtype=states.dtype)
    vector: Tensor = torch.linalg.solve(states.T @ states + ridge, states.sum(0)).float()
    return vector


@torch.no_grad()
def fold(core: Any, entities: Correction, relations: Correction, types: Tensor, names: Tensor) -> None:
    """Apply both corrections to the weights of a relation model; `types` and `names` as `label_states` returns them."""
    spans = core.span_rep_layer.span_rep_layer.out_project[3]
    change = direction(types) * entities.shift / entities.scale
    spans.bias += change
    # Pairs are made of span representations, and must not see the change.
    first, last = core.pair_rep_layer[0], core.pair_rep_layer[3]
    first.bias -= first.weight @ torch.cat([change, change])
    for layer, correction in ((core.prompt_rep_layer[3], entities), (last, relations)):
        layer.weight *= correction.scale
        layer.bias *= correction.scale
    last.bias += direction(names) * relations.shift


def answers(folder: Path, data: Path) -> list[Answer]:
    """What a checkpoint answers, down to low scores."""
    model = GLiNER.from_pretrained(str(folder), local_files_only=True)
    asked = question_answers(model, LOWEST)
    return [*dev_answers(model, data, LOWEST), *held_out_answers(model, LOWEST, texts=3), *asked]


def scored(asked: Iterable[Answer]) -> tuple[list[Scored], list[Scored]]:
    """The scores of entities, and of relations in held-out texts and questions, and whether they are right."""
    entities: list[Scored] = []
    relations: list[Scored] = []
    for one in asked:
        entities += [(score, key in one.gold) for key, score in one.entities.items()]
        if one.source in (HELD_OUT, ASKED):
            relations += [(score, key in one.gold_related) for key, score in one.related.items()]
    return entities, relations


def calibrate(folder: Path, data: Path, out: Path) -> tuple[Correction, Correction]:
    """Fit both corrections to the answers of a checkpoint and save it with them to `out`."""
    asked = answers(folder, data)
    of_entities, of_relations = scored(asked)
    entities, relations = fit(of_entities, MISSED_ENTITY), fit(of_relations, MISSED_RELATION)
    model = reload_model(folder)
    fold(model.model, entities, relations, *label_states(model, asked))
    save_checkpoint(model, out)
    return entities, relations


def reliability(entities: Sequence[Scored], relations: Sequence[Scored]) -> str:
    """A table: the share of right answers, by their scores."""
    lines = ["| score | entities | right | relations | right |", "|---|---|---|---|---|"]
    for lowest in range(BINS):
        cells = []
        for outcomes in (entities, relations):
            right = [value for score, value in outcomes if min(int(score * BINS), BINS - 1) == lowest]
            cells += [str(len(right)), f"{sum(right) / max(1, len(right)):.2f}"]
        lines.append(f"| {lowest / BINS} to {(lowest + 1) / BINS} | {' | '.join(cells)} |")
    return "\n".join(lines)
