"""Why gliner cannot load a checkpoint, in one line for the operator.

gliner's and transformers' own messages speak of training, or of the last of several attempts.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

import transformers

from gliner_bento.errors import one_line

_SENTENCEPIECE_PACKAGES = {"sentencepiece": "sentencepiece", "google.protobuf": "protobuf"}
_MARKER = re.compile(r"class_token_index=(\d+) is out of range for the tokenizer \(len=(\d+)\)|The entity marker token")


def reason(error: Exception) -> str:
    """The operator's message: the problem, and what to do about it."""
    text = one_line(error)
    if isinstance(error, KeyError):  # raised by transformers' table of configurations
        return f"model_type {text} is unknown to transformers {transformers.__version__}"
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
