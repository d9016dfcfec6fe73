"""Finds the folder of a checkpoint, which is given as a folder, an archive, or a hub id to be downloaded.

Also downloads configurations and tokenizers of backbones that the folder lacks. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gliner_bento.engine.checkpoint.archive import is_archive, name_of, unpacked
from gliner_bento.engine.checkpoint.find import (
    BACKBONES,
    FORMATS,
    HUB,
    WHOLE,
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
from gliner_bento.storage.bundled import BUNDLED
from gliner_bento.storage.other_models import CONFIG, OTHER_CONFIG, is_gliclass, no_checkpoint

# Files to download besides the weights: configurations, tokenizers and the card.
_OTHER_FILES = ["*.json", "*.txt", "*.model", "README.md"]
# (name of a format's weight file, name of its index) -> patterns of the files to download.
_WEIGHTS = {
    FORMATS[:2]: ["model.safetensors", "model-*.safetensors"],
    FORMATS[2:]: ["pytorch_model.bin", "pytorch_model-*.bin"],
}
_VOCABULARIES = ["tokenizer.json", "vocab.txt", "vocab.json", "spm.model", "spiece.model", "sentencepiece.bpe.model"]
_VOCABULARIES += ["tokenizer.model"]
_CONFIG_NAMES = (CONFIG, OTHER_CONFIG)
_CONFIG_OF_PART = {"configuration": "config.json", "tokenizer": "tokenizer_config.json"}
# gliner's default of `model_name`.
_DEFAULT_BACKBONE = "microsoft/deberta-v3-small"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint in a local folder. name: the model's name for clients. model: the folder, archive or hub id that the
    operator gave. hub: where parts of backbones come from. onnx_file: the file to run in place of weights. chosen: the
    operator has chosen it; if not, its configuration is compared with its weights before the model is built."""

    name: str
    model: str
    folder: Path
    hub: Hub
    options: CheckpointOptions
    onnx_file: str | None = None
    chosen: bool = True

    def weights(self) -> WeightFiles:
        """The files of its weights. Raises ModelError if there are none."""
        return find_weights(self.folder, self.model)


def find_checkpoint(model: str, options: CheckpointOptions, onnx_file: str | None = None) -> Checkpoint:
    """Find and check a checkpoint. Downloads missing files, also those of backbones, to the hub's cache.

    model: a folder, an archive or a hub id; with the prefix `HUB` only a hub id, whose backbones are not in folders of
        this machine; with the prefix `WHOLE` only a folder, which is never completed.
    onnx_file: the ONNX file to run in place of weights, inside the folder.
    Raises ModelError.
    """
    if onnx_file is not None and not stays_inside(onnx_file):
        raise ModelError(f"onnx_model_file {onnx_file!r} is not inside the checkpoint's folder")
    hub = Hub(options)
    prefix = next((prefix for prefix in (HUB, WHOLE) if model.startswith(prefix)), "")
    model = model.removeprefix(prefix)
    path = Path(model).expanduser()
    if not prefix and is_archive(path):
        folder, name = unpacked(path, options.conversion_cache_dir), name_of(path)
    elif prefix != HUB and path.is_dir():
        folder, name = path, path.resolve().name
    elif not prefix and model == BUNDLED:
        raise ModelError("the bundled model is not installed: pip install gliner-bento-demo, or name a --model")
    elif prefix != WHOLE and is_hub_id(model):
        folder, name = _downloaded(model, hub, options.revision, onnx_file), model
    else:
        raise ModelError(f"{model!r} is {'no' if prefix == HUB else 'neither a folder nor a'} hub id (owner/name)")
    if config_of(folder) is None:
        raise ModelError(f"{model!r} is {no_checkpoint(folder)}")
    if onnx_file and not is_file(folder / onnx_file):
        raise ModelError(f"{model!r} has no {onnx_file}{_instead(folder)}")
    checkpoint = Checkpoint(name, model, folder, hub, options, onnx_file, chosen=not prefix)
    if not onnx_file:
        checkpoint.weights()
    _complete(checkpoint, prefix)
    return checkpoint


