"""The stages of a training: seeds, settings, the stream of batches, and continuing where one was interrupted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from training.batching import Batch, Collator
from training.calibration import calibrate
from training.encoder import fetch_encoder
from training.export import save_checkpoint
from training.loop import Settings, State, train
from training.mixing import Mixer
from training.model import MAX_WIDTH, build_model, reload_model
from training.ontology import load_ontology
from training.records import read_records
from training.refine import refine_all
from training.sampling import Sampler, relation_signatures
from training.templates import DATA, Writer, load_library, parse_lists

REFINEMENT = Settings(
    steps=0, decay=0, stop=0, batch=16, encoder_rate=1.2e-4, head_rate=8e-4, average=300, save_every=100
)
"""What the stages after the first two have in common."""

CROWDED = replace(REFINEMENT, encoder_rate=1e-4, head_rate=6e-4, freeze_words=True, relation_weight=1.5, save_every=400)
"""What the stages since the sixth have in common; their mix has crowded texts."""

STAGES = (
    (20, Settings(steps=5600, decay=5500, stop=800)),
    (21, Settings(steps=3000, decay=1650, stop=3000)),
    (22, replace(REFINEMENT, steps=2200, decay=1800, stop=2200, average=400)),
    (23, replace(REFINEMENT, steps=1300, decay=1250, stop=1300, warmup=50, encoder_rate=8e-5, head_rate=5e-4)),
    (24, replace(REFINEMENT, steps=3200, decay=2800, stop=3200, encoder_rate=1e-4, head_rate=6e-4, freeze_words=True)),
    (25, replace(CROWDED, steps=5200, decay=4600, stop=5200)),
    (26, replace(CROWDED, steps=1600, decay=1500, stop=1600, warmup=40, average=200, encoder_rate=5e-5,
                 head_rate=3e-4)),
    (27, replace(CROWDED, steps=3200, decay=3000, stop=2000)),
    (28, replace(CROWDED, steps=2400, decay=2200, stop=2400, encoder_rate=1.5e-4, head_rate=1e-3, one_way=True)),
    (29, replace(CROWDED, steps=480, decay=430, stop=480, warmup=20, average=100)),
)  # fmt: skip
"""Seed and settings of each stage. A stage starts from the checkpoint of the one before, with a fresh optimiser."""

BUCKET = 12
"""Number of batches drawn together and sorted by length, so that texts of one batch have similar lengths."""


def batches(
    data: Path,
    collator: Collator,
    settings: Settings,
    seed: int,
    *,
    skip: int = 0,
) -> Iterator[Batch]:
    """Endless training batches behind the first `skip`."""
    rng = random.Random(seed)
    ontology = load_ontology(data / "labels.json")
    library = load_library(ontology)
    writer = Writer(library, ontology)
    places = parse_lists((DATA / "gazetteer.txt").read_text(encoding="utf-8").splitlines())
    records = refine_all(read_records(data / "train.jsonl.gz", MAX_WIDTH), places)
    written = [writer.write(template, rng) for template in library.templates]
    sampler = Sampler(ontology, relation_signatures([*records, *written], ontology), rng, one_way=settings.one_way)
    mixer = Mixer(records, library, writer, rng)
    while True:
        drawn = [sampler.example(mixer.pack(settings.max_words)) for _ in range(settings.batch * BUCKET)]
        drawn.sort(key=lambda example: len(example.words) + 3 * (len(example.labels) + len(example.relations)))
        groups = [drawn[i : i + settings.batch] for i in range(0, len(drawn), settings.batch)]
        rng.shuffle(groups)
        for group in groups[skip:]:
            yield collator.batch(group)
        skip = max(0, skip - len(groups))


def run_stages(data: Path, out: Path, work: Path, start: Path | None = None, trial: int | None = None) -> None:
    """Train in `work`, continuing from its checkpoints, and write the calibrated weights to `out`.

    start: a checkpoint to continue from with the last stage alone. trial: stop every stage after so many steps.
    """
    work.mkdir(parents=True, exist_ok=True)
    encoder = start or fetch_encoder(work)
    trained = work / "uncalibrated"
    states: list[Path] = []
    for number, (seed, settings) in enumerate(STAGES):
        if start and number < len(STAGES) - 1:
            continue
        stage = replace(settings, stop=min(settings.stop, trial or settings.stop))
        states.append(work / f"stage-{number}.pt")
        state = State(states[-1], stage)
        if state.step == stage.stop:
            continue
        torch.manual_seed(seed)
        before = start or (trained if number else None)
        model = reload_model(before) if before else build_model(encoder)
        collator = Collator(model.data_processor.transformer_tokenizer, model.config)
        stream = batches(data, collator, settings, seed, skip=state.step)
        save = partial(save_checkpoint, folder=trained)
        train(model, stream, stage, save, work / "train.log", state)
    calibrate(trained, data, out)
    for path in states:
        path.unlink()
