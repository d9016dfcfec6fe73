"""Why gliner cannot load a checkpoint, in one line for the operator.

gliner's and transformers' own messages speak of training, or of the last of several attempts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import transformers
from transformers.activations import ACT2FN

from gliner_bento.engine.checkpoint.find import configs_in
from gliner_bento.errors import one_line

_SENTENCEPIECE_PACKAGES = {"sentencepiece": "sentencepiece", "google.protobuf": "protobuf"}
_MARKER = re.compile(r"class_token_index=(\d+) is out of range for the tokenizer \(len=(\d+)\)|The entity marker token")


# Match keys of configurations, and bound what a model can have. gliner and torch name no key in their errors.
_SIZES = re.compile(r"^((hidden|intermediate|embedding|vocab)_size|d_model|d_ff|max_position_embeddings|num_\w*heads)$")
_COUNTS = re.compile(r"^num_\w*layers$")
_SHARES = re.compile(r"dropout")
_ACTIVATIONS = re.compile(r"_act$|^activation_function$|^hidden_activation$")
_MAX_SIZE = 2**24
_SHOWN_CHARS = 60


def reason(error: Exception, folder: Path) -> str:
    """The operator's message: the problem, and what to do about it. folder: of the checkpoint."""
    text = one_line(error)
    configs = configs_in(folder)
    if wrong := next(_wrong_values(configs), None):
        return wrong
    if isinstance(error, KeyError):
        if any(config.get("model_type") == error.args[0] for _, config in _named(configs)):
            return f"model_type {text} is unknown to transformers {transformers.__version__}"
        return f"its configuration lacks {text}, or names it and transformers {transformers.__version__} has no such"
    if match := _MARKER.search(text):
        numbers = f"class_token_index is {match[1]}, but the tokenizer has {match[2]} tokens: " if match[1] else ""
        return (
            f"{numbers}the tokenizer lacks gliner's markers (<<ENT>>, <<SEP>>); add the tokenizer's files that were "
            "saved with the checkpoint (tokenizer_config.json, tokenizer.json or spm.model, added_tokens.json)"
        )
    if "tiktoken" in text.lower() or "SentencePiece" in text:
        return _sentencepiece_reason(text)
    return text


def _sentencepiece_reason(text: str) -> str:
    """The message for a SentencePiece model. If transformers cannot read it, `text` is about tiktoken, tried next."""
    missing = [package for module, package in _SENTENCEPIECE_PACKAGES.items() if not _is_installed(module)]
    if missing:
        packages = " ".join(missing)
        return f"its tokenizer is a SentencePiece model, which needs: pip install {packages}"
    return f"its tokenizer is no SentencePiece model that transformers can read ({text})"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # no parent package
        return False


def _named(value: Any, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All JSON objects in configurations, at any depth, with the prefix of the names of their keys."""
    if isinstance(value, list):
        for inside in value:
            yield from _named(inside, prefix)
    elif isinstance(value, dict):
        yield prefix, value
        for key, inside in value.items():
            yield from _named(inside, f"{prefix}{key}.")


def _wrong_values(configs: list[dict[str, Any]]) -> Iterator[str]:
    """Values that no model can have, as messages."""
    for prefix, config in _named(configs):
        for key, value in config.items():
            may_be_null = prefix or key not in {"hidden_size", "dropout"}
            must = "" if value is None and may_be_null else _must_be(key, value)
            if must:
                yield f"{prefix}{key} is {json.dumps(value)[:_SHOWN_CHARS]}; it must be {must}"


def _must_be(key: str, value: Any) -> str:
    """What the value of a key must be; empty if it is, or if the key is not known."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = number and isinstance(value, int)
    if _SIZES.search(key):
        return "" if whole and 1 <= value <= _MAX_SIZE else f"a whole number, 1 to {_MAX_SIZE}"
    if _COUNTS.search(key):
        return "" if whole and value >= 0 else "a whole number, 0 or more"
    if _SHARES.search(key):
        return "" if number and 0 <= value <= 1 else "a number from 0 to 1"
    if _ACTIVATIONS.search(key):
        return "" if isinstance(value, str) and value in ACT2FN else "an activation that transformers has"
    return ""