def _complete(checkpoint: Checkpoint, prefix: str) -> None:
    """Find the parts of backbones that the folder lacks, as far as the prefix allows it. Raises ModelError."""
    for key, source, parts in _lacking_parts(checkpoint):
        if prefix == WHOLE:
            what = f"{checkpoint.name!r} lacks the {' and '.join(parts)} that {key} names"
            raise ModelError(f"{what}; a folder or an archive that is added to a server has all parts")
        if prefix == HUB and Path(source).is_dir():
            raise ModelError(f"{checkpoint.name!r}: {key} names a folder; it is not read")
        folder = _backbone(source, parts, checkpoint)
        configs = [folder / _CONFIG_OF_PART[part] for part in parts]
        refuse_code([read_json(config) for config in configs if is_file(config)])


def _instead(folder: Path) -> str:
    """The end of the message for a missing ONNX file: what to do instead."""
    others = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx"))
    if others:
        return f"; it has {', '.join(others)}: set onnx_model_file"
    return "; export it with gliner's export_to_onnx, or set runtime=torch"


def _downloaded(model: str, hub: Hub, revision: str | None, onnx_file: str | None) -> Path:
    """Download a checkpoint from the hub, in safetensors if it has any, or find it in the cache; returns the folder."""
    formats = {(onnx_file,): [f"{onnx_file}*"]} if onnx_file else _WEIGHTS
    folder = None
    for names, patterns in formats.items():
        folder = hub.download(model, [*_OTHER_FILES, *patterns], revision) or hub.cached(model, _CONFIG_NAMES, revision)
        if folder is None:
            break
        has_weights = any(is_file(folder / name) for name in names)
        if has_weights or config_of(folder) is None:  # without a configuration, the caller refuses the folder
            return folder
    if folder is not None and hub.refusal(model, revision) is None:
        raise no_weights(model, hub.files(model, revision))
    missing = "is no folder and is not in" if folder is None else "has no weights in"
    refused = _refused(hub, model, revision, model=model)
    raise ModelError(f"{model!r} {missing} the cache {hub.cache_dir}, and {refused}")


def _refused(hub: Hub, repo_id: str, revision: str | None, *, model: str) -> str:
    reason = hub.refusal(repo_id, revision)
    return f"cannot be downloaded ({reason}); {how_to_place(model)}"


def how_to_place(model: str) -> str:
    """What an operator does if the server cannot reach the hub."""
    return f"where the hub can be reached, run `gliner-bento models fetch {model} -o FOLDER`, then serve FOLDER"


def _lacking_parts(checkpoint: Checkpoint) -> Iterator[tuple[str, str, list[str]]]:
    """Check the configuration. Yields the parts of backbones that the folder lacks: the backbone's key and source (a
    hub id or a folder), and the parts. Raises ModelError."""
    config = check_config(checkpoint.folder)
    if is_gliclass(checkpoint.folder):  # contains its encoder's configuration and tokenizer
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
        if parts := [part for part, lacking in lacks.items() if lacking]:
            yield key, str(source), parts


def _backbone(source: str, parts: list[str], checkpoint: Checkpoint) -> Path:
    """The folder with these parts of a backbone: `source` itself, or one in the hub's cache."""
    if Path(source).is_dir():
        return Path(source)
    hub = checkpoint.hub
    problem = f"{checkpoint.model!r} lacks the {' and '.join(parts)} of its backbone {source!r}"
    if not is_hub_id(source):
        raise ModelError(f"{problem}, which is neither a folder nor a hub id; copy them into the checkpoint's folder")
    folder = _cached_backbone(hub, source, parts) or hub.download(source, _OTHER_FILES, ignored=["*/*"])
    if folder is not None:
        return folder
    refused = _refused(hub, source, None, model=checkpoint.model)
    raise ModelError(f"{problem}, which is not in the cache {hub.cache_dir} and {refused}")


def _cached_backbone(hub: Hub, source: str, parts: list[str]) -> Path | None:
    """The folder of an earlier download with all parts; None if there is none."""
    needed = {"configuration": [_CONFIG_OF_PART["configuration"]], "tokenizer": _VOCABULARIES}
    folders = [hub.cached(source, needed[part]) for part in parts]
    return folders[0] if all(folders) else None
