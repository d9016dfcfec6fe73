"""Writing a checkpoint folder that loads offline from anywhere: fp16 weights, self-contained config, tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

NAME = "all-MiniLM-L6-v2"
RELATION_WINDOW_SENTENCES = 1
"""What this project's server reads at a time for relations: the best of those that `reach` measures."""


def save_checkpoint(model: Any, folder: Path) -> None:
    """Save a GLiNER for publication; the config names the encoder instead of the path that it was built from."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        name: value.detach().to("cpu", torch.float16 if value.is_floating_point() else value.dtype).contiguous().clone()
        for name, value in model.model.state_dict().items()
    }
    scratch = folder / "model.safetensors.tmp"
    save_file(state, scratch, metadata={"format": "pt"})
    scratch.chmod(0o644)
    scratch.replace(folder / "model.safetensors")
    config = json.loads(model.config.to_json_string(use_diff=False))
    config["model_name"] = NAME
    config["relation_window_sentences"] = RELATION_WINDOW_SENTENCES
    _clean(config)
    (folder / "gliner_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    model.data_processor.transformer_tokenizer.save_pretrained(folder)
    _clean_file(folder / "tokenizer_config.json")
    vocabulary = folder / "tokenizer.json"
    content = json.loads(vocabulary.read_text(encoding="utf-8"))
    vocabulary.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def _clean(config: dict[str, Any]) -> None:
    """Drop what transformers notes about where a config came from."""
    for key in ("_name_or_path", "name_or_path", "is_local", "local_files_only"):
        config.pop(key, None)
    for value in config.values():
        if isinstance(value, dict):
            _clean(value)


def _clean_file(path: Path) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    _clean(config)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
