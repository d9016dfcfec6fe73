"""Small checkpoints with random weights in the forms of `forms`, and damaged ones.

form_checkpoint(folder, FORMS["v0"])  ->  a folder with the files and configuration keys of urchade/gliner_base
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from backbones import config_of, place
from checkpoints import HIDDEN, LABELS, RELATIONS, TEXTS, draw_weights
from forms import FORMS, TRANSFORMERS_4, Form
from gliner import GLiNER
from safetensors.torch import save_file, save_model
from transformers import AutoTokenizer

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class RefusedForm:
    """A checkpoint that gliner cannot use.

    gliner: what gliner raises when it loads or predicts; None: it runs, and its answers mean nothing.
    message: the operator's. change: makes it from the folder of a checkpoint of `form`.
    """

    what: str
    form: str
    change: Callable[[Path], None]
    gliner: str | None
    message: str


def _without(*patterns: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for pattern in patterns:
            for path in folder.glob(pattern):
                path.unlink()

    return remove


def _with(inside: str | None = None, **keys: Any) -> Callable[[Path], None]:
    """Keys in gliner_config.json, or in the configuration `inside` it."""

    def write(folder: Path) -> None:
        path = folder / "gliner_config.json"
        config = json.loads(path.read_text())
        (config[inside] if inside else config).update(keys)
        path.write_text(json.dumps(config))

    return write


def _with_bytes_for_tokens(folder: Path) -> None:
    place("google/byt5-small")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
    _with(encoder_config=config_of("google/byt5-small"))(folder)
    save_model(_with_random_weights(folder).model, str(folder / WEIGHTS))


def _with_damaged_vocabulary(folder: Path) -> None:
    (folder / "spm.model").write_bytes(bytes(100))


REFUSED: dict[str, RefusedForm] = {
    "no-tokenizer": RefusedForm(
        "`class_token_index` without the tokenizer that it counts in",
        "v2.5",
        _without("*token*", "spm.model"),
        "class_token_index=.* is out of range",
        r"class_token_index is \d+, but the tokenizer has \d+ tokens: .* add the tokenizer's files",
    ),
    "no-added-tokens": RefusedForm(
        "a SentencePiece tokenizer without its added_tokens.json",
        "sentencepiece-only",
        _without("added_tokens.json"),
        "class_token_index=.* is out of range",
        "the tokenizer lacks gliner's markers",
    ),
    "no-vocabulary": RefusedForm(
        "a tokenizer_config.json without the vocabulary's file",
        "bi-v1-bge",
        _without("tokenizer.json", "spm.model"),
        None,
        r"the tokenizer has \d+ tokens, its encoder \d+: the vocabulary is missing",
    ),
    "damaged-vocabulary": RefusedForm(
        "a damaged SentencePiece model",
        "sentencepiece-only",
        _with_damaged_vocabulary,
        "tiktoken",
        "its tokenizer is no SentencePiece model that transformers can read",
    ),
    "other-index": RefusedForm(
        "`class_token_index` of another tokenizer",
        "post-train",
        _with(class_token_index=5),
        None,
        r"class_token_index of gliner_config.json is 5, but the tokenizer encodes <<ENT>> as \[\d+\]",
    ),
    "unknown-backbone": RefusedForm(
        "a backbone that the installed transformers does not have",
        "post-train",
        _with("encoder_config", model_type="nezha"),
        "nezha",
        "model_type 'nezha' is unknown to transformers",
    ),
    "slow-tokenizer": RefusedForm(
        "a backbone whose tokenizer runs in Python (ByT5, PhoBERT)",
        "mt5-of-the-hub",
        _with_bytes_for_tokens,
        r"word_ids\(\) is not available",
        "ByT5Tokenizer does not say which token belongs to which word",
    ),
    "unknown-span-mode": RefusedForm(
        "a `span_mode` that gliner does not have",
        "post-train",
        _with(span_mode="token-level"),
        "Unknown span mode",
        "Unknown span mode token-level",
    ),
}


def form_checkpoint(folder: Path, form: Form) -> Path:
    """Write a checkpoint of this form into `folder`, and what it needs of the Hub into the cache."""
    config = {"max_width": 4, "max_len": 48, "hidden_size": HIDDEN - 8, **form.config}
    for name, inside in (("model_name", "encoder_config"), ("labels_encoder", "labels_encoder_config")):
        if config.get(name):
            place(config[name])
            if form.embedded:
                config[inside] = {**TRANSFORMERS_4, **config_of(config[name])}
    if config.get("labels_decoder"):
        place(config["labels_decoder"])
        config["labels_decoder_config"] = config_of(config["labels_decoder"])
    tokenizer = AutoTokenizer.from_pretrained(config["model_name"])
    if form.tokenizer != "none":
        tokenizer.add_tokens(list(form.special_tokens), special_tokens=True)
        tokenizer.save_pretrained(folder)
    if form.indices:
        config["vocab_size"] = len(tokenizer)
        config["class_token_index"] = tokenizer.convert_tokens_to_ids("<<ENT>>")
        if "<<REL>>" in form.special_tokens:
            config["rel_token_index"] = tokenizer.convert_tokens_to_ids("<<REL>>")
        if form.embedded:
            config["encoder_config"]["vocab_size"] = len(tokenizer)
    if form.tokenizer == "spm.model":
        _slow_tokenizer(folder, place(config["model_name"]) / "spm.model", form.special_tokens, len(tokenizer))
    (folder / "gliner_config.json").write_text(json.dumps(config, indent=2, sort_keys=True))
    _write_weights(folder)
    return folder


def _slow_tokenizer(folder: Path, model: Path, special_tokens: tuple[str, ...], size: int) -> None:
    (folder / "tokenizer.json").unlink()
    shutil.copy(model, folder)
    first = size - len(special_tokens)
    added = {token: first + number for number, token in enumerate(special_tokens)}
    (folder / "added_tokens.json").write_text(json.dumps(added))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": "DebertaV2Tokenizer"}))


def _with_random_weights(folder: Path) -> Any:
    save_file({}, folder / WEIGHTS)  # gliner keeps its initial ones
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GLiNER.from_pretrained(str(folder))


def _write_weights(folder: Path) -> None:
    """Random weights with which thresholds and labels change the results of gliner's own model."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        model = _with_random_weights(folder)
        for _ in range(300):
            draw_weights(model.model)
            if _is_lively(model):
                break
        else:
            raise RuntimeError(f"{folder.name} gives no lively model")
        save_model(model.model, str(folder / WEIGHTS))


