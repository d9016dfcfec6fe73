"""The training loop: loss, optimiser, schedule, averaging and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.batching import Batch
from training.model import FastForward

POSITIVE_WEIGHT = 2.0
ENCODER = "token_rep_layer.bert_layer.model"
WORDS = f"{ENCODER}.embeddings.word_embeddings"
"""The encoder's word embeddings: 42 % of the weights."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a stage of the training, except data and seed.

    The learning rate falls linearly to nothing over the last `decay` of `steps`; the stage ends after step `stop`.
    """

    steps: int
    decay: int
    stop: int
    batch: int = 24
    max_words: int = 110
    encoder_rate: float = 1.5e-4
    head_rate: float = 1e-3
    warmup: int = 100
    clip: float = 1.0
    average: int = 600
    average_decay: float = 0.99
    save_every: int = 400
    freeze_words: bool = False
    """Leave the encoder's word embeddings as they are, which saves work."""
    freeze_layers: int = 0
    """Leave so many of the encoder's lowest layers, and all embeddings, as they are."""
    relation_weight: float = 2.0
    one_way: bool = False
    """Ask for one of two converse relations only (`ontology.CONVERSES` are left out)."""


def binary_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Summed binary cross-entropy in fp32 over the targets that are not -1."""
    valid = targets >= 0
    picked, expected = logits[valid].float(), targets[valid].float()
    weight = torch.where(expected > 0, POSITIVE_WEIGHT, 1.0)
    return F.binary_cross_entropy_with_logits(picked, expected, weight, reduction="sum")


def losses(forward: FastForward, batch: Batch) -> tuple[Tensor, Tensor]:
    """Entity and relation loss per text."""
    entities, relations = forward(batch)
    texts = len(batch.input_ids)
    return binary_loss(entities, batch.targets) / texts, binary_loss(relations, batch.pair_targets) / texts


def make_optimizer(core: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW with a low rate for the pre-trained encoder, a high one for the new layers, no decay on vectors."""
    encoder = {id(p) for p in core.token_rep_layer.bert_layer.parameters()}  # type: ignore[union-attr]
    groups = []
    for is_encoder, rate in ((True, settings.encoder_rate), (False, settings.head_rate)):
        chosen = [p for p in core.parameters() if (id(p) in encoder) == is_encoder and p.requires_grad]
        for matrix in (True, False):
            params = [p for p in chosen if (p.ndim > 1) == matrix]
            groups.append({"params": params, "lr": rate, "weight_decay": 0.01 if matrix else 0.0})
    return torch.optim.AdamW(groups, fused=True)


def rate_factor(step: int, settings: Settings) -> float:
    """Linear warm-up, then the full rate, then linear decay to zero at the last step."""
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    return max(0.0, min(1.0, (settings.steps - step) / settings.decay))


class Average:
    """An exponential moving average of the weights over the last part of a stage."""

    def __init__(self, core: nn.Module, decay: float, weights: list[Tensor] | None = None) -> None:
        self._decay = decay
        self.weights = weights or [p.detach().clone() for p in core.parameters()]

    @torch.no_grad()
    def update(self, core: nn.Module) -> None:
        """Move the average towards the current weights."""
        torch._foreach_lerp_(self.weights, [p.detach() for p in core.parameters()], 1 - self._decay)

    @torch.no_grad()
    def swap(self, core: nn.Module) -> None:
        """Exchange the model's weights with the average (call twice to undo)."""
        for mine, theirs in zip(self.weights, core.parameters(), strict=True):
            kept = theirs.detach().clone()
            theirs.copy_(mine)
            mine.copy_(kept)


