"""How much memory a device has, and how much the weights of a model need, before it is loaded."""

from __future__ import annotations

from pathlib import Path

from gliner_bento.settings import Settings

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_MEMINFO = Path("/proc/meminfo")


def total_bytes(device: str) -> int | None:
    """The memory of a GPU, or on a CPU the memory that this process may use; None if it is not known."""
    if device.startswith("cuda"):
        from gliner_bento.engine.memory import device_bytes  # noqa: PLC0415  # imports torch

        return device_bytes(device)
    if not _MEMINFO.exists():
        return None
    total = int(_MEMINFO.read_text().split()[1]) * 1024  # "MemTotal: 1234 kB" comes first
    limits = [file.read_text().strip() for file in _CGROUP_LIMITS if file.exists()]
    return min([total, *(int(limit) for limit in limits if limit.isdecimal())])


def weights_bytes(settings: Settings) -> int:
    """The size of the files of a model's weights. Downloads missing files. Raises `ModelError`."""
    from gliner_bento.engine.checkpoint.resolve import find_checkpoint  # noqa: PLC0415
    from gliner_bento.engine.options import CheckpointOptions  # noqa: PLC0415

    onnx_file = settings.onnx_model_file if settings.runtime == "onnxruntime" else None
    checkpoint = find_checkpoint(settings.model, settings.view(CheckpointOptions), onnx_file)
    files = [checkpoint.folder / onnx_file] if onnx_file else checkpoint.weights().files
    return sum(file.stat().st_size for file in files)