def _is_lively(model: Any) -> bool:
    if hasattr(model, "predict_relations"):
        entities, relations = model.inference(list(TEXTS[:2]), list(LABELS), list(RELATIONS[:2]), threshold=0.5)
    else:
        options = {"max_new_tokens": 1} if hasattr(model, "generate_labels") else {}
        try:
            entities, relations = model.inference(list(TEXTS[:2]), list(LABELS), threshold=0.5, **options), [[0] * 4]
        except RuntimeError:
            return False  # gliner's label decoder fails without spans
    scores = sorted(entity["score"] for row in entities for entity in row)
    labels = {entity["label"] for row in entities for entity in row}
    return (
        len(scores) >= 5 and scores[0] < 0.8 and scores[-1] > 0.9 and len(labels) > 1 and sum(map(len, relations)) > 3
    )


def checkpoints_table() -> str:
    """The table of docs/models.md: forms that run alike are one row."""
    backbones: dict[tuple[str, str, str], list[str]] = {}
    for form in FORMS.values():
        kind = (form.stands_for, _labels_of(form), form.encoder)
        backbones.setdefault(kind, []).append(form.config["model_name"])
    checkpoints: dict[tuple[str, str, str], list[str]] = {}
    for (who, labels, run), names in backbones.items():
        checkpoints.setdefault((", ".join(names), labels, run), []).append(who)
    rows = [f"| {'; '.join(who)} | {' | '.join(kind)} |" for kind, who in checkpoints.items()]
    head = ["| Checkpoints | Backbone | Labels | Encoder |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def _labels_of(form: Form) -> str:
    kind = "tokens" if form.config.get("span_mode") == "token_level" else "spans"
    if form.config.get("relations_layer"):
        return f"in the prompt, with relations, {kind}"
    encoder = form.config.get("labels_encoder")
    return f"encoded by {encoder}, {kind}" if encoder else f"in the prompt, {kind}"


def refused_table() -> str:
    """The table of refused checkpoints in docs/models.md."""
    rows = [
        f"| {one.what} | {'raises an error' if one.gliner else 'gives meaningless answers'} |"
        for one in REFUSED.values()
    ]
    return "\n".join(["| Checkpoint | gliner |", "|---|---|", *rows])
