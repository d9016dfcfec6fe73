"""`gliner-bento models` with the bundled model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import torch
from gliner import GLiNER
from gliner.config import GLiNERConfig
from peft import LoraConfig
from safetensors import safe_open
from safetensors.torch import save_file

from gliner_bento import cli
from gliner_bento.engine.describe import class_of
from gliner_bento.settings import PROJECT_ROOT

DEMO = PROJECT_ROOT / "models" / "demo"
SMALL = ["--inference-lanes", "1", "--torch-threads", "1", "--device", "cpu", "--dtype", "float32"]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """An adapter of rank 4 of one layer of the bundled model."""
    folder = tmp_path_factory.mktemp("adapter")
    with safe_open(DEMO / "model.safetensors", "pt") as weights:
        name = next(name for name in weights.keys() if name.endswith("self.query.weight"))  # noqa: SIM118
        outputs, inputs = weights.get_slice(name).get_shape()
    layer = f"base_model.model.{name.removesuffix('.weight')}"
    tensors = {f"{layer}.lora_A.weight": torch.zeros(4, inputs), f"{layer}.lora_B.weight": torch.zeros(outputs, 4)}
    save_file(tensors, folder / "adapter_model.safetensors")
    LoraConfig(r=4, target_modules=["query"]).save_pretrained(folder)
    return folder


def test_a_checkpoint_says_what_it_needs_and_which_adapters_fit(adapter, capsys):
    assert cli.main(["models", "show", str(DEMO), "--adapter", str(adapter), "--json", *SMALL]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["family"] == "UniEncoderSpanRelexGLiNER"
    assert shown["dtype"] == "float32"
    assert shown["weights_mb"]["float32"] == pytest.approx(shown["parameters"] * 4 / 1e6, abs=0.1)
    assert shown["adapter"] == {"fits": True, "rank": 4, "layers": 1}
    arguments = ["models", "show", str(DEMO), "--adapter", str(adapter), "--max-lora-rank", "2", *SMALL]
    assert cli.main(arguments) == 2
    assert "rank 4; the server's maximum is 2" in capsys.readouterr().out


def test_a_checkpoint_is_shown_without_its_tensors_and_without_gliner(tmp_path):
    """Its weights are 64 GiB of a sparse file: reading them would take minutes."""
    shutil.copytree(DEMO, tmp_path / "large")
    header = json.dumps({"x": {"dtype": "BF16", "shape": [2**35], "data_offsets": [0, 2**36]}}).encode()
    with (tmp_path / "large" / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2**36)
    program = "import sys; from gliner_bento.cli import main; main(); print('gliner' in sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", program, "models", "show", str(tmp_path / "large"), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    shown = json.loads(ended.stdout)
    assert (shown["parameters"], shown["stored_dtype"], shown["max_words"]) == (2**35, "bfloat16", 256)
    assert ended.stderr == "False\n"


@pytest.mark.parametrize("given", [{}, {"labels_encoder": "e"}, {"labels_decoder": "d"}, {"relations_layer": "r"}])
@pytest.mark.parametrize("mode", ["markerV0", "token_level"])
def test_the_class_of_a_configuration_is_the_one_that_gliner_loads(given, mode):
    config = {"span_mode": mode, **given}
    assert class_of(config) == GLiNER._get_gliner_class(GLiNERConfig(**config)).__name__


def test_checkpoints_in_folders_and_in_the_cache_are_listed(tmp_path, capsys):
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b" / "refs").mkdir()
    (tmp_path / "models--a--b" / "refs" / "main").write_text("1")
    (snapshot / "gliner_config.json").write_text("{}")
    (snapshot / "pytorch_model.bin").write_bytes(b"x" * 10)
    assert cli.main(["models", "list", "--json", "--cache-dir", str(tmp_path)]) == 0
    listed = {one["model"]: one for one in json.loads(capsys.readouterr().out)["models"]}
    assert listed.keys() == {str(DEMO), "a/b"}
    assert listed["a/b"]["bytes"] == 10
    assert listed[str(DEMO)]["weights"] == "model.safetensors"
    assert cli.main(["models", "list", str(tmp_path / "gone")]) == 1
    assert "gone: no such folder" in capsys.readouterr().err
