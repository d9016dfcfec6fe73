"""An interrupted training continues to the same weights, and a calibration changes the logits as it says."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gliner")

import torch

from training.batching import Batch, Collator
from training.calibration import Correction, direction, fit, fold
from training.loop import ENCODER, WORDS, Settings, State, train
from training.model import FastForward, reload_model
from training.sampling import Example

DEMO = Path(__file__).parents[3] / "models" / "demo"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (DEMO / "model.safetensors").exists(), reason="the bundled model is not there"),
]

SETTINGS = Settings(steps=4, decay=4, stop=4, warmup=1, average=2, save_every=2)


def batch(model: object, number: int) -> Batch:
    words = ["Tarnhelm", "bought", "Portolan", "in", "May", str(number), "."]
    example = Example(words, ["company", "date"], ["acquired"], spans=[(0, 0), (2, 2)])
    example.positives = [(0, 0, 0), (2, 2, 0)]
    example.pairs = [(0, 1, 0, 1)]
    return Collator(model.data_processor.transformer_tokenizer, model.config).batch([example])  # type: ignore[attr-defined]


def weights(model: object) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.model.parameters()])  # type: ignore[attr-defined]


class Interrupted(Exception):
    pass


def test_resumed_training_has_the_same_result(tmp_path: Path) -> None:
    def run(log: str, state: State | None, *, until: int = 4) -> torch.Tensor:
        torch.manual_seed(3)
        model = reload_model(DEMO)
        saved = []

        def stream():  # type: ignore[no-untyped-def]
            for number in range(state.step if state else 0, 4):
                if number == until:
                    raise Interrupted
                yield batch(model, number)

        train(model, stream(), SETTINGS, lambda one: saved.append(weights(one)), tmp_path / log, state)
        return saved[-1]

    whole = run("whole.log", None)
    path = tmp_path / "stage.pt"
    with pytest.raises(Interrupted):
        run("first.log", State(path, SETTINGS), until=3)
    assert State(path, SETTINGS).step == 2
    torch.testing.assert_close(run("second.log", State(path, SETTINGS)), whole, rtol=0, atol=0)
    with pytest.raises(SystemExit, match="other settings"):
        State(path, Settings(steps=5, decay=4, stop=4))


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_layers_stay_and_the_rest_is_trained(tmp_path: Path, frozen: bool) -> None:
    model = reload_model(DEMO)
    encoder = model.model.get_submodule(ENCODER)
    words, layers, rest = model.model.get_submodule(WORDS).weight, encoder.encoder.layer, weights(model)
    low, high = (layer.output.dense.weight for layer in (layers[0], layers[1]))
    before = [one.detach().clone() for one in (words, low, high)]
    settings = replace(SETTINGS, freeze_words=frozen, freeze_layers=int(frozen))
    train(model, (batch(model, number) for number in range(4)), settings, lambda _: None, tmp_path / "train.log")
    assert [torch.equal(*pair) for pair in zip((words, low, high), before, strict=True)] == [frozen, frozen, False]
    assert not torch.equal(weights(model), rest)


def test_platt_scaling_finds_scale_and_shift() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20_000, generator=generator) * 2
    right = torch.rand(20_000, generator=generator) < torch.sigmoid(0.5 * logits - 0.7)
    found = fit(list(zip(torch.sigmoid(logits).tolist(), right.tolist(), strict=True)), miss=2.0)
    assert found.scale == pytest.approx(0.5, abs=0.05)
    assert found.shift == pytest.approx(-0.7 + math.log(2.0), abs=0.08)  # the odds of a right answer are doubled


@torch.no_grad()
def test_folded_calibration_scales_and_shifts_logits() -> None:
    model = reload_model(DEMO)
    model.model.eval()
    forward, one = FastForward(model.model).eval(), batch(model, 1)
    states = model.model.token_rep_layer(one.input_ids, one.attention_mask)[0]
    types = model.model.prompt_rep_layer(states[one.label_token[0][:2]])
    names = states[one.relation_token[0][:1]]
    entities, relations = forward(one)
    fold(model.model, Correction(0.5, -1.0), Correction(2.0, 0.5), types, names)
    shifted, related = forward(one)
    for label in range(2):
        added = float(types[label] @ direction(types))
        assert added == pytest.approx(1, abs=0.1)
        expected = 0.5 * entities[..., label] - added
        torch.testing.assert_close(shifted[..., label], expected, rtol=1e-3, atol=1e-3)
    expected = 2 * relations[:1, 0] + 0.5 * float(names[0] @ direction(names))
    torch.testing.assert_close(related[:1, 0], expected, rtol=1e-3, atol=1e-3)
