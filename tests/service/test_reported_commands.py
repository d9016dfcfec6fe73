"""Commands of public bug reports, in our own words: files, models and machines as people have them.

A case names where it was reported. The model is the bundled one, in this process or in one of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gliner_bento import cli
from gliner_bento.settings.configuration import PROJECT_ROOT

TEXT = "Grace Hopper taught in Boston."
NAMES = [("person", "Grace Hopper"), ("city", "Boston")]
SHOWN = "Grace Hopper [person] taught in Boston [city].\n"
MODEL = PROJECT_ROOT / "models" / "demo"


def test_files_have_any_name_and_encoding_and_texts_may_be_missing(tmp_path, capsys):
    """docling 4097 and orange3 7000 (names, byte order marks), ethnicolr 12 (no text)."""
    files = {
        "a.TXT": b"\xef\xbb\xbf" + TEXT.encode(),
        "b.txt": TEXT.encode("utf-16"),
        "c.csv": f"\ufeffid,text\r\n1,{TEXT}\r\n".encode(),
        "d.csv": f"id,text\r\n1,{TEXT}\r\n".encode("utf-16"),
        "e.jsonl": b"\xef\xbb\xbf" + json.dumps({"text": TEXT}).encode(),
        "\u5831\u544a 50%25 #1?/N\u00b0 2 e\u0301 & co.txt": TEXT.encode(),
        "z.jsonl": b'{"text": null}\n{"text": ""}\n{"text": " \\u00a0\\n"}\n',
    }
    for name, content in files.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)
    output = tmp_path / "out.jsonl"
    command = ["bulk", str(tmp_path / "in"), "-o", str(output), "--labels", "person,city", "--quiet"]
    assert cli.main(command) == 0, capsys.readouterr().err
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    found = [[(one["label"], one["text"]) for one in row["entities"]] for row in rows]
    assert found == [*[NAMES] * 5, *[[]] * 3, NAMES]
    assert [row["file"] for row in rows if "file" in row] == [
        name for name in sorted(files) if name[-4:].lower() == ".txt"
    ]


@pytest.fixture
def variant(tmp_path):
    """A function that copies the bundled model, with another configuration of the model and of its tokenizer."""

    def make(without: str, **tokenizer: object) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(MODEL, folder)
        for name in ("gliner_config.json", "tokenizer_config.json"):
            config = json.loads((folder / name).read_text())
            config.pop(without, None)
            config |= tokenizer if name == "tokenizer_config.json" else {}
            (folder / name).write_text(json.dumps(config))
        return folder

    return make


def test_older_and_newer_configurations_have_the_same_answer(variant, capsys):
    """GLiNER 167: no splitter of words is named. GLiNER 332: what transformers 5 writes about a tokenizer."""
    folder = variant(
        "words_splitter_type", tokenizer_class="TokenizersBackend", extra_special_tokens=["<<ENT>>", "<<SEP>>"]
    )
    assert cli.main(["extract", TEXT, "--labels", "person,city", "--model", str(folder)]) == 0
    assert capsys.readouterr().out == SHOWN


def test_a_model_without_its_tokenizers_configuration_is_refused_in_one_line(variant, capsys):
    folder = variant("")
    (folder / "tokenizer_config.json").unlink()
    assert cli.main(["extract", TEXT, "--labels", "person", "--model", str(folder)]) == 1
    written = capsys.readouterr()
    assert (written.out, written.err.count("\n")) == ("", 1)
    assert "gliner-bento models fetch" in written.err


def test_a_folder_as_model_needs_no_home_no_cache_and_no_network(tmp_path):
    """huggingface_hub 2797, kserve 3562: caches that cannot be written. A proxy that is not there. Nothing reports its
    use: onnxruntime would write that it cannot keep an id of the machine."""
    nowhere, proxy = f"{os.devnull}/cache", "http://127.0.0.1:9"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HOME", "TRANSFORMERS"))}
    environment = kept | {"HF_HOME": nowhere, "XDG_CACHE_HOME": nowhere, "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    environment |= {"ALL_PROXY": "socks5://127.0.0.1:9", "NO_PROXY": "localhost,[::1]"}
    environment |= {"PYTHONPATH": str(PROJECT_ROOT)}
    command = [sys.executable, "-m", "gliner_bento.cli", "extract", TEXT, "--labels", "person,city"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, SHOWN, "")
