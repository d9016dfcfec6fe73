"""Loads a GLiClass checkpoint with the package gliclass, as an object with the attributes of gliner's models.

The package is imported when the first such checkpoint is loaded, because that takes seconds. For an unknown encoder, it
would run a checkpoint's code (`trust_remote_code=True`), so encoders that transformers lacks are refused first.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoTokenizer

from gliner_bento.engine.checkpoint.find import ModelError, read_json
from gliner_bento.engine.checkpoint.limits import check_vocabulary, token_limit
from gliner_bento.engine.checkpoint.reasons import reason
from gliner_bento.errors import install_hint
from gliner_bento.storage.other_models import GLICLASS_TOKENS, OTHER_CONFIG

UNI_ENCODER = "uni-encoder"
_BACKBONES = {
    UNI_ENCODER: "encoder_model",
    "encoder-decoder": "encoder_decoder_model",
    "encoder-decoder-cls": "encoder_decoder_model",
    "decoder-kv": "decoder_model",
}
"""The served architectures of gliclass, with the attribute that holds the backbone. Architectures with two encoders are
not served: their checkpoints do not contain the labels' tokenizer, but name one on the hub."""


class GLiClass:
    """gliclass's `GLiClassModel` as `model`. max_tokens: maximum tokens of labels and text; 0: gliclass's default.

    limit: `max_tokens`, or less if the encoder or the tokenizer has a lower limit. reads_labels_apart: whether labels
    and text are two sequences. is_decoder: whether the backbone is a decoder, which reads the text first.
    """

    is_runtime_model = False

    def __init__(self, model: Any, tokenizer: Any, max_tokens: int = 0) -> None:
        self.model, self.tokenizer, self.config = model, tokenizer, model.config
        self.reads_labels_apart = hasattr(model.model, "encoder_decoder_model")
        self.is_decoder = hasattr(model.model, "decoder_model")
        self.backbone = encoder = getattr(model.model, _BACKBONES[self.config.architecture_type])
        check_vocabulary(encoder, tokenizer)
        limits = [max_tokens or GLICLASS_TOKENS, token_limit(encoder, tokenizer)]
        self.limit: int = min(limit for limit in limits if limit is not None)
        pipeline = package().ZeroShotClassificationPipeline
        self.pipeline = pipeline(model, tokenizer, max_length=self.limit, device=model.device, progress_bar=False).pipe

    @property
    def max_labels(self) -> int | None:
        """Maximum number of labels of one text; None: no limit. A model that reads labels apart has a fixed number."""
        slots = None if self.reads_labels_apart else self.label_slots(0)
        if slots is None:
            fixed: int | None = self.config.max_num_classes
            return fixed
        return slots or None  # 0: gliclass makes a slot for each label

    def label_slots(self, labels: int) -> int | None:
        """gliclass's `max_num_classes` for a text with this number of labels; None: the value in the configuration."""
        slots: int | None = self.pipeline._resolve_max_num_classes([""] * labels, same_labels=True)
        return slots

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def eval(self) -> None:
        """As `nn.Module.eval`."""
        self.model.eval()


def build_gliclass(
    folder: Path, name: str, *, max_tokens: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> GLiClass:
    """gliclass's model of the checkpoint in a folder, with random weights. Raises ModelError."""
    if find_spec("gliclass") is None:
        raise ModelError(f"{name!r} is a GLiClass model, which needs the package gliclass; {install_hint('gliclass')}")
    config = _checked(folder)
    try:
        settings = package().GLiClassModelConfig(**config)
        settings.encoder_model_name = str(folder / "encoder")  # gliclass looks there for an adapter
        model = package().GLiClassModel(settings).to(device, dtype)
        return GLiClass(model, AutoTokenizer.from_pretrained(folder, config=settings), max_tokens)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"gliclass cannot load {name!r}: {reason(error, folder)}") from error


def package() -> Any:
    """Import the package gliclass, without the warnings of what it imports for its own server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gliclass  # noqa: PLC0415  # see above
    return gliclass


def _checked(folder: Path) -> dict[str, Any]:
    """The configuration. Raises ModelError if its architecture is not served, or if it describes no encoder that
    transformers has."""
    config = read_json(folder / OTHER_CONFIG)
    architecture = config.get("architecture_type", UNI_ENCODER)
    if architecture not in _BACKBONES:
        raise ModelError(
            f"this GLiClass checkpoint has the architecture {architecture!r}; served are {', '.join(_BACKBONES)}"
        )
    encoder = config.get("encoder_config")
    kind = encoder.get("model_type", "deberta-v2") if isinstance(encoder, dict) else None
    if kind not in CONFIG_MAPPING:
        raise ModelError(f"{OTHER_CONFIG}: encoder_config: transformers has no encoder {kind!r}")
    return config