class State:
    """What a stage needs to continue where it was interrupted, in one file."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path = path
        self._settings = asdict(settings)
        self._held: dict[str, Any] | None = torch.load(path, weights_only=True) if path.exists() else None
        if self._held and self._held["settings"] != self._settings:
            raise SystemExit(f"{path} is of a training with other settings: delete it, or restore them")
        self.step = int(self._held["step"]) if self._held else 0
        """Steps that were done before."""

    def restore(self, core: nn.Module, optimizer: Any, schedule: Any, settings: Settings) -> Average | None:
        """Load everything, torch's random state last; returns the average."""
        if not self._held:
            return None
        core.load_state_dict(self._held["core"])
        optimizer.load_state_dict(self._held["optimizer"])
        schedule.load_state_dict(self._held["schedule"])
        average = Average(core, settings.average_decay, self._held["average"]) if self._held["average"] else None
        torch.set_rng_state(self._held["random"])
        self._held = None
        return average

    def save(self, step: int, core: nn.Module, optimizer: Any, schedule: Any, average: Average | None) -> None:
        """Write the file, or keep the one before if that fails."""
        held = {
            "settings": self._settings,
            "step": step,
            "core": core.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "average": average.weights if average else None,
            "random": torch.get_rng_state(),
        }
        scratch = self._path.with_suffix(".tmp")
        torch.save(held, scratch)
        scratch.replace(self._path)


def train(
    model: Any,
    batches: Iterator[Batch],
    settings: Settings,
    save: Callable[[Any], None],
    log: Path,
    state: State | None = None,
) -> None:
    """Run all steps that `state` lacks; `batches` begins behind those.

    `save` is called with the (averaged) model at intervals and at the end.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    core = model.model.to(device)
    core.get_submodule(WORDS).weight.requires_grad_(not settings.freeze_words)
    if settings.freeze_layers:
        encoder = core.get_submodule(ENCODER)
        encoder.embeddings.requires_grad_(False)
        encoder.encoder.layer[: settings.freeze_layers].requires_grad_(False)
    forward = FastForward(core)
    optimizer = make_optimizer(core, settings)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, settings))
    done = state.step if state else 0
    average = state.restore(core, optimizer, schedule, settings) if state else None
    sums, texts, words, begin = [0.0, 0.0], 0, 0, time.monotonic()
    # A CPU without instructions for bfloat16 is many times slower with it.
    halved = device.type == "cuda" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    forward.train()
    for step in range(done + 1, settings.stop + 1):
        batch = next(batches).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=halved):
            entity, relation = losses(forward, batch)
        loss = entity + settings.relation_weight * relation
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(core.parameters(), settings.clip, foreach=True)
        if not math.isfinite(float(norm)):
            raise FloatingPointError(f"gradient norm {norm} at step {step}")
        optimizer.step()
        schedule.step()
        average = _averaged(average, core, step, settings)
        sums = [sums[0] + float(entity.detach()), sums[1] + float(relation.detach())]
        texts += len(batch.input_ids)
        words += int((batch.word_token >= 0).sum())
        if step % 20 == 0:
            seconds = time.monotonic() - begin
            line = f"step {step} entity {sums[0] / 20:.3f} relation {sums[1] / 20:.3f} norm {float(norm):.2f} "
            with log.open("a", encoding="utf-8") as out:
                out.write(f"{line}texts/s {texts / seconds:.1f} words/s {words / seconds:.0f} seconds {seconds:.0f}\n")
            sums = [0.0, 0.0]
        if step % settings.save_every == 0 or step == settings.stop:
            _save(model, core, average, save)
            if state:
                state.save(step, core, optimizer, schedule, average)
            forward.train()


def _averaged(average: Average | None, core: nn.Module, step: int, settings: Settings) -> Average | None:
    """Start the average `settings.average` steps before the end, then update it."""
    if step < settings.steps - settings.average:
        return None
    if average is None:
        return Average(core, settings.average_decay)
    average.update(core)
    return average


def _save(model: Any, core: nn.Module, average: Average | None, save: Callable[[Any], None]) -> None:
    if average:
        average.swap(core)
    save(model)
    if average:
        average.swap(core)
