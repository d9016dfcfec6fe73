"""Why relations are wrong: short trainings from one checkpoint that differ in one thing, scored on the probes.

`python -m training ablate --data DIR ARM ...` prints one row of training/relations.md per arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER

import training.mixing
from training.batching import Batch, Collator
from training.evaluate import Counts, evaluate, evaluate_held_out
from training.export import save_checkpoint
from training.loop import Settings, train
from training.model import reload_model
from training.probing import answer
from training.questions import PROBES, read_questions
from training.sampling import Sampler
from training.stages import batches

SETTINGS = Settings(
    steps=120, decay=110, stop=120, batch=16, warmup=10, average=40, average_decay=0.95, save_every=10**6
)
ARMS = ("present", "old data", "old data, frequent negatives", "frames, frozen encoder", "frames", "frames, no denials")


def stream(arm: str, data: Path, collator: Collator, seed: int) -> Iterator[Batch]:
    """The training batches of an arm."""
    weights = training.mixing.WEIGHTS
    if arm.startswith("old data"):
        weights.update(templates=weights["templates"] + weights["frames"], frames=0.0)
    if arm == "old data":
        Sampler._often = _uniform  # type: ignore[method-assign]
    keep = None if arm != "frames, no denials" else _states
    return batches(data, collator, SETTINGS, seed, keep=keep)


def _uniform(self: Sampler, names: Sequence[str], count: int) -> list[str]:
    return self._rng.sample(list(names), min(len(names), count))


def _states(template: Any) -> bool:
    return not template.denied


def scores(folder: Path, data: Path) -> str:
    """A row: relation precision, recall, F1 of the probes; relation F1 held out and dev; entity F1 of the three."""
    model = GLiNER.from_pretrained(str(folder), local_files_only=True)
    entities, relations = Counts(), Counts()
    for one in (answer(model, probe) for probe in read_questions(PROBES)):
        entities.add(one.entities, one.probe.entities)
        if one.probe.relations:
            relations.add(one.related, one.probe.related)
    unseen = evaluate_held_out(model, texts=2)["held_out"]
    dev = evaluate(folder, data)["all"]
    precision, recall = relations.right / max(1, relations.predicted), relations.right / max(1, relations.gold)
    values = (precision, recall, relations.f1, unseen[1].f1, dev[1].f1, entities.f1, unseen[0].f1, dev[0].f1)
    return " | ".join(f"{value:.2f}" for value in values)


def compare(arms: Sequence[str], start: Path, data: Path, work: Path) -> None:
    """Train and score the arms, and print a row for each."""
    for arm in arms:
        folder = start
        if arm != "present":
            folder = work / arm.replace(" ", "-").replace(",", "")
            folder.mkdir(parents=True, exist_ok=True)
            torch.manual_seed(5)
            model = reload_model(start)
            if arm.endswith("frozen encoder"):
                for parameter in model.model.token_rep_layer.bert_layer.parameters():
                    parameter.requires_grad_(False)
            collator = Collator(model.data_processor.transformer_tokenizer, model.config)
            save = partial(save_checkpoint, folder=folder)
            train(model, stream(arm, data, collator, 5), SETTINGS, save, folder / "train.log")
        print(f"| {arm} | {scores(folder, data)} |", flush=True)
