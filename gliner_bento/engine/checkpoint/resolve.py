"""Finds the folder of a checkpoint, which is given as a folder, an archive, or a hub id to be downloaded.

Also downloads configurations and tokenizers of backbones that the folder lacks. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gliner_bento.engine.checkpoint.archive import is_archive, name_of, unpacked
from gliner_bento.engine.checkpoint.find import (
    BACKBONES,
    FORMATS,
    ModelError,
    WeightFiles,
    check_config,
    config_of,
    find_weights,
    is_file,
    is_gliner2,
    no_weights,
    read_json,
    refuse_code,
    stays_inside,
)
from gliner_bento.engine.checkpoint.hub import Hub, is_hub_id
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.storage.other_models import CONFIG, GLINER2_CONFIG, is_gliclass, no_checkpoint

# Configurations, tokenizers and the card.
_TEXTS = ["*.json", "*.txt", "*.model", "README.md"]
_WEIGHTS = {
    FORMATS[:2]: ["model.safetensors", "model-*.safetensors"],
    FORMATS[2:]: ["pytorch_model.bin", "pytorch_model-*.bin"],
}
_VOCABULARIES = ["tokenizer.json", "vocab.txt", "vocab.json", "spm.model", "spiece.model", "sentencepiece.bpe.model"]
_VOCABULARIES += ["tokenizer.model"]
_CONFIG_NAMES = (CONFIG, GLINER2_CONFIG)
_CONFIGS = {"configuration": "config.json", "tokenizer": "tokenizer_config.json"}
# gliner's default of `model_name`.
_DEFAULT_BACKBONE = "microsoft/deberta-v3-small"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """name: shown to clients. folder: local. hub: where its backbones may be. onnx_file: to run in place of weights."""

    name: str
    model: str
    folder: Path
    hub: Hub
    options: CheckpointOptions
    onnx_file: str | None = None

    def weights(self) -> WeightFiles:
        """Its weights. Raises ModelError if there are none."""
        return find_weights(self.folder, self.model)


def find_checkpoint(model: str, options: CheckpointOptions, onnx_file: str | None = None) -> Checkpoint:
    """The checkpoint in the folder or archive `model`, or of a hub id, which is downloaded. Raises ModelError.

    Its configuration is checked, and what the folder lacks of its backbones is in the hub's cache afterwards.

    onnx_file: the ONNX file to use in place of weights, relative to the folder.
    """
    if onnx_file is not None and not stays_inside(onnx_file):
        raise ModelError(f"onnx_model_file {onnx_file!r} is not inside the checkpoint's folder")
    hub = Hub(options)
    folder = given = Path(model).expanduser()
    archived = is_archive(given)
    if archived:
        folder = unpacked(given, options.conversion_cache_dir)
    local = folder.is_dir()
    if not local:
        if not is_hub_id(model):
            raise ModelError(f"{model!r} is neither a folder nor a hub id (owner/name)")
        folder = _downloaded(model, hub, options.revision, onnx_file)
    if config_of(folder) is None:
        raise ModelError(f"{model!r} is {no_checkpoint(folder)}")
    if onnx_file and not is_file(folder / onnx_file):
        raise ModelError(f"{model!r} has no {onnx_file}{_instead(folder)}")
    name = name_of(given) if archived else folder.resolve().name if local else model
    checkpoint = Checkpoint(name, model, folder, hub, options, onnx_file)
    if not onnx_file:
        checkpoint.weights()
    _check_backbones(checkpoint)
    return checkpoint


def _instead(folder: Path) -> str:
    """The end of the message for a missing ONNX file: what to do instead."""
    others = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx"))
    if others:
        return f"; it has {', '.join(others)}: set onnx_model_file"
    return "; export it with gliner's export_to_onnx, or set runtime=torch"


def _downloaded(model: str, hub: Hub, revision: str | None, onnx_file: str | None) -> Path:
    """The folder of a hub id: what is needed of it, safetensors if it has any."""
    kinds = {(onnx_file,): [f"{onnx_file}*"]} if onnx_file else _WEIGHTS
    folder = None
    for names, patterns in kinds.items():
        folder = hub.download(model, [*_TEXTS, *patterns], revision) or hub.cached(model, _CONFIG_NAMES, revision)
        if folder is None:
            break
        if any(is_file(folder / name) for name in names) or config_of(folder) is None:
            return folder
    if folder is not None and hub.refusal(model, revision) is None:
        raise no_weights(model, hub.files(model, revision))
    missing = "is no folder and is not in" if folder is None else "has no weights in"
    raise ModelError(f"{model!r} {missing} the cache {hub.cache_dir}, and {_refused(hub, model, revision, model)}")


def _refused(hub: Hub, repo_id: str, revision: str | None, model: str) -> str:
    reason = hub.refusal(repo_id, revision)
    return f"cannot be downloaded ({reason}); {how_to_place(model)}"


def how_to_place(model: str) -> str:
    """What an operator does if the server cannot reach the hub."""
    return f"where the hub can be reached, run `gliner-bento models fetch {model} -o FOLDER`, then serve FOLDER"


def _check_backbones(checkpoint: Checkpoint) -> None:
    """Check the configuration, and download what the folder lacks of its backbones. Raises ModelError."""
    config = check_config(checkpoint.folder)
    if is_gliclass(checkpoint.folder):  # it has its encoder's configuration, and the tokenizer
        return
    if is_gliner2(checkpoint.folder):
        for name in ("encoder_config/config.json", "tokenizer_config.json"):
            if not is_file(checkpoint.folder / name):
                raise ModelError(f"{checkpoint.model!r} lacks {name}, which GLiNER2 models are saved with")
        return
    for key, backbone in BACKBONES.items():
        source = config.get(key) or (_DEFAULT_BACKBONE if key == "model_name" else None)
        if source is None:
            continue
        lacks = {
            "configuration": not config.get(backbone.config_key),
            "tokenizer": not is_file(checkpoint.folder / backbone.tokenizer_folder / "tokenizer_config.json"),
        }
        if any(lacks.values()):
            parts = [part for part, lacking in lacks.items() if lacking]
            folder = _backbone(str(source), parts, checkpoint)
            refuse_code([read_json(folder / _CONFIGS[part]) for part in parts if is_file(folder / _CONFIGS[part])])


def _backbone(source: str, parts: list[str], checkpoint: Checkpoint) -> Path:
    """The folder with the parts of a backbone: a local one, or in the hub's cache."""
    if Path(source).is_dir():
        return Path(source)
    hub, lacking = checkpoint.hub, f"{checkpoint.model!r} lacks the {' and '.join(parts)} of its backbone {source!r}"
    if not is_hub_id(source):
        raise ModelError(f"{lacking}, which is neither a folder nor a hub id; copy them into the checkpoint's folder")
    folder = _cached_backbone(hub, source, parts) or hub.download(source, _TEXTS, ignored=["*/*"])
    if folder is not None:
        return folder
    raise ModelError(
        f"{lacking}, which is not in the cache {hub.cache_dir} and {_refused(hub, source, None, checkpoint.model)}"
    )


def _cached_backbone(hub: Hub, source: str, parts: list[str]) -> Path | None:
    """An earlier download with all parts."""
    needed = {"configuration": [_CONFIGS["configuration"]], "tokenizer": _VOCABULARIES}
    folders = [hub.cached(source, needed[part]) for part in parts]
    return folders[0] if all(folders) else None
